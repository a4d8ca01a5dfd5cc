"""docs/peers.md shows what dsconf says today, and what it says is right."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from running import dsconf

from tools.peers.faults import FAULTS, FOLDER, Fault
from tools.peers.losses import LOSSES, Loss, to_fsdp2, translate
from tools.peers.own import with_own_parts
from tools.peers.page import INTRODUCTION, LOSSES_HEAD, PAGE, TABLE, TIME, outcome
from tools.peers.rivals import RIVALS, WORDS, Verdict, error_of, shown, verdict

PAGE_TEXT = PAGE.read_text(encoding="utf-8")
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file)
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.file)


@pytest.fixture(autouse=True)
def _in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shutil.copytree(FOLDER, tmp_path / "peers"))


@each_fault
def test_dsconf_finds_each_fault_where_it_is_and_nothing_else(fault: Fault) -> None:
    result = dsconf(*fault.command[1:])
    found = re.findall(rf"^{re.escape(fault.file)}:(\d+:\d+): (\w+) ", result.stdout, re.MULTILINE)
    assert tuple(" ".join(each) for each in found) == fault.found
    assert result.exit_code == 1


@each_fault
def test_dsconf_names_each_fault_in_the_words_that_are_asked_of_others(fault: Fault) -> None:
    assert re.search(fault.named, dsconf(*fault.command[1:]).stdout, re.IGNORECASE)


def test_the_page_shows_what_dsconf_says_today(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(command: tuple[str, ...], folder: Path) -> tuple[int, str]:
        monkeypatch.chdir(folder)
        result = dsconf(*command[1:])
        return result.exit_code, result.output

    assert with_own_parts(PAGE_TEXT, ask) == PAGE_TEXT, "./dev peers --own"


def test_a_page_without_a_place_for_what_dsconf_says_is_no_page() -> None:
    with pytest.raises(ValueError, match="0 places"):
        with_own_parts("# Beside other tools\n", lambda *_: (0, ""))


def test_the_page_shows_every_config() -> None:
    for path in [*FOLDER.glob("[0-9]*"), *(FOLDER / "to_fsdp2").iterdir()]:
        assert path.read_text(encoding="utf-8").strip() in PAGE_TEXT


@each_loss
def test_what_dsconf_makes_of_a_file_has_no_faults(loss: Loss) -> None:
    if dsconf(*translate(loss.file)[1:]).exit_code == 0:
        assert dsconf("lint", f"to_fsdp2/{loss.file}").exit_code == 0


def test_only_the_file_that_says_two_things_is_refused() -> None:
    refused = [loss.file for loss in LOSSES if dsconf(*translate(loss.file)[1:]).exit_code]
    assert refused == ["version_2_with_fsdp1_keys.yaml"]


def test_every_file_is_in_use() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.name[0].isdigit()}
    assert there == {fault.file for fault in FAULTS}
    assert {path.name for path in (FOLDER / "to_fsdp2").iterdir()} == {loss.file for loss in LOSSES}


def test_the_page_has_every_command() -> None:
    for rival in RIVALS:
        for fault in (FAULTS[0], FAULTS[-1]):
            if command := rival.command(fault.file):
                assert f"\n$ {' '.join(command)}\n" in PAGE_TEXT


FAULT = Fault("x.json", "", (), "batch.*10")
TRACEBACK = "Traceback (most recent call last):\n  File x, line 3\nValueError: batch\nis 10\n"


@pytest.mark.parametrize("words", [INTRODUCTION, TABLE, TIME, LOSSES_HEAD])
def test_the_page_has_the_words_that_it_is_made_of(words: str) -> None:
    for part in re.split(r"\{\w+\}", words):
        assert part.strip() in PAGE_TEXT


@each_loss
def test_the_page_says_how_each_file_is_converted_and_how_it_starts(loss: Loss) -> None:
    start = f"### {loss.file}\n\n{loss.about}\n"
    part = PAGE_TEXT.partition(start)[2].partition("\n### ")[0]
    assert f"$ {' '.join(to_fsdp2(loss.file))}\n" in part
    for line in re.findall(r"^`accelerate launch` of that: (.*)\.$", part, re.MULTILINE):
        assert line == outcome(line.strip("`").strip())


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, "", Verdict("accepted", "")),
        (0, "batch is 10", Verdict("accepted", "")),
        (0, "WARNING something", Verdict("accepted", "")),
        (0, "[2026-01-02 10:11:12,123] [WARNING] Batch is 10", Verdict("warning", "[WARNING] Batch is 10")),
        (1, TRACEBACK, Verdict("caught", "ValueError: batch is 10")),
        (1, "batch is 10: loading\nTypeError: no", Verdict("cryptic", "TypeError: no")),
        (2, "no such batch", Verdict("cryptic", "no such batch")),
    ],
)
def test_verdicts(status: int, output: str, expected: Verdict) -> None:
    assert expected.word in WORDS
    assert verdict(status, output, FAULT) == expected


def test_the_error_of_a_worker_is_the_error_not_what_its_launcher_says_of_it() -> None:
    output = (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File x\n[rank0]: pkg.mod.OwnError: a\n[rank0]:  b\n"
        "E1130 10:45:58 api.py:1002] failed\nTraceback (most recent call last):\n  File y\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\n"
    )
    assert error_of(output) == "OwnError: a\n b"
    plain = "ValueError: a\nTraceback (most recent call last):\n  File y\nsubprocess.CalledProcessError: b\n"
    assert error_of(plain) == "ValueError: a"


def test_a_long_message_is_cut() -> None:
    assert shown("a " * 200) == f"{'a ' * 98}a..."
