"""The strings of HJSON beyond those of JSON: single quotes, three quotes, and what `hjson` takes for an escape."""

from __future__ import annotations

import re

_CHUNK = re.compile(r"(.*?)(['\"\\\x00-\x1f])", re.DOTALL)
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class BadString(Exception):
    """A string that HJSON refuses, with the place of the fault."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


def quoted(text: str, start: int) -> tuple[str, int]:
    """The string whose quote, single or double, stands at `start`, and where it ends. Raises BadString."""
    quote = text[start]
    pieces: list[str] = []
    at = start + 1
    while True:
        chunk = _CHUNK.match(text, at)
        if chunk is None:
            line_end = text.find("\n", start)
            end = len(text) if line_end < 0 else line_end
            raise BadString("this string has no closing quote", start, end)
        content, stop = chunk.groups()
        pieces.append(content)
        at = chunk.end()
        if stop == quote:
            return "".join(pieces), at
        if stop in "\"'":
            pieces.append(stop)
        elif stop == "\\":
            piece, at = _escape(text, at)
            pieces.append(piece)
        else:
            message = f"a string can't hold the control character U+{ord(stop):04X}: write it as an escape"
            if stop in "\r\n":
                message = "this string has no closing quote on its line"
                raise BadString(message, start, at - 1)
            raise BadString(message, at - 1, at)


def _escape(text: str, at: int) -> tuple[str, int]:
    """What the escape stands for whose backslash is before `at`, and where it ends. Raises BadString."""
    letter = text[at : at + 1]
    if letter != "u":
        if letter not in _ESCAPES:
            shown = f'"\\{letter}" is no escape of JSON: write a backslash as "\\\\"'
            raise BadString(shown, at - 1, at + 1 if letter else at)
        return _ESCAPES[letter], at + 1
    code = _code(text, at)
    end = at + 5
    if code & 0xFC00 == 0xD800 and text.startswith("\\u", end):
        second = text[end + 2 : end + 6]
        if len(second) == 4 and second[1] not in "xX":
            low = _code(text, end + 1)
            if low & 0xFC00 == 0xDC00:
                return chr(0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00))), end + 6
    return chr(code), end


def _code(text: str, at: int) -> int:
    """The four hexadecimal digits after the `u` at `at`, as Python's int() takes them. Raises BadString."""
    digits = text[at + 1 : at + 5]
    try:
        if len(digits) == 4 and digits[1] not in "xX" and (code := int(digits, 16)) >= 0:
            return code
    except ValueError:
        pass
    raise BadString('"\\u" is no escape of JSON: write a backslash as "\\\\"', at - 1, at + 1)


def multi_line(text: str, start: int) -> tuple[str, int]:
    """The string in three quotes that begins at `start`, and where it ends. Raises BadString.

    Its lines lose as much white space as stands before the quotes in their line. Before the first line end of the
    text `hjson` counts on from the last line.
    """
    line_end = text.rfind("\n", 0, start)
    if line_end < 0:
        line_end = text.rfind("\n") - len(text)
    indent = start - 1 - line_end
    at = _without_indent(text, start + 3, len(text))
    if text.startswith("\n", at):
        at = _without_indent(text, at + 1, indent)
    close = text.find("'''", at)
    if close < 0 or "\n" not in text:
        first_line = text.find("\n", start)
        end = len(text) if first_line < 0 else first_line
        message = (
            "this string has no closing '''" if close < 0 else "a string in ''' needs a line end in the file"
        )
        raise BadString(message, start, end)
    pieces = []
    while True:
        line_end = text.find("\n", at, close)
        if line_end < 0:
            pieces.append(text[at:close])
            break
        pieces.append(text[at:line_end])
        at = _without_indent(text, line_end + 1, indent)
    string = "\n".join(pieces).replace("\r", "")
    return string.removesuffix("\n"), close + 3


def _without_indent(text: str, at: int, most: int) -> int:
    """Where the line goes on after at most so many blanks."""
    end = at
    while end - at < most and text[end : end + 1] in (" ", "\t", "\r"):
        end += 1
    return end
