"""Where configs stand inside other files: fenced blocks of Markdown and heredocs of shell scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsconf.document.node import Span

_FENCE = re.compile(
    r"^(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)\n(?P<body>.*?)^[ \t>]*(?P=fence)[`~]*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_JSON_INFO = re.compile(r"\{?\.?(json|jsonc|json5|hjson|js|javascript|text|txt|none)?\b", re.IGNORECASE)
_HEREDOC = re.compile(
    r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"\\]?)(?P<word>[A-Za-z_][A-Za-z0-9_]*)['\"]?(?P<rest>[^\n]*)\n"
)


def fenced_blocks(text: str) -> Iterator[Span]:
    """The bodies of fenced blocks that may hold JSON: an object in a block of that language, or of none."""
    for match in _FENCE.finditer(text):
        language = match["info"].split()[:1]
        if not language or _JSON_INFO.fullmatch(language[0].rstrip("},")):
            yield from _object(text, *match.span("body"))


def heredocs(text: str) -> Iterator[Span]:
    """The bodies of here documents of a shell script that hold an object."""
    at = 0
    while (match := _HEREDOC.search(text, at)) is not None:
        tabs = r"\t*" if match["dash"] else ""
        end = re.compile(rf"^{tabs}{re.escape(match['word'])}$", re.MULTILINE).search(text, match.end())
        if end is None:
            at = match.end()
            continue
        yield from _object(text, match.end(), end.start())
        at = end.end()


def _object(text: str, start: int, end: int) -> Iterator[Span]:
    """The body without the white space around it, where it begins and ends as an object does."""
    body = text[start:end]
    start += len(body) - len(body.lstrip())
    end -= len(body) - len(body.rstrip())
    if text[start : start + 1] == "{" and text[end - 1 : end] == "}":
        yield Span(start, end)
