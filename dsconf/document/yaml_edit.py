"""From changes of entries to edits of a YAML text, which leave everything else as it is written.

Mappings in braces are edited as JSON's objects are, those in lines here. What comes out is checked in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property

from dsconf.document.edit import Change, EditError, value_tree
from dsconf.document.node import Document, Edit, Entry, Node
from dsconf.document.source import Unusable
from dsconf.document.style import Verbatim, blank, line_indent
from dsconf.document.yaml_style import Block, NotWritable, YamlStyle, flow, scalar

_COLON = re.compile(r"[ \t]*:")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n]*")
_TAIL = re.compile(r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?")
_SPACES_TO_END = re.compile(r"[ \t]*(?=[,}\r\n]|\Z)")


class YamlChange(Change):
    """Changes of the entries of a YAML document; an entry is named by the offset at which its key begins.

    What stands behind an alias, has an anchor or a tag, or comes in by `<<` is not changed.
    """

    def __init__(self, document: Document, read: Callable[[str], Document]) -> None:
        """`read` parses a text as the document was parsed."""
        super().__init__(document, read)
        starts = Counter(entry.key_span.start for _, node in document.objects() for entry in node.entries)
        self._shared = {start for start, count in starts.items() if count > 1}

    @cached_property
    def _style(self) -> YamlStyle:
        return YamlStyle(self._document)

    def _find(self, start: int) -> tuple[Node, int, Entry]:
        holder, i, entry = super()._find(start)
        if start in self._shared or not _within(holder, entry):
            raise EditError("this stands in several places")
        return holder, i, entry

    def remove(self, start: int) -> None:
        """Take an entry away, with its line."""
        super().remove(start)

    def insert(self, holder: Node, name: str, value: object) -> None:
        """Add an entry to a mapping. Raises EditError where it is none, has that key, or has no place of its own."""
        text = self._text[holder.span.start : holder.span.end]
        if text.startswith("*") or not all(_within(holder, entry) for entry in holder.entries):
            raise EditError("what stands here comes from somewhere else")
        super().insert(holder, name, value)

    def written(self, start: int) -> Verbatim:
        """The value of an entry, to be inserted elsewhere."""
        entry = self._find(start)[2]
        self._check_bare(entry)
        span = entry.node.span
        text = self._text[span.start : span.end]
        if self._is_block(entry.node):
            return Block(text, self._indent(span.start))
        if "\n" in text:
            raise EditError("a value of several lines")
        return Verbatim(text, "")

    def edits(self) -> tuple[Edit, ...]:
        """The edits, in order. Raises EditError where the text can't be changed so, or would not change."""
        try:
            return super().edits()
        except NotWritable as problem:
            raise EditError(str(problem)) from None

    # ---- one change each -----------------------------------------------------------------------------

    def _removal(self, start: int) -> list[Edit]:
        holder, i, entry = self._find(start)
        self._check_key(holder, entry)
        if self._in_braces(holder):
            return super()._removal(start)
        if self._taken_place(holder) == start:
            return []
        text, end = self._text, entry.span.end
        if holder not in self._inserted and all(
            each.key_span.start in self._removed for each in holder.entries
        ):
            return self._emptying(holder) if i == 0 else []
        if blank(text[text.rfind("\n", 0, start) + 1 : start]):
            return [self._piece(start, end)]
        after = holder.entries[i + 1].key_span.start if i + 1 < len(holder.entries) else end
        if (
            after == end
            or not blank(text[end:after])
            or holder.entries[i + 1].key_span.start in self._removed
        ):
            raise EditError("the line holds more than this")
        return [Edit(start, after, "")]

    def _emptying(self, holder: Node) -> list[Edit]:
        """The removal of all entries at once, which leaves empty braces."""
        text, (start, end) = self._text, holder.span
        before = len(text[:start].rstrip(" \t\r\n"))
        if before and text[before - 1] == ":":
            return [Edit(before, end, " {}")]
        return [Edit(start, end, "{}")]

    def _key(self, like: Entry | None, name: str) -> str:
        quote = "" if like is None else self._quote(like.key_span.start)
        return scalar(name, quote)

    def _renaming(self, start: int, name: str) -> Edit:
        holder, _, entry = self._find(start)
        self._check_key(holder, entry)
        return super()._renaming(start, name)

    def _setting(self, start: int, value: object) -> Edit:
        holder, _, entry = self._find(start)
        self._check_bare(entry)
        span = entry.node.span
        quote = self._quote(span.start)
        if self._in_braces(holder):
            text = flow(value, quote)
            return Edit(*span, text) if span.start < span.end else self._filling(span.end, text)
        text = self._style.after_colon(value, self._indent(start), quote)
        if span.start == span.end:
            return self._filling(span.end, text)
        if text.startswith(" ") and not self._is_block(entry.node):
            return Edit(*span, text[1:])
        return Edit(self._after_colon(entry), span.end, text)

    def _filling(self, at: int, text: str) -> Edit:
        """A value where there was none, with one space between it and the colon."""
        spaces = _SPACES_TO_END.match(self._text, at)
        return Edit(at, spaces.end() if spaces else at, text if text[0] in " \r\n" else f" {text}")

    def _insertion(self, holder: Node) -> list[Edit]:
        members = self._inserted[holder]
        text = self._text
        if self._in_braces(holder) and (holder.entries or not self._may_spread(holder)):
            if not holder.entries:
                inner = ", ".join(self._member(*each, None, "") for each in members)
                return [Edit(*holder.span, f"{{{inner}}}")]
            return super()._insertion(holder)
        if not holder.entries:
            start = len(text[: holder.span.start].rstrip(" "))
            if start and text[start - 1] == ":":
                indent = self._indent(start) + self._style.unit
                lines = [self._style.newline + indent + self._line(*each, None, indent) for each in members]
                return [Edit(start, holder.span.end, "".join(lines))]
            return [
                Edit(*holder.span, self._style.newline.join(self._line(*each, None, "") for each in members))
            ]
        place = self._taken_place(holder)
        like = holder.entries[-1] if place is None else self._find(place)[2]
        indent = self._indent(like.key_span.start)
        between = self._style.newline + indent
        lines = [self._line(*each, like, indent) for each in members]
        if place is not None:
            return [Edit(*like.span, between.join(lines))]
        end = like.span.end
        tail = _TAIL.match(text, end)
        point = tail.end() if tail and tail.group().strip() else end
        return [Edit(point, point, "".join(between + line for line in lines))]

    def _line(self, name: str, value: object, like: Entry | None, indent: str) -> str:
        """An entry of a mapping in lines."""
        return f"{self._key(like, name)}:{self._style.after_colon(value, indent)}"

    def _member(self, name: str, value: object, like: Entry | None, indent: str) -> str:
        return f"{self._key(like, name)}: {flow(value)}"

    def _has_commas(self, holder: Node) -> bool:
        return True

    def _tree_of(self, value: object) -> object:
        text = f"k:{self._style.after_colon(value, '')}\n"
        try:
            document = self._read_alone(text)
        except Unusable as problem:
            raise EditError(problem.message) from None
        return value_tree(document, document.root.entries[0].node)

    def _read_alone(self, text: str) -> Document:
        from dsconf.document.yaml_reader import scan_yaml

        return scan_yaml(self._document.path, text)

    # ---- what stands where ---------------------------------------------------------------------------

    def _in_braces(self, holder: Node) -> bool:
        return self._text.startswith("{", holder.span.start)

    def _may_spread(self, holder: Node) -> bool:
        """Whether empty braces may become lines: they are the file, or stand behind a key of a mapping in lines."""
        if holder is self._document.root:
            return True
        above = (
            (node, entry)
            for _, node in self._document.objects()
            for entry in node.entries
            if entry.node is holder
        )
        return any(
            not self._in_braces(node) and self._text[entry.key_span.end : holder.span.start].strip(" ") == ":"
            for node, entry in above
        )

    def _is_block(self, node: Node) -> bool:
        return node.kind in ("object", "array") and self._text[node.span.start] not in "{["

    def _quote(self, start: int) -> str:
        character = self._text[start : start + 1]
        return character if character in ("'", '"') else ""

    def _indent(self, start: int) -> str:
        """The indentation of what begins there, behind the dash of a list, too; within a line that of the line."""
        text = self._text
        before = text[text.rfind("\n", 0, start) + 1 : start].removeprefix("\ufeff")
        return line_indent(text, start) if before.strip("- ") else " " * len(before)

    def _after_colon(self, entry: Entry) -> int:
        match = _COLON.match(self._text, entry.key_span.end)
        if match is None:
            raise EditError("this key has no colon on its line")
        return match.end()

    def _check_key(self, holder: Node, entry: Entry) -> None:
        """Raises EditError for a key with a question mark, an anchor or a tag before it, or an alias."""
        start = entry.key_span.start
        before = self._text[self._text.rfind("\n", 0, start) + 1 : start].lstrip("\ufeff").rstrip(" ")
        fitting = before.endswith(("{", ",")) if self._in_braces(holder) else not before.strip("- ")
        if (before and not fitting) or self._text.startswith("*", start):
            raise EditError("this key is an alias, or has something before it")

    def _check_bare(self, entry: Entry) -> None:
        """Raises EditError for a value that is an alias or a block scalar, or has an anchor or a tag."""
        text, node = self._text, entry.node
        between = _COMMENT.sub("", text[entry.key_span.end : node.span.start])
        if between.strip(" \t\r\n") not in ("", ":") or text[node.span.start : node.span.start + 1] in (
            "*", "|", ">", "&", "!",
        ):  # fmt: skip
            raise EditError("this value is an alias or a block, or has an anchor or a tag")


def _within(holder: Node, entry: Entry) -> bool:
    return holder.span.start <= entry.key_span.start and entry.span.end <= holder.span.end
