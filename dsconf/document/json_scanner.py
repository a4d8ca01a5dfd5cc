"""A JSON scanner that keeps positions, comments and duplicates, and never recurses.

It reads strict JSON, and notes as relaxations what DeepSpeed's HJSON reader accepts beside it: comments, trailing
commas and a byte order mark.
"""

from __future__ import annotations

import json
import re

from dsconf.document.node import Document, Entry, Node, Relaxation, Span
from dsconf.document.source import Unusable

MAX_DEPTH = 200
"""A configuration is some six levels deep; `json.load` itself gives up near 1,000."""

_STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.+-])"
_TOKEN = re.compile(
    rf"[ \t\r\n]*(?:(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)|(?P<string>{_STRING})|(?P<number>{_NUMBER})"
    r"|(?P<word>true|false|null)(?![0-9A-Za-z_])|(?P<mark>[{}\[\],:])|(?P<end>\Z))",
    re.DOTALL,
)
_BLANK = re.compile(r"[ \t\r\n]*")
_ODD_WORD = re.compile(r"[^\s,:{}\[\]\"']+")
_OTHER_QUOTES = "'`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_WORDS = {"true": True, "false": False, "null": None}
_CLOSES = {"object": "}", "array": "]"}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


def scan(path: str, text: str, start: int = 0, end: int | None = None) -> Document:
    """Parse the text of a JSON file, or the piece of a text from `start` up to `end`; spans are those of the whole.

    Raises Unusable (rule `json-syntax`), with the place, where the text is not JSON, is deeper than `MAX_DEPTH`, or
    has no object at the top.
    """
    if start == 0 and end is None:
        return _Scanner(path, text).run()
    found = _Scanner(path, " " * start + text[start:end]).run()
    return Document(path, text, found.root, found.relaxations)


