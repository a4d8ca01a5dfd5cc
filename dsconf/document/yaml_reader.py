"""From a YAML text to a Document, with the values that PyYAML's safe_load gives, on ruamel.yaml's parser.

Trainers and launchers read YAML with PyYAML; ruamel.yaml has its parser, with places for everything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dsconf.document.node import Document, Entry, Kind, Node, Reading, Span, named
from dsconf.document.source import Unusable
from dsconf.document.template import is_open
from dsconf.document.tokens import MAX_DEPTH, short
from dsconf.document.yaml_comments import StrayTab, comments
from dsconf.document.yaml_faults import TAB, fault_of
from dsconf.document.yaml_values import OPEN, TAG, resolve, tagged

if TYPE_CHECKING:
    from dsconf.document.yaml_template import Masked

_LONGEST = 1 << 20
_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line ends for PyYAML, and for no editor."""
_ANCHOR = re.compile(r"[&*][0-9A-Za-z_-]+(?=[\s,\]}]|\Z)")
_FLOW_SIGNS = (",", "]", "}")
_TO_COLON = re.compile(r"(?:\s|#[^\r\n]*)*:")
_MOST = 100_000
"""Values in a file, those behind aliases counted wherever an alias stands."""
_NO_SPACE = re.compile(r"\w+:\S")
_STUMBLES = (LookupError, ValueError, TypeError, AttributeError, AssertionError, NotImplementedError)
"""What the parser raises for some broken texts in the place of an error of its own."""


def scan_yaml(path: str, text: str) -> Document:
    """Parse the only document of a YAML text.

    The values are those of PyYAML's safe_load; a date, a tag of an application's own and a placeholder are "unknown".
    What an alias stands for, and what `<<` merges, has its place where it is written.

    Raises Unusable (rule `yaml-syntax`), with the place, where PyYAML can't read the text, or where it is too deep,
    too large, or has no mapping at the top.
    """
    try:
        return Document(path, text, _read(text), language="yaml")
    except Unusable as problem:
        problem.text = text
        raise


def load_yaml(text: str) -> Any:
    """The value of a YAML text, with UNKNOWN where the text leaves it open. Raises ValueError, naming the line."""
    try:
        return _read(text).root.plain()
    except Unusable as problem:
        at = problem.span.start if problem.span else 0
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise ValueError(f"line {line}, column {column}: {problem.message}") from None


def _read(text: str) -> Reading:
    if len(text) > _LONGEST:
        raise Unusable("yaml-syntax", "the file is too large for a configuration")
    try:
        return _parsed(text, None)
    except Unusable:
        if "{{" not in text and "{%" not in text:
            raise
    from dsconf.document.yaml_template import masked  # few files need it

    return _parsed(text, masked(text))


def _parsed(text: str, mask: Masked | None) -> Reading:
    """What a text holds; of a template with a mask, which is what is read of it."""
    builder = _Builder(text, mask)
    shown = mask.text if mask else text
    yaml = YAML(typ="safe", pure=True)
    yaml.version = "1.1"
    try:
        for event in yaml.parse(_OTHER_BREAKS.sub("\n", shown)):
            builder.take(event)
    except YAMLError as fault:
        raise Unusable("yaml-syntax", *fault_of(fault, text)) from None
    except _STUMBLES as fault:
        raise _error(f"this is not YAML: {fault}", 0, min(1, len(text))) from None
    root = builder.root
    if root is None or (root.kind == "null" and root.span.start == root.span.end):
        raise _error("the file holds no keys", len(text), len(text))
    if root.kind == "string" and _NO_SPACE.match(str(root.scalar)):
        raise _error('there is no space after the ":"', *root.span)
    if root.kind != "object":
        raise _error(f"the top level is {named(root)}, not keys with their values", *root.span)
    placeholders = sorted({*builder.placeholders, *(mask.placeholders if mask else ())})
    try:
        return Reading(root, comments(shown, builder.scalars), placeholders, [])
    except StrayTab as tab:
        raise Unusable("yaml-syntax", TAB, tab.span) from None


class _Anchored(NamedTuple):
    """What an alias stands for."""

    node: Node
    size: int = 1
    """How many values it holds, itself included."""
    height: int = 0
    """How many levels there are below it."""
    text: str | None = None
    """The text of a scalar."""


class _Frame:
    """A mapping or sequence that is being read."""

    __slots__ = ("anchor", "block", "height", "key", "mapping", "merged", "node", "size")

    def __init__(self, node: Node, mapping: bool, block: bool, anchor: str | None, size: int) -> None:
        self.node = node
        self.mapping = mapping
        self.block = block
        self.anchor = anchor
        self.size = size
        """How many values there were up to it."""
        self.height = 0
        self.key: tuple[str | None, Span] | None = None
        """The key whose value comes next; its text is None for `<<`."""
        self.merged: list[Node] = []


