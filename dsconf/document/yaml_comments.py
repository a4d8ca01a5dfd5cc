"""Finds the comments of a YAML text, and the tabs that PyYAML refuses, between the scalars that a parser found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dsconf.document.node import Relaxation, Span

_TOKEN = re.compile(r"[&*!%][^\s,\[\]{}]*|(?P<comment>\#[^\r\n]*)|(?P<tab>\t)")
_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(\#[^\r\n]*)?")


class StrayTab(Exception):
    """A tab where YAML wants spaces."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


def comments(text: str, scalars: Iterable[tuple[Span, str | None]]) -> list[Relaxation]:
    """Every comment, in order. `scalars` are the places and styles of all scalars, in order.

    Raises StrayTab for a tab that is no part of a comment or of a text in quotes.
    """
    if "#" not in text and "\t" not in text:
        return []
    found = []
    for start, end in _gaps(text, scalars):
        for match in _TOKEN.finditer(text, start, end):
            if match.lastgroup == "comment":
                found.append(Relaxation("a comment", Span(*match.span())))
            elif match.lastgroup == "tab":
                raise StrayTab(Span(*match.span()))
    return found


def _gaps(text: str, scalars: Iterable[tuple[Span, str | None]]) -> Iterator[Span]:
    """The pieces of the text that are no text of scalars in quotes or blocks; plain ones hold no comments."""
    at = 0
    for (start, end), style in scalars:
        if style is None and "\t" not in text[start:end]:
            yield Span(at, start)
        elif style in ("|", ">"):
            header = _HEADER.match(text, start)
            yield Span(at, start)
            if header is not None and header[1]:
                yield Span(*header.span(1))
        elif style is not None:
            yield Span(at, start)
        else:
            yield Span(at, start)
            tab = text.index("\t", start, end)
            yield Span(tab, tab + 1)
        at = max(at, end)
    yield Span(at, len(text))
