"""A reader of HJSON, with which DeepSpeed reads its configs: it takes what `hjson.loads` takes, and never recurses.

It says what `json.load` would refuse, and where text without quotes is hardly what its writer meant.
"""

from __future__ import annotations

import json
import re

from dsconf.document.hjson_strings import BadString, multi_line, quoted
from dsconf.document.misread import OTHER_QUOTES, judge, other_quotes
from dsconf.document.node import Entry, Kind, Misread, Node, Reading, Relaxation, Span
from dsconf.document.source import Unusable
from dsconf.document.template import bare_placeholder, is_open
from dsconf.document.tokens import (
    CLOSES,
    MAX_DEPTH,
    STRING,
    WORDS,
    hjson_float,
    short,
    string_of,
    too_large,
    too_long,
)

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"(?:\#|//)[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRICT_STRING = re.compile(STRING)
_KEY = re.compile(r"([^:{}\[\], \t\r\n]+)([ \t\r\n]*):")
_KEY_END = re.compile(r"[:{}\[\],]")
_END_OF_WORD = re.compile(r"[,}\]\#\r\n]|//|/\*|\Z")
_LINE = re.compile(r"[^\r\n]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9]\d*))(\.\d+)?([eE][-+]?\d+)?[\t ]*")


def read_hjson(text: str, first_line: int, refused: Unusable, *, numbers_as_hjson: bool) -> Reading:
    """Read a text as HJSON, after `read_json` has `refused` it.

    `first_line` is the number of its first line. `numbers_as_hjson`: 5e8 is an integer; else numbers become what
    `json.load` makes of them. Raises Unusable (rule `json-syntax`) with the place in `text`.
    """
    reader = _Reader(text, first_line, numbers_as_hjson)
    try:
        root = reader.run()
    except Unusable as problem:
        plain = _Reader(text, first_line, numbers_as_hjson, templates=False)
        try:
            # What looks like a placeholder may be a word.
            if not (reader.placeholders and numbers_as_hjson):
                raise
            root = plain.run()
            reader = plain
        except Unusable:
            raise reader.explained(problem, refused) from None
    if not root.entries and not numbers_as_hjson:
        raise refused  # DeepSpeed reads nothing, and nobody else reads it at all
    relaxations = reader.relaxations or [Relaxation("what stands here", refused.span or root.span)]
    relaxations.sort(key=lambda each: each.span)
    return Reading(root, relaxations, reader.placeholders, reader.misreadings)


