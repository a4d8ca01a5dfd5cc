"""A reader of strict JSON that keeps positions, comments and duplicates, and never recurses.

It notes as relaxations what DeepSpeed's HJSON reader accepts too: comments, trailing commas and a byte order mark.
"""

from __future__ import annotations

import re

from dsconf.document.node import Entry, Node, Reading, Relaxation, Span, named
from dsconf.document.source import Unusable
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

_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.+-])"
_TOKEN = re.compile(
    rf"[ \t\r\n]*(?:(?P<string>{STRING})|(?P<mark>[:,}}\[\]]|\{{(?![{{%]))|(?P<number>{_NUMBER})"
    r"|(?P<word>true|false|null)(?![0-9A-Za-z_])|(?P<comment>//[^\r\n]*|\#[^\r\n]*|/\*.*?\*/)|(?P<end>\Z))",
    re.DOTALL,
)
_SIGNS = re.compile(r"[$<@]|__|\{\{|\{%|%\(")
"""What every placeholder in a string has."""
# Few files need these: they are compiled when they are used.
_BLANK = r"[ \t\r\n]*"
_ODD_WORD = r"[^\s,:{}\[\]\"']+"
_CONSTANT = r"(?:NaN|-?Infinity)(?![0-9A-Za-z_])"


def read_json(
    text: str, first_line: int = 1, *, constants: bool = False, hjson_numbers: bool = False
) -> Reading:
    """Read a text as JSON. `first_line` is the number of its first line, for messages.

    `constants`: NaN and Infinity are numbers, as `json.load` has it. `hjson_numbers`: numbers become what HJSON makes
    of them. Raises Unusable (rule `json-syntax`) with the place in `text`.
    """
    return _Scanner(text, first_line, constants, hjson_numbers).run()


