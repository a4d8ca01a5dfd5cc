"""The report for a terminal: every finding with its lines of the file, marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from dsconf.document.node import line_starts
from dsconf.lint.finding import Finding, Place, Result, printable
from dsconf.lint.report.summary import fix_mark, summary

_WIDEST = 120
_BEFORE = 20
"""Characters that a cut line keeps before its mark."""
_TAB = " " * 4
_CUT = "..."
_CONSEQUENCES = {
    "parse": "the run stops when the file is read",
    "launch": "accelerate launch stops before it starts the ranks",
    "init": "every rank stops as it sets training up",
    "step": "every rank stops in the first optimizer step",
    "save": "the run stops when it saves",
}


class _Mark(NamedTuple):
    place: Place
    sign: str
    note: str


def render(results: Sequence[Result]) -> str:
    """All findings, each with an excerpt, then the summary."""
    blocks = []
    for result in results:
        starts = line_starts(result.text) if result.text is not None else []
        blocks += ["\n".join(_block(finding, result.text or "", starts)) for finding in result.findings]
    return "\n\n".join([*blocks, "\n".join(summary(results))])


def _block(finding: Finding, text: str, starts: list[int]) -> Iterator[str]:
    place = finding.place
    yield f"{finding.code} {finding.severity}: {finding.message}{fix_mark(finding)}"
    yield f"  --> {printable(place.file)}:{place.line}:{place.column}"
    marks = [_Mark(place, "^", "")]
    marks += [
        _Mark(related.place, "-", related.message)
        for related in finding.related
        if related.place.file == place.file
    ]
    marks.sort(key=lambda mark: (mark.place.line, mark.place.column))
    width = len(str(max(mark.place.line for mark in marks)))
    edge = " " * (width + 1) + "|"
    if starts:
        yield edge
        for number, group in groupby(marks, key=lambda mark: mark.place.line):
            end = starts[number] if number < len(starts) else len(text)
            line = text[starts[number - 1] : end].rstrip("\r\n")
            window: range | None = None
            for mark in group:
                begin, end = _columns_of(mark.place, line)
                if window is None or begin not in window or end - 1 not in window:
                    window = _window(begin, line)
                    yield f"{number:>{width}} | {_excerpt(line, window)}"
                yield f"{edge} {_signs(mark.sign, begin, end, line, window)} {mark.note}".rstrip()
        yield edge
    for related in finding.related:
        if related.place.file != place.file:
            at = f"{printable(related.place.file)}:{related.place.line}:{related.place.column}"
            yield f"{' ' * (width + 1)}= see {at}: {related.message}"
    if finding.fails in _CONSEQUENCES:
        yield f"{' ' * (width + 1)}= {_CONSEQUENCES[finding.fails]}"
    if finding.help:
        yield f"{' ' * (width + 1)}= help: {finding.help}"


def _columns_of(place: Place, line: str) -> tuple[int, int]:
    """Where a mark begins and ends in its first line, from 0; it is never empty."""
    begin = place.column - 1
    end = place.end_column - 1 if place.end_line == place.line else len(line)
    return begin, max(begin + 1, end)


def _window(begin: int, line: str) -> range:
    """The columns that are shown of a line: all, or as many as a screen takes around a mark."""
    first = max(0, min(begin - _BEFORE, len(line) - _WIDEST))
    return range(first, first + _WIDEST)


def _excerpt(line: str, window: range) -> str:
    head = _CUT if window.start else ""
    tail = _CUT if window.stop < len(line) else ""
    return f"{head}{_visible(line[window.start : window.stop])}{tail}"


def _signs(sign: str, begin: int, end: int, line: str, window: range) -> str:
    """The signs that go below an excerpt."""
    pad = len(_CUT if window.start else "") + sum(map(_columns, line[window.start : begin]))
    return " " * pad + sign * max(1, sum(map(_columns, line[begin : min(end, window.stop)])))


def _visible(line: str) -> str:
    """The line with spaces for a tab, and a sign in place of each other character that a terminal would act on."""
    if line.isprintable():
        return line
    line = line.replace("\t", _TAB)
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )


def _columns(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if character.isascii():
        return len(_TAB) if character == "\t" else 1
    from unicodedata import combining, east_asian_width

    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
