"""How a file is laid out: its line ends, its indentation, its spaces, and values written in the same way."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from dsconf.document.node import Document, Spelling


class Verbatim(NamedTuple):
    """A value as it is written elsewhere in the file, on a line of this indentation."""

    text: str
    indent: str


class Style:
    """The layout that a document has, for what is added to it."""

    def __init__(self, document: Document) -> None:
        text = document.text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.spread = False
        """Whether objects have a line for each key."""
        self.sections_on_one_line = False
        """Whether an object below the top level stands on one line."""
        self.unit = "  "
        self.colon = ": "
        self.comma = ", "
        for path, node in document.objects():
            if not node.entries:
                continue
            first = node.entries[0]
            if not path:
                compact = text[first.key_span.end : first.node.span.start] == ":"
                self.colon, self.comma = (":", ",") if compact else (": ", ", ")
            if not starts_line(text, first.key_span.start):
                self.sections_on_one_line |= bool(path)
            elif not self.spread:
                self.spread = True
                inner = line_indent(text, first.key_span.start)
                self.unit = inner.removeprefix(line_indent(text, node.span.start)) or self.unit

    def render(self, value: Any, indent: str, spread: bool) -> str:
        """A value as JSON; an object has a line for each key where `spread`, below a line of `indent`."""
        if isinstance(value, Spelling):
            return str(value)
        if isinstance(value, Verbatim):
            return _reindented(value.text, value.indent, indent)
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        inner = indent + self.unit
        members = [
            f"{json.dumps(name, ensure_ascii=False)}{self.colon}{self.render(below, inner, spread)}"
            for name, below in value.items()
        ]
        if not spread or not members:
            return f"{{{self.comma.join(members)}}}"
        lines = f",{self.newline}{inner}".join(members)
        return f"{{{self.newline}{inner}{lines}{self.newline}{indent}}}"


def _reindented(text: str, old: str, new: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join(
        [first, *(new + line.removeprefix(old) if line.startswith(old) else line for line in rest)]
    )


def blank(text: str) -> bool:
    """Whether nothing but spaces and line ends stands there."""
    return not text.strip(" \t\r\n\ufeff")


def line_indent(text: str, at: int) -> str:
    """The spaces and tabs with which the line of an offset begins."""
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def starts_line(text: str, at: int) -> bool:
    """Whether only spaces and tabs stand before an offset on its line, and a line above."""
    line = text.rfind("\n", 0, at) + 1
    return line > 0 and not text[line:at].strip(" \t")
