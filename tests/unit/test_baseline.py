"""Baselines: what is known is hidden, what is new is shown, and what is gone is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import dsconf, lint, write
from syrupy.assertion import SnapshotAssertion

TYPO = '{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 0.5}'
OFFLOAD = (
    '{"train_micro_batch_size_per_gpu": 4,\n'
    '"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
)
FILE = "baseline.json"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_is_written_without_line_numbers(snapshot: SnapshotAssertion) -> None:
    write({"configs/a.json": TYPO, "b.json": OFFLOAD})
    result = dsconf("lint", "configs/a.json", "b.json", "--write-baseline", FILE)
    assert result.exit_code == 0
    assert result.stderr == "baseline.json: written, 2 problems\n"
    assert result.stdout == "No problems found in 2 files.\n2 problems known from the baseline.\n"
    assert Path(FILE).read_text() == snapshot


def test_known_ones_are_hidden_and_new_ones_shown() -> None:
    write({"a.json": TYPO})
    dsconf("lint", "a.json", "--write-baseline", FILE)
    assert lint("a.json", "--baseline", FILE) == ["0"]
    write({"a.json": TYPO.replace("{", '\n\n{\n"zero_optimizaton": {},', 1)})
    assert lint("a.json", "--baseline", FILE) == ["a.json:4 DS104", "1"]
    assert "1 problem known from the baseline." in dsconf("lint", "a.json", "--baseline", FILE).stdout
    write({"a.json": TYPO.replace("0.5", "0.25")})
    assert lint("a.json", "--baseline", FILE) == ["a.json:1 DS104", "1"]


def test_an_entry_hides_one_finding() -> None:
    twice = '{"train_micro_batch_size_per_gpu": 4, "bf16": {}, "bf16": {}}'
    write({"a.json": twice})
    dsconf("lint", "a.json", "--write-baseline", FILE)
    assert lint("a.json", "--baseline", FILE) == ["0"]
    write({"a.json": twice.replace("}}", '}, "bf16": {}}')})
    assert lint("a.json", "--baseline", FILE) == ["a.json:1 DS102", "1"]


def test_it_comes_from_the_settings_and_holds_from_every_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    write({"configs/a.json": TYPO, "dsconf.toml": f'baseline = "known/{FILE}"', f"known/{FILE}": "{}"})
    dsconf("lint", "configs/a.json", "--write-baseline", f"known/{FILE}")
    assert lint("configs/a.json") == ["0"]
    assert json.loads(Path("known", FILE).read_text())["findings"][0]["file"] == "../configs/a.json"
    monkeypatch.chdir("configs")
    assert lint("a.json") == ["0"]
    assert lint("a.json", "--isolated") == ["a.json:1 DS104", "1"]


def test_what_is_gone_is_said() -> None:
    write({"a.json": TYPO, "b.json": OFFLOAD})
    dsconf("lint", "a.json", "b.json", "--write-baseline", FILE)
    write({"a.json": TYPO.replace("cliping", "clipping")})
    stale = "1 problem of the baseline no longer found: write it again.\n"
    assert dsconf("lint", "a.json", "b.json", "--baseline", FILE).stdout == (
        "No problems found in 2 files.\n1 problem known from the baseline.\n" + stale
    )
    assert stale not in dsconf("lint", "b.json", "--baseline", FILE).stdout, "a.json was not linted"
    assert stale not in dsconf("lint", "a.json", "--baseline", FILE, "--ignore", "DS104").stdout
    Path("a.json").unlink()
    assert dsconf("lint", "b.json", "--baseline", FILE).stdout == (
        "a.json: skipped, it is gone, and the baseline still lists 1 of its findings\n"
        "No problems found in 1 file.\n1 problem known from the baseline.\n"
    )


def test_what_was_not_decided_is_not_gone() -> None:
    write({"a.json": '{"train_batch_size": 20, "train_micro_batch_size_per_gpu": 4}'})
    dsconf("lint", "a.json", "--write-baseline", FILE, "--world-size", "3")
    assert "no longer found" not in dsconf("lint", "a.json", "--baseline", FILE).stdout


def test_a_file_that_cannot_be_read_is_never_known() -> None:
    write({"a.json": "{", "b.json": TYPO})
    result = dsconf("lint", "a.json", "b.json", "--write-baseline", FILE)
    assert result.exit_code == 2
    assert "DS101" in result.stdout
    assert [entry["file"] for entry in json.loads(Path(FILE).read_text())["findings"]] == ["b.json"]
    assert lint("a.json", "b.json", "--baseline", FILE) == ["a.json:1 DS101", "2"]


def test_suppressed_ones_are_not_listed() -> None:
    write({"a.json": TYPO[:-1] + " // dsconf: ignore[DS104]\n}"})
    dsconf("lint", "a.json", "--write-baseline", FILE)
    assert json.loads(Path(FILE).read_text()) == {"version": 1, "findings": []}


def test_configs_inside_other_files_have_their_own_values() -> None:
    configs = [f"c{number} = {TYPO.replace('0.5', str(number))}\n" for number in (1, 2)]
    write({"a.py": "".join(configs)})
    dsconf("lint", "a.py", "--write-baseline", FILE)
    assert [entry["value"] for entry in json.loads(Path(FILE).read_text())["findings"]] == [1, 2]
    assert lint("a.py", "--baseline", FILE) == ["0"]


@pytest.mark.parametrize("key", ["x.y", "\u00e9\U0001f600", "\\ud800", ""])
def test_odd_keys(key: str) -> None:
    write({"a.json": TYPO.replace("gradient_cliping", key)})
    dsconf("lint", "a.json", "--write-baseline", FILE)
    (entry,) = json.loads(Path(FILE).read_text())["findings"]
    assert entry.get("value") == (0.5 if key else None)
    assert lint("a.json", "--baseline", FILE) == ["0"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("", "the file is empty"),
        ("{", "no JSON: "),
        ("[" * 100_000, "no JSON: "),
        ("[]", "no baseline: --write-baseline writes one"),
        ('{"version": 1}', "no baseline: --write-baseline writes one"),
        ('{"version": 2, "findings": []}', "its version is 2; this dsconf reads 1"),
        ('{"version": 1, "findings": [1]}', "finding 1 should have code, file and key"),
        ('{"version": 1, "findings": [{"code": "DS104", "file": 1, "key": ""}]}', "finding 1 should have"),
    ],
)
def test_a_bad_baseline(text: str | None, reason: str) -> None:
    write({"a.json": TYPO} | ({} if text is None else {FILE: text}))
    result = dsconf("lint", "a.json", "--baseline", FILE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Invalid value for --baseline: {FILE}: {reason}" in result.stderr


def test_it_is_written_as_a_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write({"a.json": TYPO, FILE: "old"})
    result = dsconf("lint", "a.json", "--write-baseline", "none/x.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: can't write none/x.json: No such file or directory\n"

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", broken)
    assert dsconf("lint", "a.json", "--write-baseline", FILE).exit_code == 2
    assert Path(FILE).read_text() == "old"
    assert sorted(path.name for path in Path().iterdir()) == ["a.json", FILE]


def test_reading_and_writing_at_once() -> None:
    write({"a.json": TYPO, FILE: "{}"})
    result = dsconf("lint", "a.json", "--baseline", FILE, "--write-baseline", FILE)
    assert result.exit_code == 2
    assert "--baseline reads a baseline" in result.stderr