class _Reader:
    def __init__(self, text: str, first_line: int, numbers_as_hjson: bool, *, templates: bool = True) -> None:
        self.text = text
        self.templates = templates
        self.first_line = first_line
        self.numbers_as_hjson = numbers_as_hjson
        self.at = 0
        self.relaxations: list[Relaxation] = []
        self.placeholders: list[Span] = []
        self.misreadings: list[Misread] = []

    def explained(self, problem: Unusable, refused: Unusable) -> Unusable:
        """The error that tells most of a text that JSON and HJSON both refuse."""
        if not self.numbers_as_hjson:
            return refused
        if self.misreadings:
            first = self.misreadings[0]
            return self._error(first.why, *first.span)
        return refused if refused.span is not None and refused.span.start > self.at else problem

    def run(self) -> Node:
        if self.text.startswith("\ufeff"):
            self._note("a byte order mark", 0, 1)
            self.at = 1
        found = self._skip()
        if found == "[":
            raise self._error("the top level is an array, not an object {...}", self.at)
        braces = found == "{"
        root = Node("object", self.at)
        if braces:
            self.at += 1
        elif found:
            self._note("an object without its braces", self.at, self.at + 1)
        elif self.at and self.text[0] == "\ufeff" and not braces:
            raise self._error("the file holds no value", self.at)
        if found:
            self._fill(root, braces)
        if self._skip():
            raise self._error("there is more text after the end of the object", self.at)
        return root

    def _skip(self) -> str:
        """Pass over white space and comments; the next character, "" at the end."""
        while True:
            blank = _BLANK.match(self.text, self.at)
            self.at = blank.end() if blank else self.at
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                if self.text.startswith("/*", self.at):
                    raise self._error("this comment has no end", self.at, self.at + 2)
                return self.text[self.at : self.at + 1]
            self._note("a comment", *comment.span())
            self.at = comment.end()

    def _fill(self, root: Node, braces: bool) -> None:
        """Read the content of the root object; containers are kept on a stack of their own."""
        stack = [root]
        begun = False
        """Whether the innermost container holds something."""
        while stack:
            top = stack[-1]
            bare = top is root and not braces
            found, comma = self._skip(), None
            if begun and found == ",":
                comma = self.at
                self.at += 1
                found = self._skip()
            if bare and begun and not found:
                self._note_trailing(comma)
                break
            if not bare and found == CLOSES[top.kind]:
                self.at += 1
                top.span = Span(top.span.start, self.at)
                stack.pop()
                self._note_trailing(comma)
                begun = True
                continue
            if begun and comma is None:
                self._note("a missing comma", self.at, self.at + 1)
            node = self._entry(top, found) if top.kind == "object" else self._element(top, found)
            begun = node.kind not in CLOSES
            if not begun:
                stack.append(node)
                if len(stack) > MAX_DEPTH:
                    raise self._error(f"nested more than {MAX_DEPTH} levels deep", node.span.start)
        root.span = Span(root.span.start, self.at)

    def _element(self, top: Node, found: str) -> Node:
        if not found:
            raise self._ends_inside(top)
        node = self._value(found, "a value", below=False)
        top.elements.append(node)
        return node

    def _entry(self, top: Node, found: str) -> Node:
        start = self.at
        key = self._key(top, found)
        span = Span(start, self.at)
        if self._skip() != ":":
            raise self._error(f'expected ":" after the key "{short(key)}"', self.at)
        colon = self.at
        self.at += 1
        found = self._skip()
        if not found:
            raise self._ends_inside(top)
        below = "\n" in self.text[colon : self.at]
        node = self._value(found, f'a value for "{short(key)}"', below=below)
        top.entries.append(Entry(key, span, node))
        return node

    def _key(self, top: Node, found: str) -> str:
        start = self.at
        if found and found in "\"'":
            return self._quoted(lines=False)
        match = _KEY.match(self.text, start)
        if match is None:
            end = _KEY_END.search(self.text, start)
            if end is None:
                raise self._ends_inside(top) if not found else self._error(self._no_colon(start), start)
            if end.group() != ":":
                raise self._error(f"found {end.group()} where a key was expected", end.start(), end.end())
            if end.start() == start:
                raise self._error('found ":" without a key before it', start)
            raise self._error("a key with white space in it needs quotes", start, end.start())
        key, space = match.groups()
        self.at = start + len(key)
        self._note("a key without quotes", start, self.at)
        if key[0] in OTHER_QUOTES:
            meant = json.dumps(key.strip(OTHER_QUOTES), ensure_ascii=False)
            self.misreadings.append(Misread(None, Span(start, self.at), key, meant, other_quotes(key[0])))
        return key.rstrip() if space else key

    def _no_colon(self, start: int) -> str:
        line = _LINE.match(self.text, start)
        return f'expected a key and ":", found {short(line.group() if line else "")}'

    def _value(self, found: str, wanted: str, *, below: bool) -> Node:
        start = self.at
        end = bare_placeholder(self.text, start) if self.templates and found not in "\"'" else None
        if end is not None:
            self.at = end
            self.placeholders.append(Span(start, end))
            node = Node("unknown", start)
        elif found in "{[":
            self.at += 1
            return Node("object" if found == "{" else "array", start)
        elif found in "\"'":
            node = Node("string", start, self._quoted(lines=True))
            if is_open(str(node.scalar)):
                self.placeholders.append(Span(start, self.at))
                node.kind = "unknown"
        elif found in "}],:":
            raise self._error(f"expected {wanted}, found {found}", start)
        else:
            return self._unquoted(found, below)
        node.span = Span(start, self.at)
        return node

    def _quoted(self, *, lines: bool) -> str:
        """The string in quotes that begins here; with `lines` three single quotes begin one of several lines."""
        start = self.at
        plain = _STRICT_STRING.match(self.text, start)
        if plain is not None:
            self.at = plain.end()
            return string_of(plain.group())
        try:
            if lines and self.text.startswith("'''", start):
                string, self.at = multi_line(self.text, start)
                self._note("a multi-line string", start, self.at)
            else:
                string, self.at = quoted(self.text, start)
                what = "a string in single quotes" if self.text[start] == "'" else "such an escape"
                self._note(what, start, self.at)
        except BadString as bad:
            raise self._error(bad.message, bad.start, bad.end) from None
        return string

    def _unquoted(self, found: str, below: bool) -> Node:
        """A word, a number, or text up to the end of the line."""
        start = self.at
        end_of_word = _END_OF_WORD.search(self.text, start)
        assert end_of_word is not None
        end = end_of_word.start()
        word = self.text[start:end].strip()
        if found in "tfn" and word in WORDS:
            self.at = start + len(word)
            self._note_blank(start + len(word), end)
            return _node("null" if word == "null" else "boolean", WORDS[word], start, start + len(word))
        if found in "-0123456789":
            match = _NUMBER.match(self.text, start)
            if match is not None and match.end() == end:
                number = self._number(*match.groups())
                self.at = start + len("".join(part or "" for part in match.groups()))
                if not word.isascii():
                    self._note("such digits", start, self.at)
                return _node("number", number, start, self.at)
        line = _LINE.match(self.text, start)
        assert line is not None
        text = line.group().strip()
        start += len(line.group()) - len(line.group().lstrip())
        node = _node("string", text, start, start + len(text))
        self.at = line.end()
        self._note("text without quotes", *node.span)
        judged = judge(text, below=below)
        if judged is not None:
            self.misreadings.append(Misread(node, node.span, text, *judged))
        return node

    def _note_blank(self, start: int, end: int) -> None:
        """JSON knows four characters of white space, HJSON all of Unicode's after a word."""
        if self.text[start:end].strip(" \t"):
            self._note("such white space", start, end)
            self.at = end

    def _number(self, whole: str, fraction: str | None, exponent: str | None) -> int | float:
        token = whole + (fraction or "") + (exponent or "")
        try:
            if token == whole:
                return int(whole)
            number = hjson_float(token)
            return number if self.numbers_as_hjson else float(token)
        except ValueError:
            message = too_long(token)
        except OverflowError:
            message = too_large(token)
        raise self._error(message, self.at, self.at + len(token))

    def _note(self, what: str, start: int, end: int) -> None:
        self.relaxations.append(Relaxation(what, Span(start, end)))

    def _note_trailing(self, comma: int | None) -> None:
        if comma is not None:
            self._note("a trailing comma", comma, comma + 1)

    def _ends_inside(self, top: Node) -> Unusable:
        if top.kind == "object" and not self.text.startswith("{", top.span.start):
            return self._error("the file ends where a value is missing", len(self.text))
        line = self.text.count("\n", 0, top.span.start) + self.first_line
        message = (
            f'the file ends inside the {top.kind} that begins in line {line}: "{CLOSES[top.kind]}" is missing'
        )
        return self._error(message, top.span.start)

    def _error(self, message: str, start: int, end: int | None = None) -> Unusable:
        span = Span(start, min(len(self.text), start + 1) if end is None else end)
        return Unusable("json-syntax", message, span)


def _node(kind: Kind, scalar: object, start: int, end: int) -> Node:
    node = Node(kind, start, scalar)
    node.span = Span(start, end)
    return node
