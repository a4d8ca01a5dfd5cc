"""The report for a terminal: every finding with its lines of the file, marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsconf.document.node import line_starts
from dsconf.lint.engine import Result
from dsconf.lint.finding import Finding, Place
from dsconf.lint.report.summary import summary

_WIDEST = 120
_CONSEQUENCES = {
    "parse": "DeepSpeed stops every rank when it reads the file",
    "init": "deepspeed.initialize stops every rank",
    "step": "the first step stops every rank",
}


def render(results: Sequence[Result]) -> str:
    """All findings, each with an excerpt, then the summary."""
    blocks = []
    for result in results:
        starts = line_starts(result.text) if result.text is not None else []
        blocks += ["\n".join(_block(finding, result.text or "", starts)) for finding in result.findings]
    return "\n\n".join([*blocks, "\n".join(summary(results))])


def _block(finding: Finding, text: str, starts: list[int]) -> Iterator[str]:
    place = finding.place
    yield f"{finding.code} {finding.severity}: {finding.message}"
    yield f"  --> {place.file}:{place.line}:{place.column}"
    marks = [(place, "^", "")]
    marks += [
        (related.place, "-", related.message)
        for related in finding.related
        if related.place.file == place.file
    ]
    marks.sort(key=lambda mark: (mark[0].line, mark[0].column))
    width = len(str(max(mark[0].line for mark in marks)))
    edge = " " * (width + 1) + "|"
    if starts:
        yield edge
        for at, sign, note in marks:
            line, marker = _excerpt(at, sign, text, starts)
            yield f"{at.line:>{width}} | {line}"
            yield f"{edge} {marker}{' ' + note if note else ''}".rstrip()
        yield edge
    if finding.rule not in ("json-syntax", "unreadable-file") and finding.fails in _CONSEQUENCES:
        yield f"{' ' * (width + 1)}= {_CONSEQUENCES[finding.fails]}"
    if finding.help:
        yield f"{' ' * (width + 1)}= help: {finding.help}"


def _excerpt(at: Place, sign: str, text: str, starts: list[int]) -> tuple[str, str]:
    """The line of a place, cut to the width of a screen, and the line of marks below it."""
    end = starts[at.line] if at.line < len(starts) else len(text)
    line = text[starts[at.line - 1] : end].rstrip("\r\n")
    first = at.column - 1
    last = at.end_column - 1 if at.end_line == at.line else len(line)
    last = max(first + 1, last)
    if len(line) > _WIDEST:
        begin = max(0, first - 20)
        cut = line[begin : begin + _WIDEST]
        head, tail = "..." if begin else "", "..." if begin + _WIDEST < len(line) else ""
        first, last = first - begin + len(head), min(last - begin, _WIDEST) + len(head)
        line = f"{head}{cut}{tail}"
    pad = "".join("\t" if character == "\t" else " " for character in line[:first])
    return line, pad.ljust(first) + sign * (last - first)