class _Scanner:
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.at = 0
        self.relaxations: list[Relaxation] = []
        self.start = 0
        self.comma: Span | None = None

    def run(self) -> Document:
        if self.text.startswith("\ufeff"):
            self.relaxations.append(Relaxation("a byte order mark", Span(0, 1)))
            self.at = 1
        kind = self._next()
        if kind == "end":
            raise self._error("the file holds no value", len(self.text))
        root = self._tree(kind)
        if root.kind != "object":
            raise self._error(f"the top level is {_named(root)}, not an object {{...}}", *root.span)
        if self._next() != "end":
            raise self._error("there is more text after the end of the object", self.start)
        return Document(self.path, self.text, root, self.relaxations)

    def _next(self) -> str:
        """Move to the next token that is no comment; its kind (a mark is its own kind) and span are left behind."""
        while True:
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                raise self._odd_text()
            kind = match.lastgroup or ""
            self.start, self.at = match.start(kind), match.end()
            if kind == "comment":
                self.relaxations.append(Relaxation("a comment", Span(self.start, self.at)))
                continue
            return match.group(kind) if kind == "mark" else kind

    def _tree(self, kind: str) -> Node:
        """The value that begins with the present token; containers are kept on a stack of their own."""
        root = self._value(kind)
        stack = [root] if root.kind in _CLOSES else []
        while stack:
            top = stack[-1]
            kind = self._next()
            if kind == _CLOSES[top.kind]:
                self._note_trailing_comma()
                top.span = Span(top.span.start, self.at)
                stack.pop()
                continue
            if (top.entries or top.elements) and self.comma is None:
                if kind != ",":
                    raise self._unexpected(kind, top, f'a comma or "{_CLOSES[top.kind]}"')
                self.comma = Span(self.start, self.at)
                continue
            self.comma = None
            if top.kind == "object":
                node = self._entry(kind, top)
            else:
                if kind in ("}", ",", ":", "end"):
                    raise self._unexpected(kind, top, "a value")
                node = self._value(kind)
                top.elements.append(node)
            if node.kind in _CLOSES:
                stack.append(node)
                if len(stack) > MAX_DEPTH:
                    raise self._error(f"nested more than {MAX_DEPTH} levels deep", node.span.start)
        return root

    def _entry(self, kind: str, top: Node) -> Node:
        if kind != "string":
            raise self._unexpected(kind, top, "a key in double quotes")
        key, key_span = self._string(), Span(self.start, self.at)
        kind = self._next()
        if kind != ":":
            raise self._unexpected(kind, top, f'":" after the key "{_short(key)}"')
        kind = self._next()
        if kind in ("}", "]", ",", ":", "end"):
            raise self._unexpected(kind, top, f'a value for "{_short(key)}"')
        node = self._value(kind)
        top.entries.append(Entry(key, key_span, node))
        return node

    def _value(self, kind: str) -> Node:
        start = self.start
        if kind in ("{", "["):
            return Node("object" if kind == "{" else "array", start)
        token = self.text[start : self.at]
        if kind == "string":
            node = Node("string", start, self._string())
        elif kind == "word":
            node = Node("null" if token == "null" else "boolean", start, _WORDS[token])
        elif kind == "number":
            node = Node("number", start, self._number(token))
        else:
            raise self._error(f'"{token}" stands where a value should be', start)
        node.span = Span(start, self.at)
        return node

    def _string(self) -> str:
        token = self.text[self.start : self.at]
        return str(json.loads(token)) if "\\" in token else token[1:-1]

    def _number(self, token: str) -> int | float:
        try:
            return int(token) if token.lstrip("-").isdigit() else float(token)
        except ValueError:  # Python refuses to convert more than 4,300 digits, json.load likewise
            raise self._error(f"a number of {len(token)} digits is too long", self.start, self.at) from None

    def _note_trailing_comma(self) -> None:
        if self.comma is not None:
            self.relaxations.append(Relaxation("a trailing comma", self.comma))
            self.comma = None

    def _odd_text(self) -> Unusable:
        """The error for text that begins no token."""
        blank = _BLANK.match(self.text, self.at)
        start = blank.end() if blank else self.at
        found = self.text[start]
        if found == '"':
            return self._bad_string(start)
        if found in _OTHER_QUOTES:
            return self._error(f'JSON puts strings in double quotes ("), not in {found}', start)
        if self.text.startswith("/*", start):
            return self._error("this comment has no end", start, start + 2)
        match = _ODD_WORD.match(self.text, start)
        if match is None or not found.isprintable():
            return self._error(f"the character U+{ord(found):04X} can't stand here", start, start + 1)
        word = match.group()
        shown = _short(word)
        end = start + len(word)
        if word in _PYTHON_WORDS:
            return self._error(f"{word} is Python: JSON writes {_PYTHON_WORDS[word]}", start, end)
        if word in ("NaN", "Infinity", "-Infinity"):
            return self._error(f"{word} is no JSON number", start, end)
        if word[0].isdigit() or word[0] in "+-.":
            return self._error(f"{shown} is no JSON number", start, end)
        return self._error(f"{shown} is neither a JSON value nor a key in double quotes", start, end)

    def _bad_string(self, start: int) -> Unusable:
        line_end = self.text.find("\n", start)
        line_end = len(self.text) if line_end < 0 else line_end
        closing = re.compile(r'"(?:[^"\\\n]|\\.)*"').match(self.text, start, line_end)
        if closing is None:
            return self._error("this string has no closing quote on its line", start, line_end)
        bad = re.compile(r'[\x00-\x1f]|\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})').search(
            self.text, start, closing.end()
        )
        if bad is None:
            return self._error("this string is not JSON", start, closing.end())
        if bad.group() == "\\":
            escape = self.text[bad.start() : bad.start() + 2]
            message = f'"{escape}" is no escape of JSON: write a backslash as "\\\\"'
            return self._error(message, bad.start(), bad.start() + 2)
        message = f"a string can't hold the control character U+{ord(bad.group()):04X}: write it as an escape"
        return self._error(message, bad.start(), bad.end())

    def _unexpected(self, kind: str, top: Node, wanted: str) -> Unusable:
        if kind == "end":
            line = self.text.count("\n", 0, top.span.start) + 1
            message = f"the file ends inside the {top.kind} that begins in line {line}: {wanted} is missing"
            return self._error(message, top.span.start)
        shown = _short(self.text[self.start : self.at])
        return self._error(f"expected {wanted}, found {shown}", self.start, self.at)

    def _error(self, message: str, start: int, end: int | None = None) -> Unusable:
        span = Span(start, min(len(self.text), start + 1) if end is None else end)
        return Unusable("json-syntax", message, span, self.text)


def _named(node: Node) -> str:
    return {"array": "an array", "null": "null"}.get(node.kind, f"a {node.kind}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
