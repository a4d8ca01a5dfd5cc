"""From changes of entries to edits of the text, which leave everything else as it is written.

What comes out is checked: the edited text is read again, and has to hold exactly the tree that was meant, every
number in its old spelling and every comment.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise

from dsconf.document.node import Document, Edit, Entry, Node, Span
from dsconf.document.source import Unusable
from dsconf.document.style import Style, Verbatim, blank, line_indent, starts_line

_COMMA_OR_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/|,", re.DOTALL)
_REST_OF_LINE = re.compile(r"(?:[ \t]*(?://[^\r\n]*|#[^\r\n]*|/\*[^\n]*?\*/))*")
_SPACES = re.compile(r"[ \t]*")
_LINE_END = re.compile(r"\r?\n|\Z")
_WORD = re.compile(r"\w+", re.ASCII)


class EditError(Exception):
    """A change that can't be written, or that would touch more than it should."""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text after edits that don't overlap, in their order."""
    pieces, at = [], 0
    for edit in edits:
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


class Change:
    """Changes of the entries of a document; an entry is named by the offset at which its key begins."""

    def __init__(self, document: Document, read: Callable[[str], Document]) -> None:
        """`read` parses a text as the document was parsed."""
        self._document = document
        self._read = read
        self._text = document.text
        self._holders = {
            entry.key_span.start: (node, i)
            for _, node in document.objects()
            for i, entry in enumerate(node.entries)
        }
        self._removed: set[int] = set()
        self._renamed: dict[int, str] = {}
        self._set: dict[int, object] = {}
        self._inserted: dict[Node, list[tuple[str, object]]] = {}

    @cached_property
    def _style(self) -> Style:
        return Style(self._document)  # only what is added has to look like the rest

    def _find(self, start: int) -> tuple[Node, int, Entry]:
        if start not in self._holders:
            raise EditError("no key begins there")
        holder, i = self._holders[start]
        return holder, i, holder.entries[i]

    def written_twice(self, start: int) -> bool:
        """Whether the object of an entry has another one of the same key."""
        holder, _, entry = self._find(start)
        return sum(each.key == entry.key for each in holder.entries) > 1

    def remove(self, start: int) -> None:
        """Take an entry away, with its comma and its line."""
        self._find(start)
        self._removed.add(start)

    def rename(self, start: int, name: str) -> None:
        """Give an entry another key. Raises EditError where its object has that key."""
        holder = self._find(start)[0]
        if name in holder.members():
            raise EditError(f'"{name}" is written already')
        self._renamed[start] = name

    def set(self, start: int, value: object) -> None:
        """Give an entry another value."""
        self._find(start)
        self._set[start] = value

    def insert(self, holder: Node, name: str, value: object) -> None:
        """Add an entry to an object. Raises EditError where it is none, or has that key."""
        if holder.kind != "object" or name in holder.members():
            raise EditError(f'"{name}" can\'t be added')
        self._inserted.setdefault(holder, []).append((name, value))

    def written(self, start: int) -> Verbatim:
        """The value of an entry, to be inserted elsewhere."""
        entry = self._find(start)[2]
        span = entry.node.span
        return Verbatim(self._text[span.start : span.end], line_indent(self._text, start))

    def edits(self) -> tuple[Edit, ...]:
        """The edits, in order. Raises EditError where the text can't be changed so, or would not change."""
        edits = [edit for start in sorted(self._removed) for edit in self._removal(start)]
        edits += [self._renaming(start, name) for start, name in self._renamed.items()]
        edits += [self._setting(start, value) for start, value in self._set.items()]
        # Objects that end at the same place lie in one another: what is added to the inner one comes first.
        inner_first = sorted(self._inserted, key=lambda holder: -holder.span.start)
        edits += [edit for holder in inner_first for edit in self._insertion(holder)]
        edits.sort(key=lambda edit: (edit.start, edit.end))
        if any(left.end > right.start for left, right in pairwise(edits)):
            raise EditError("the changes overlap")
        text = apply(self._text, edits)
        if text == self._text:
            raise EditError("nothing would change")
        self._check(text)
        return tuple(edits)

    # ---- one change each -----------------------------------------------------------------------------

    def _removal(self, start: int) -> list[Edit]:
        holder, i, entry = self._find(start)
        if self._taken_place(holder) == start:
            return []
        text, end = self._text, entry.span.end
        first, last = inside(self._text, holder)
        before = holder.entries[i - 1].span.end if i else first
        after = holder.entries[i + 1].key_span.start if i + 1 < len(holder.entries) else last
        if len(holder.entries) == 1 and blank(text[first:start]) and blank(text[end:last].replace(",", "")):
            return [Edit(first, last, "")]
        comma = self._comma(end, after)
        if comma is not None:
            if blank(text[end:comma]):
                return [self._piece(start, comma + 1)]
            return [self._piece(start, end), Edit(comma, comma + 1, "")]
        comma = self._comma(before, start)
        if comma is None:
            return [self._piece(start, end)]
        if blank(text[comma + 1 : start]) and _rest_of_line(text, end) == end:
            return [Edit(comma, end, "")]
        return [Edit(comma, comma + 1, ""), self._piece(start, end)]

    def _piece(self, start: int, end: int) -> Edit:
        """The removal of a piece with its line where nothing else stands there, else with the spaces beside it."""
        text = self._text
        tail = _end_of(_SPACES, text, end)
        line_end = _LINE_END.match(text, tail)
        line = text.rfind("\n", 0, start) + 1
        if line_end is None:
            return Edit(start, tail, "")
        if blank(text[line:start]):
            return Edit(line, line_end.end(), "")
        return Edit(line + len(text[line:start].rstrip(" \t")), end, "")

    def _renaming(self, start: int, name: str) -> Edit:
        entry = self._find(start)[2]
        return Edit(*entry.key_span, self._key(entry, name))

    def _key(self, like: Entry | None, name: str) -> str:
        """A key in quotes, or without where a key like it has none."""
        bare = like is not None and self._text[like.key_span.start] not in "\"'"
        return name if bare and _WORD.fullmatch(name) else json.dumps(name, ensure_ascii=False)

    def _setting(self, start: int, value: object) -> Edit:
        entry = self._find(start)[2]
        return Edit(*entry.node.span, self._value(value, start))

    def _value(self, value: object, start: int) -> str:
        """A value as it is written beside the key that begins at `start`."""
        spread = starts_line(self._text, start) and not self._style.sections_on_one_line
        return self._style.render(value, line_indent(self._text, start), spread)

    def _insertion(self, holder: Node) -> list[Edit]:
        text, style = self._text, self._style
        first, last = inside(text, holder)
        members = self._inserted[holder]
        if not holder.entries:
            indent = line_indent(text, holder.span.start)
            if not style.spread:
                return [
                    Edit(first, last, style.comma.join(self._member(*each, None, "") for each in members))
                ]
            inner = style.newline + indent + style.unit
            lines = f",{inner}".join(self._member(*each, None, indent + style.unit) for each in members)
            return [Edit(first, last, f"{inner}{lines}{style.newline}{indent}")]
        place = self._taken_place(holder)
        like = holder.entries[-1] if place is None else self._find(place)[2]
        start, end = like.span
        spread = starts_line(text, start)
        indent = line_indent(text, start)
        texts = [self._member(*each, like, indent) for each in members]
        between = style.newline + indent if spread else self._gap(holder)
        if place is not None:
            return [Edit(start, end, f",{between}".join(texts))]
        comma = self._comma(end, last)
        if comma is None and not self._has_commas(holder):
            if not spread:
                raise EditError("an object without commas on one line")
            point = _rest_of_line(text, end)
            return [Edit(point, point, "".join(between + each for each in texts))]
        added = between + f",{between}".join(texts)
        if comma is not None:
            point = _rest_of_line(text, comma + 1) if spread else comma + 1
            return [Edit(point, point, f"{added},")]
        point = _rest_of_line(text, end) if spread else end
        if point == end:
            return [Edit(end, end, f",{added}")]
        return [Edit(end, end, ","), Edit(point, point, added)]

    def _member(self, name: str, value: object, like: Entry | None, indent: str) -> str:
        colon = self._style.colon
        if like is not None:
            written = self._text[like.key_span.end : like.node.span.start]
            colon = written if blank(written.replace(":", "", 1)) and "\n" not in written else colon
            spread = starts_line(self._text, like.key_span.start)
        else:
            spread = self._style.spread
        value_text = self._style.render(value, indent, spread and not self._style.sections_on_one_line)
        return f"{self._key(like, name)}{colon}{value_text}"

    def _gap(self, holder: Node) -> str:
        """What stands between a comma and the next key in an object on one line."""
        if len(holder.entries) > 1:
            left, right = holder.entries[-2:]
            comma = self._comma(left.span.end, right.key_span.start)
            gap = self._text[(left.span.end if comma is None else comma + 1) : right.key_span.start]
            if blank(gap) and "\n" not in gap:
                return gap
        return self._style.comma[1:]

    def _has_commas(self, holder: Node) -> bool:
        """Whether an entry behind the last one needs a comma: HJSON does without, and reads one as part of a text."""
        last = holder.entries[-1]
        if last.node.kind in ("string", "unknown") and self._text[last.node.span.start] not in "\"'":
            return False
        if len(holder.entries) == 1:
            return True
        return self._comma(holder.entries[-2].span.end, last.key_span.start) is not None

    def _comma(self, start: int, end: int) -> int | None:
        """The place of the comma between two entries, or behind the last one."""
        for match in _COMMA_OR_COMMENT.finditer(self._text, start, end):
            if match.group() == ",":
                return match.start()
        return None

    def _taken_place(self, holder: Node) -> int | None:
        """The removed entry whose place inserted ones take."""
        if holder not in self._inserted:
            return None
        removed = [entry.key_span.start for entry in holder.entries if entry.key_span.start in self._removed]
        return removed[-1] if removed else None

    # ---- the check -----------------------------------------------------------------------------------

    def _check(self, text: str) -> None:
        """Raises EditError unless the text holds what is meant."""
        try:
            after = self._read(text)
        except Unusable as problem:
            raise EditError(problem.message) from None
        if value_tree(after, after.root) != value_tree(self._document, self._document.root, self):
            raise EditError("the text would hold something else")
        if _comments(after) != _comments(self._document):
            raise EditError("a comment would change")
        allowed = Counter(what for what, _ in self._document.relaxations)
        if Counter(what for what, _ in after.relaxations) - allowed:
            raise EditError("the text would be less strict")

    def meant(self, node: Node) -> list[object]:
        """The tree of an object after the change."""
        found: list[object] = []
        place = self._taken_place(node)
        added = [(name, self._tree_of(value)) for name, value in self._inserted.get(node, ())]
        for entry in node.entries:
            start = entry.key_span.start
            if start == place:
                found += added
            elif start not in self._removed:
                if start in self._set:
                    below = self._tree_of(self._set[start])
                else:
                    below = value_tree(self._document, entry.node, self)
                found.append((self._renamed.get(start, entry.key), below))
        return found if place is not None else found + added

    def _tree_of(self, value: object) -> object:
        document = self._read(f'{{"": {self._style.render(value, "", False)}\n}}')
        return value_tree(document, document.root.entries[0].node)


def inside(text: str, node: Node) -> Span:
    """The inside of an object, between its braces where it has any."""
    start, end = node.span
    return Span(start + 1, end - 1) if text[start : start + 1] == "{" else node.span


def _rest_of_line(text: str, at: int) -> int:
    """Where the comments end that follow on the same line, `at` where none does."""
    return _end_of(_REST_OF_LINE, text, at)


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def value_tree(document: Document, node: Node, change: Change | None = None) -> object:
    """A value to compare by: keys in order, duplicates kept, numbers as they are spelt."""
    if node.kind == "object":
        if change is not None:
            return change.meant(node)
        return [(entry.key, value_tree(document, entry.node)) for entry in node.entries]
    if node.kind == "array":
        return ["array", *(value_tree(document, element, change) for element in node.elements)]
    if node.kind in ("number", "unknown"):
        return node.kind, document.text[node.span.start : node.span.end]
    return node.kind, node.scalar


def _comments(document: Document) -> Counter[str]:
    return Counter(
        document.text[start:end].rstrip() for what, (start, end) in document.relaxations if "comment" in what
    )