class _Scanner:
    def __init__(self, text: str, first_line: int, constants: bool, hjson_numbers: bool) -> None:
        self.text = text
        self.first_line = first_line
        self.constants = constants
        self.hjson_numbers = hjson_numbers
        self.at = 0
        self.relaxations: list[Relaxation] = []
        self.placeholders: list[Span] = []
        self.branches = 0
        """How many branches of a template are open, whose values are left open too."""
        self.has_signs = _SIGNS.search(text) is not None
        self.start = 0
        self.comma: Span | None = None

    def run(self) -> Reading:
        if self.text.startswith("\ufeff"):
            self.relaxations.append(Relaxation("a byte order mark", Span(0, 1)))
            self.at = 1
        kind = self._next()
        if kind == "end":
            raise self._error("the file holds no value", len(self.text))
        root = self._tree(kind)
        if root.kind != "object":
            raise self._error(f"the top level is {named(root)}, not an object {{...}}", *root.span)
        if self._next() != "end":
            raise self._error("there is more text after the end of the object", self.start)
        return Reading(root, self.relaxations, self.placeholders, [])

    def _next(self, in_key: bool = False) -> str:
        """Move to the next token that is no comment; its kind (a mark is its own kind) and span are left behind."""
        mark = self.text[self.at : self.at + 1]
        if mark == "," or mark == ":":  # half of all tokens, and mostly at once after the one before
            self.start = self.at
            self.at += 1
            return mark
        while True:
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                kind = self._odd(in_key)
                if kind is None:
                    continue
                return kind
            kind = match.lastgroup or ""
            self.start, self.at = match.span(kind)
            if kind == "comment":
                self.relaxations.append(Relaxation("a comment", Span(self.start, self.at)))
                continue
            return self.text[self.start] if kind == "mark" else kind

    def _odd(self, in_key: bool) -> str | None:
        """The token where JSON has none: a placeholder, None for a tag that is passed over. Raises Unusable."""
        blank = re.compile(_BLANK).match(self.text, self.at)
        start = blank.end() if blank else self.at
        from dsconf.document.template import bare_placeholder, key_placeholder, skip_tag  # few files need it

        if self.text.startswith("{%", start):
            after, self.branches = skip_tag(self.text, start, self.branches)
            if after is not None:
                self.placeholders.append(Span(start, after))
                self.at = after
                return None
        end = (key_placeholder if in_key else bare_placeholder)(self.text, start)
        if end is not None:
            self.placeholders.append(Span(start, end))
            self.start, self.at = start, end
            return "placeholder"
        constant = re.compile(_CONSTANT).match(self.text, start) if self.constants else None
        if constant is not None:
            self.start, self.at = constant.span()
            return "number"
        if self.text[start] == "{":
            self.start, self.at = start, start + 1
            return "{"
        raise self._odd_text(start)

    def _tree(self, kind: str) -> Node:
        """The value that begins with the present token; containers are kept on a stack of their own."""
        root = self._value(kind)
        stack = [root] if root.kind in CLOSES else []
        begun = loose = False
        """Whether a comma has to follow, since the innermost container holds something; whether one may."""
        while stack:
            top = stack[-1]
            in_object = top.kind == "object"
            kind = self._next(in_object)
            if kind == CLOSES[top.kind]:
                self._note_trailing_comma()
                top.span = Span(top.span.start, self.at)
                stack.pop()
                begun, loose = True, False
                continue
            if (begun and self.comma is None) or (loose and kind == ","):
                if kind == "placeholder" and in_object:
                    begun, loose = False, True  # it stands for whole entries, with or without their commas
                    continue
                if kind != ",":
                    raise self._unexpected(kind, top, f'a comma or "{CLOSES[top.kind]}"')
                self.comma = Span(self.start, self.at)
                loose = False
                continue
            self.comma = None
            if in_object:
                node = self._entry(kind, top)
                if node is None:
                    begun, loose = False, True
                    continue
            else:
                if kind in ("}", ",", ":", "end"):
                    raise self._unexpected(kind, top, "a value")
                node = self._value(kind)
                top.elements.append(node)
            begun = node.kind not in CLOSES
            if not begun:
                stack.append(node)
                loose = False
                if len(stack) > MAX_DEPTH:
                    raise self._error(f"nested more than {MAX_DEPTH} levels deep", node.span.start)
        return root

    def _entry(self, kind: str, top: Node) -> Node | None:
        """The value of the entry that begins with the present token; None for a placeholder of whole entries."""
        if kind not in ("string", "placeholder"):
            raise self._unexpected(kind, top, "a key in double quotes")
        key_span = Span(self.start, self.at)
        key = string_of(self.text[self.start : self.at]) if kind == "string" else self.text[slice(*key_span)]
        was_placeholder = kind == "placeholder"
        kind = self._next()
        if kind != ":":
            if was_placeholder:
                self.at = key_span.end
                return None
            raise self._unexpected(kind, top, f'":" after the key "{short(key)}"')
        kind = self._next()
        if kind in ("}", "]", ",", ":", "end"):
            raise self._unexpected(kind, top, f'a value for "{short(key)}"')
        node = self._value(kind)
        top.entries.append(Entry(key, key_span, node))
        return node

    def _value(self, kind: str) -> Node:
        start, end = self.start, self.at
        if kind in ("{", "["):
            return Node("object" if kind == "{" else "array", start)
        token = self.text[start:end]
        if kind == "string":
            node = Node("string", start, string_of(token), end)
            if self.has_signs and self._is_open(str(node.scalar)):
                self.placeholders.append(Span(start, self.at))
                node.kind = "unknown"
        elif kind == "word":
            node = Node("null" if token == "null" else "boolean", start, WORDS[token], end)
        elif kind == "number":
            node = Node("number", start, self._number(token), end)
        elif kind == "placeholder":
            node = Node("unknown", start, None, end)
        else:
            raise self._error(f'"{token}" stands where a value should be', start)
        if self.branches:
            node.kind = "unknown"
        return node

    def _is_open(self, string: str) -> bool:
        from dsconf.document.template import is_open  # few files need it

        return is_open(string)

    def _number(self, token: str) -> int | float:
        try:
            if token.lstrip("-").isdigit():
                return int(token)
            return hjson_float(token) if self.hjson_numbers else float(token)
        except ValueError:
            raise self._error(too_long(token), self.start, self.at) from None
        except OverflowError:
            raise self._error(too_large(token), self.start, self.at) from None

    def _note_trailing_comma(self) -> None:
        if self.comma is not None:
            self.relaxations.append(Relaxation("a trailing comma", self.comma))
            self.comma = None

    def _odd_text(self, start: int) -> Unusable:
        """The error for text that begins no token."""
        from dsconf.document.misread import OTHER_QUOTES, odd_word, other_quotes  # few files need it

        found = self.text[start]
        if found == '"':
            return self._bad_string(start)
        if found in OTHER_QUOTES:
            return self._error(other_quotes(found), start)
        if self.text.startswith("/*", start):
            return self._error("this comment has no end", start, start + 2)
        match = re.compile(_ODD_WORD).match(self.text, start)
        if match is None or not found.isprintable():
            return self._error(f"the character U+{ord(found):04X} can't stand here", start, start + 1)
        word = match.group()
        message = odd_word(word) or f"{short(word)} is neither a JSON value nor a key in double quotes"
        return self._error(message, start, start + len(word))

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
            line = self.text.count("\n", 0, top.span.start) + self.first_line
            message = f"the file ends inside the {top.kind} that begins in line {line}: {wanted} is missing"
            return self._error(message, top.span.start)
        shown = short(self.text[self.start : self.at])
        return self._error(f"expected {wanted}, found {shown}", self.start, self.at)

    def _error(self, message: str, start: int, end: int | None = None) -> Unusable:
        span = Span(start, min(len(self.text), start + 1) if end is None else end)
        return Unusable("json-syntax", message, span)
