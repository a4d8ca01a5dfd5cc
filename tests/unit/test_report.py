"""The reports for people: fixtures/ok stays silent, fixtures/err looks as the snapshots say."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from examples import ROOT, lint_json
from syrupy.assertion import SnapshotAssertion

from dsconf.cli import main
from dsconf.config.context import CONSUMERS
from dsconf.document.node import line_starts
from dsconf.lint.finding import Finding, Place, Related, printable
from dsconf.lint.report.full import _block

FIXTURES = ROOT / "fixtures"
# With which options a file is linted beside none at all.
OK = {
    "all_sections.json": ["--world-size", "8", "--consumer", "deepspeed"],
    "fp16_dynamic.json": ["--world-size", "64"],
    "hjson.json": ["--world-size", "8", "--consumer", "deepspeed"],
    "monitors.json": ["--world-size", "8", "--consumer", "accelerate"],
    "nvme.json": ["--world-size", "1", "--consumer", "deepspeed"],
    "offload_optimizer.json": ["--world-size", "8", "--consumer", "lightning"],
    "other_spellings.json": ["--world-size", "64", "--consumer", "deepspeed"],
    "trainer_auto.json": ["--world-size", "8", "--consumer", "trainer"],
    "zero3_bf16.json": ["--world-size", "16", "--consumer", "deepspeed"],
}
ERR = {
    "batch.json": ["--world-size", "8"],
    "comment.json": ["--consumer", "trainer"],
    "crlf.json": [],
    "duplicates.json": ["--consumer", "deepspeed"],
    "indivisible.json": ["--world-size", "8"],
    "keys.json": [],
    "minified.json": [],
    "missing_comma.json": [],
    "no_batch.json": [],
    "offload.json": [],
    "python.json": [],
    "sections.json": [],
    "tabs.json": [],
    "unclosed.json": [],
    "utf16.json": [],
    "wide.json": [],
}


def report(name: str, *args: str) -> str:
    result = CliRunner().invoke(main, ["lint", name, *args])
    assert isinstance(result.exception, SystemExit | None)
    return result.stdout


@pytest.fixture
def _in_err(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES / "err")


def test_every_fixture_is_listed() -> None:
    assert sorted(path.name for path in (FIXTURES / "ok").iterdir()) == sorted(OK)
    assert sorted(path.name for path in (FIXTURES / "err").iterdir()) == sorted(ERR)


def test_line_ends_and_encodings_survived_version_control() -> None:
    assert (FIXTURES / "err" / "crlf.json").read_bytes().count(b"\r\n") == 11
    assert (FIXTURES / "err" / "utf16.json").read_bytes()[:2] in (b"\xff\xfe", b"\xfe\xff")
    assert b"\n" not in (FIXTURES / "err" / "minified.json").read_bytes()
    assert b"\t" in (FIXTURES / "err" / "tabs.json").read_bytes()


@pytest.mark.parametrize("name", OK)
def test_ok(name: str) -> None:
    for args in ([], OK[name]):
        status, found = lint_json(FIXTURES / "ok" / name, *args)
        serious = [finding for finding in found["findings"] if finding["severity"] != "info"]
        assert (status, serious, found["files"]) == (0, [], 1)


@pytest.mark.usefixtures("_in_err")
@pytest.mark.parametrize("name", ERR)
def test_full(name: str, snapshot: SnapshotAssertion) -> None:
    assert report(name, *ERR[name]) == snapshot


@pytest.mark.usefixtures("_in_err")
def test_concise(snapshot: SnapshotAssertion) -> None:
    result = CliRunner().invoke(main, ["lint", *sorted(ERR), "--output-format", "concise"])
    assert result.exit_code == 2
    assert result.stdout == snapshot


@pytest.mark.usefixtures("_in_err")
@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("name", ERR)
def test_every_fixture_is_wrong_for_everyone(name: str, consumer: str) -> None:
    status, found = lint_json(name, "--consumer", consumer)
    if (name, consumer) == ("missing_comma.json", "deepspeed"):
        assert (status, found["findings"]) == (0, [])  # HJSON needs no commas
    elif (name, consumer) in {("no_batch.json", "trainer"), ("no_batch.json", "accelerate")}:
        assert (status, [finding["severity"] for finding in found["findings"]]) == (0, ["info"])
    else:
        assert status in (1, 2)


def test_demo() -> None:
    """What the README shows."""
    assert lint_json(FIXTURES / "demo" / "ds_config.json", "--world-size", "8")[1]["findings"] == []
    _, found = lint_json(FIXTURES / "demo" / "broken.json", "--world-size", "8")
    assert [finding["code"] for finding in found["findings"]] == [
        "DS201",
        "DS104",
        "DS601",
        "DS106",
        "DS105",
        "DS501",
    ]


# --- the excerpt -------------------------------------------------------------------------------------------------


def excerpt(text: str, *places: tuple[int, int, int]) -> list[str]:
    """The report of a finding at the first (line, column, end column), with the others related."""
    first, *others = (Place("x.json", line, column, line, end) for line, column, end in places)
    related = tuple(Related(place, "here") for place in others)
    finding = Finding("DS1", "x", "error", None, first, "", "m", related=related)
    return list(_block(finding, text, line_starts(text)))[2:]


def test_marks_stand_below_what_they_mark() -> None:
    assert excerpt("ab cd\nef", (1, 4, 6)) == ["  |", "1 | ab cd", "  |    ^^", "  |"]


@pytest.mark.parametrize(
    ("line", "column", "shown", "marks"),
    [
        ("\tab", 2, "    ab", "    ^"),
        ("a\tb", 3, "a    b", "     ^"),
        ("a\tb", 2, "a    b", " ^^^^"),
        ("中文a", 3, "中文a", "    ^"),
        ("a中", 2, "a中", " ^^"),
        ("😀a", 2, "😀a", "  ^"),
        ("e\u0301a", 3, "e\u0301a", " ^"),
        ("\x1ba", 2, "\ufffda", " ^"),
        ("\u202ea", 2, "\ufffda", " ^"),
        ("\u00a0a", 2, "\ufffda", " ^"),
    ],
)
def test_columns_of_a_terminal(line: str, column: int, shown: str, marks: str) -> None:
    assert excerpt(line, (1, column, column + 1)) == ["  |", f"1 | {shown}", f"  | {marks}", "  |"]


def test_two_marks_in_a_line_share_it() -> None:
    assert excerpt("ab cd", (1, 4, 6), (1, 1, 3)) == ["  |", "1 | ab cd", "  | -- here", "  |    ^^", "  |"]


def test_marks_of_a_long_line_that_are_near_each_other_share_an_excerpt() -> None:
    text = "a" * 100 + "B" * 5 + "c" * 90 + "D" * 5 + "e" * 100
    lines = excerpt(text, (1, 101, 106), (1, 196, 201))
    assert lines[1] == f"1 | ...{'a' * 20}BBBBB{'c' * 90}DDDDD..."
    assert lines[2:4] == [f"  | {' ' * 23}^^^^^", f"  | {' ' * 118}----- here"]


def test_long_lines_are_cut_around_each_mark() -> None:
    text = "a" * 100 + "B" * 5 + "c" * 300 + "D" * 5 + "e" * 100
    lines = excerpt(text, (1, 101, 106), (1, 406, 411))
    assert lines[1] == f"1 | ...{'a' * 20}BBBBB{'c' * 95}..."
    assert lines[2] == f"  | {' ' * 23}^^^^^"
    assert lines[3] == f"1 | ...{'c' * 20}DDDDD{'e' * 95}..."
    assert lines[4] == f"  | {' ' * 23}----- here"


def test_the_ends_of_a_long_line_are_shown_whole() -> None:
    text = "A" + "b" * 200 + "C"
    assert excerpt(text, (1, 1, 2))[1:3] == [f"1 | A{'b' * 119}...", "  | ^"]
    assert excerpt(text, (1, 202, 203))[1:3] == [f"1 | ...{'b' * 119}C", f"  | {' ' * 122}^"]


def test_a_mark_longer_than_the_screen_is_cut() -> None:
    shown, marks = excerpt("a" * 10 + "b" * 300, (1, 11, 311))[1:3]
    assert shown == f"1 | {'a' * 10}{'b' * 110}..."
    assert marks == f"  | {' ' * 10}{'^' * 110}"


@pytest.mark.parametrize(("text", "place"), [("", (1, 1, 1)), ("a", (1, 2, 2)), ("a\r\nb", (1, 2, 2))])
def test_there_is_always_a_mark(text: str, place: tuple[int, int, int]) -> None:
    assert "^" in excerpt(text, place)[2]


def test_line_numbers_are_aligned() -> None:
    text = "\n".join("abcdefghijkl")
    assert excerpt(text, (11, 1, 2), (2, 1, 2)) == [
        "   |",
        " 2 | b",
        "   | - here",
        "11 | k",
        "   | ^",
        "   |",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é😀 x", "é😀 x"),
        ("a\nb\x1b", "a\\nb\\u001b"),
        ("\ud800", "\\ud800"),
        ("\u202e\u00a0", "\\u202e\\u00a0"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_snapshots_hold_no_paths_of_this_machine() -> None:
    text = (Path(__file__).parent / "__snapshots__" / "test_report.ambr").read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