class _Builder:
    """Makes a tree of the events of a parser. It never recurses."""

    def __init__(self, text: str, mask: Masked | None) -> None:
        self.text = text
        self.mask = mask
        self.root: Node | None = None
        self.placeholders: list[Span] = []
        self.scalars: list[tuple[Span, str | None]] = []
        """The place and the style of every scalar, as the parser has them."""
        self.frames: list[_Frame] = []
        self.anchors: dict[str, _Anchored | None] = {}
        """What each anchor stands before; None while that is being read."""
        self.count = 0
        self.end = 0
        """Where the last value ends."""

    def take(self, event: Any) -> None:
        """Go on with the next event."""
        name = type(event).__name__
        if name == "ScalarEvent":
            self._scalar(event)
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            self._start(event, name == "MappingStartEvent")
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            self._finish(event)
        elif name == "AliasEvent":
            self._alias(event)
        elif name == "DocumentStartEvent" and self.root is not None:
            start = event.start_mark.index
            message = "a second document begins here, and safe_load reads files with one only"
            raise _error(message, start, min(len(self.text), start + 3))

    def _scalar(self, event: Any) -> None:
        start, end = self._place(event)
        self._check_new(event)
        value, style = str(event.value), event.style
        self.scalars.append((Span(start, end), style))
        if style in ("|", ">"):
            end = start + len(self.text[start:end].rstrip(" \r\n"))
        tag = _tag(event)
        plain = style is None and tag is None
        self.end = end
        if self._expects_key():
            if plain and value.endswith(":") and self.text[end : end + 1] in _FLOW_SIGNS:
                value, end = value[:-1].rstrip(), end - 1  # PyYAML sees the colon there
            if self.mask and self.mask.leaves_open(Span(start, end)):
                value = self.text[start:end]
            merge = (plain and value == "<<") or tag == f"{TAG}merge"
            self._define(event.anchor, _Anchored(Node("string", start, value, end), text=value))
            self._key(None if merge else value, Span(start, end))
            return
        try:
            kind, scalar = resolve(value) if plain else tagged(tag or f"{TAG}str", value)
        except ValueError as problem:
            raise _error(str(problem), start, end) from None
        if (kind == "string" or self.mask) and self._is_open(Span(start, end), value):
            self.placeholders.append(Span(start, end))
            kind, scalar = OPEN
        elif _OTHER_BREAKS.search(self.text, start, end):
            kind, scalar = OPEN  # PyYAML keeps some of them, and joins lines at others
        node = Node(kind, start, scalar, end)
        self._define(event.anchor, _Anchored(node, text=value))
        self._attach(node, 1, 0)

    def _is_open(self, span: Span, value: str) -> bool:
        return is_open(value) or (self.mask is not None and self.mask.leaves_open(span))

    def _after_properties(self, event: Any) -> int:
        """Where a value begins behind its anchor and its tag."""
        start, end = event.start_mark.index, event.end_mark.index
        if event.anchor is None and event.tag is None:
            return int(start)
        while start < end and self.text[start] in "&!":
            self._check_anchor(start)
            while start < end and not self.text[start].isspace():
                start += 1
            while start < end and self.text[start] in " \t\r\n#":
                if self.text[start] == "#":
                    line_end = self.text.find("\n", start)
                    start = end if line_end < 0 else line_end
                start += 1
        return int(min(start, end))

    def _place(self, event: Any) -> Span:
        """The place of a scalar; of one that is not written the end of the colon before it."""
        span = Span(self._after_properties(event), event.end_mark.index)
        if event.start_mark.index == span.end and self.frames and self.frames[-1].key is not None:
            colon = _TO_COLON.match(self.text, self.end, span.end)
            return Span(colon.end(), colon.end()) if colon else span
        return span

    def _check_anchor(self, start: int) -> None:
        """Raises Unusable for a name of an anchor that PyYAML does not take."""
        if self.text[start] in "&*" and not _ANCHOR.match(self.text, start):
            raise _error("the name of an anchor has letters, digits, - and _ only", start)

    def _check_new(self, event: Any) -> None:
        if event.anchor in self.anchors:
            start = event.start_mark.index
            raise _error(f"&{short(event.anchor)} stands before two values", start, event.end_mark.index)

    def _start(self, event: Any, mapping: bool) -> None:
        if self._expects_key():
            raise _error("a key that is no text", event.start_mark.index, event.end_mark.index)
        if len(self.frames) >= MAX_DEPTH:
            raise _error(f"nested more than {MAX_DEPTH} levels deep", event.start_mark.index)
        kind: Kind = "object" if mapping else "array"
        if _tag(event) not in (None, TAG + ("map" if mapping else "seq")):
            kind = "unknown"
        if event.anchor is not None:
            self._check_anchor(self.text.index("&", event.start_mark.index))
            self._check_new(event)
        in_brackets = event.flow_style and event.start_mark.index < event.end_mark.index  # "[a: 1]" has none
        node = Node(kind, event.end_mark.index - 1 if in_brackets else event.start_mark.index)
        self.count += 1
        self._define(event.anchor, None)
        self.frames.append(_Frame(node, mapping, not in_brackets, event.anchor, self.count))

    def _finish(self, event: Any) -> None:
        frame = self.frames.pop()
        node = frame.node
        if not frame.block:
            self.end = event.end_mark.index
        start = node.entries[0].key_span.start if frame.block and node.entries else node.span.start
        node.span = Span(start, max(start, self.end))
        self._merge(frame)
        if node.kind == "unknown":
            node.entries, node.elements = [], []
        size = self.count - frame.size + 1
        self._define(frame.anchor, _Anchored(node, size, frame.height))
        self._attach(node, 0, frame.height)

    def _alias(self, event: Any) -> None:
        span = Span(event.start_mark.index, event.end_mark.index)
        self.end = span.end
        self._check_anchor(span.start)
        if event.anchor not in self.anchors:
            raise _error(
                f"*{short(event.anchor)} stands for nothing: no &{short(event.anchor)} before it", *span
            )
        found = self.anchors[event.anchor]
        if found is None:
            raise _error(f"*{short(event.anchor)} stands within the value that it stands for", *span)
        original, size, height, text = found
        if self._expects_key():
            if text is None:
                raise _error("a key that is no text", *span)
            self._key(text, span)
            return
        if len(self.frames) + height > MAX_DEPTH:
            raise _error(f"nested more than {MAX_DEPTH} levels deep", *span)
        node = Node(original.kind, span.start, original.scalar, span.end)
        node.entries, node.elements, node.open = original.entries, original.elements, original.open
        self._attach(node, size, height)

    def _define(self, anchor: str | None, value: _Anchored | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = value

    def _expects_key(self) -> bool:
        return bool(self.frames) and self.frames[-1].mapping and self.frames[-1].key is None

    def _key(self, text: str | None, span: Span) -> None:
        self.frames[-1].key = (text, span)

    def _attach(self, node: Node, size: int, height: int) -> None:
        """Give a whole value to what it stands in."""
        self.count += size
        if self.count > _MOST:
            raise _error(f"the file holds more than {_MOST} values", *node.span)
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        frame.height = max(frame.height, height + 1)
        if not frame.mapping:
            frame.node.elements.append(node)
            return
        assert frame.key is not None
        key, span = frame.key
        frame.key = None
        if key is not None:
            frame.node.entries.append(Entry(key, span, node))
        elif node.kind in ("object", "unknown") or _all_objects(node):
            frame.merged += node.elements if node.kind == "array" else [node]
        else:
            raise _error(f'"<<" merges mappings, and this is {named(node)}', *node.span)

    def _merge(self, frame: _Frame) -> None:
        """Put the entries that `<<` brings before a mapping's own, which win."""
        node = frame.node
        own = node.members()
        found: dict[str, Entry] = {}
        for source in frame.merged:
            node.open |= source.open or source.kind == "unknown"
            for key, entry in source.members().items():
                if key in own:
                    continue
                if key in found and found[key].node is not entry.node:
                    # Which one wins differs from release to release of PyYAML.
                    open_node = Node("unknown", entry.node.span.start, None, entry.node.span.end)
                    entry = Entry(key, entry.key_span, open_node)
                found[key] = entry
        node.entries[:0] = found.values()


def _all_objects(node: Node) -> bool:
    return node.kind == "array" and all(element.kind in ("object", "unknown") for element in node.elements)


def _tag(event: Any) -> str | None:
    """The full tag of an event; None without one, and for `!`, which PyYAML ignores."""
    tag = None if event.tag is None else str(event.tag)
    return None if tag == "!" else tag


def _error(message: str, start: int, end: int | None = None) -> Unusable:
    """What is wrong at a place of the text, by default one character of it."""
    return Unusable("yaml-syntax", message, Span(start, start + 1 if end is None else end))
