"""The parsed tree: every key and value with the place where it stands.

Offsets are code points from the start of the text, ends exclusive; `Document` turns them into lines and columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

Kind = Literal["object", "array", "string", "number", "boolean", "null", "unknown"]
Path = tuple[str, ...]
"""Keys from the root down; an element of an array is named by its index in decimal."""


class _Unknown:
    """A value that the text does not determine."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


class Span(NamedTuple):
    """A piece of the text: code points from `start` up to, not including, `end`."""

    start: int
    end: int


class Edit(NamedTuple):
    """A replacement of a piece of the text: code points from `start` up to, not including, `end`."""

    start: int
    end: int
    text: str


class Spelling(str):
    """JSON text that is to be written as it stands, such as a number in the spelling of its file."""

    __slots__ = ()


class Node:
    """One value. Its content is in `entries` (objects), `elements` (arrays) or `scalar`.

    The kind "unknown" is what only a run determines: a placeholder of a template, a variable of a script.
    """

    __slots__ = ("elements", "entries", "kind", "open", "scalar", "span")

    def __init__(self, kind: Kind, start: int, scalar: object = None, end: int | None = None) -> None:
        self.kind: Kind = kind
        self.span = Span(start, start if end is None else end)
        self.scalar = scalar
        self.entries: list[Entry] = []
        self.elements: list[Node] = []
        self.open = False
        """Of an object: whether a run may find keys in it that the text does not show."""

    def plain(self) -> object:
        """The value as `json.load` gives it: of a key written twice the last one counts.

        It is UNKNOWN where the node or any element of an array is. The scanner bounds the depth of a tree, so that
        recursion is safe here.
        """
        if self.kind == "object":
            return {entry.key: entry.node.plain() for entry in self.entries}
        if self.kind == "array":
            elements = [element.plain() for element in self.elements]
            return UNKNOWN if any(element is UNKNOWN for element in elements) else elements
        return UNKNOWN if self.kind == "unknown" else self.scalar

    def members(self) -> dict[str, Entry]:
        """The entries that count, by key: of a key written twice the last one."""
        return {entry.key: entry for entry in self.entries}


def named(node: Node) -> str:
    """The kind of a value in words."""
    return {"array": "an array", "null": "null", "unknown": "a placeholder"}.get(node.kind, f"a {node.kind}")


class Entry(NamedTuple):
    """One `"key": value` of an object."""

    key: str
    key_span: Span
    node: Node

    @property
    def span(self) -> Span:
        """From the start of the key to the end of the value."""
        return Span(self.key_span.start, self.node.span.end)


class Relaxation(NamedTuple):
    """Something that DeepSpeed (which reads HJSON) accepts and `json.load` refuses."""

    what: str
    span: Span


class Misread(NamedTuple):
    """Text without quotes that HJSON reads as something else than its writer most likely meant."""

    node: Node | None
    """The value; None where it is a key."""
    span: Span
    text: str
    """What HJSON reads."""
    meant: str | None
    """What was meant, as JSON; None where that is open."""
    why: str
    """What is wrong with it, in words."""


class Reading(NamedTuple):
    """What a reader made of a text: the tree and all that is remarkable about the way to it."""

    root: Node
    relaxations: list[Relaxation]
    """What `json.load` refuses, in the order of the text; empty where it reads the same."""
    placeholders: list[Span]
    """What is filled in before anybody reads the text. Where there are any, the file is a template."""
    misreadings: list[Misread]


class Document:
    """A parsed file: its text, its tree, and the places of both."""

    __slots__ = (
        "_line_starts",
        "language",
        "misreadings",
        "path",
        "placeholders",
        "relaxations",
        "root",
        "text",
    )

    def __init__(
        self, path: str, text: str, reading: Reading, *, language: Literal["json", "python", "yaml"] = "json"
    ) -> None:
        self.path = path
        self.language = language
        self.text = text
        self.root, self.relaxations, self.placeholders, self.misreadings = reading
        self._line_starts = line_starts(text)

    def misread(self, node: Node) -> Misread | None:
        """What is known of a value that HJSON reads as something else than was meant; None for all others."""
        for each in self.misreadings:
            if each.node is node:
                return each
        return None

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column (code points) of an offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its end."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def entry(self, path: Path) -> Entry | None:
        """The entry that counts at a path of object keys, or None where nothing stands."""
        node, found = self.root, None
        for key in path:
            if node.kind != "object":
                return None
            found = node.members().get(key)
            if found is None:
                return None
            node = found.node
        return found

    def objects(self) -> Iterator[tuple[Path, Node]]:
        """Every object with its path, in the order of the text."""
        stack: list[tuple[Path, Node]] = [((), self.root)]
        while stack:
            path, node = stack.pop()
            below: Iterable[tuple[str, Node]]
            if node.kind == "object":
                yield path, node
                below = ((entry.key, entry.node) for entry in reversed(node.entries))
            else:
                below = ((str(i), node.elements[i]) for i in reversed(range(len(node.elements))))
            stack += [((*path, key), inner) for key, inner in below if inner.kind in ("object", "array")]


def line_starts(text: str) -> list[int]:
    """Offsets at which the lines of `text` begin (lines end with \\n; \\r\\n counts as one end)."""
    starts, at = [0], text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts
