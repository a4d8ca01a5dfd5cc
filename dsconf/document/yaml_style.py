"""Values as YAML text that PyYAML reads as exactly these values, in the layout of a file."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dsconf.document.node import Document, Spelling
from dsconf.document.style import Style, Verbatim, line_indent
from dsconf.document.template import is_open
from dsconf.document.yaml_values import resolve

_PLAIN = re.compile(r"[\w./][\w./+@-]*(?: [\w./+@-]+)*", re.ASCII)
"""Text that begins, holds and ends with nothing that means something in YAML."""


class Block(Verbatim):
    """A value in lines of its own, whose first one has this indentation."""

    __slots__ = ()


class NotWritable(ValueError):
    """A value that has no spelling in YAML, or none in this place."""


class YamlStyle(Style):
    """The layout that a YAML document has, for what is added to it."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.spread = False
        self.sections_on_one_line = True
        self.colon, self.comma = ": ", ", "
        self.unit = _unit(document)

    def render(self, value: Any, indent: str, spread: bool) -> str:
        """A value as it is written within braces; the layout is that of one line. Raises NotWritable."""
        return flow(value)

    def after_colon(self, value: Any, indent: str, quote: str = "") -> str:
        """What follows the colon of a key that stands on a line of this indentation. Raises NotWritable."""
        inner = self.newline + indent + self.unit
        if isinstance(value, Block):
            first, *rest = value.text.split("\n")
            lines = (
                f"{indent}{self.unit}{line.removeprefix(value.indent)}"
                if line.startswith(value.indent)
                else line
                for line in rest
            )
            return inner + "\n".join([first, *lines])
        if isinstance(value, dict) and value:
            below = indent + self.unit
            return "".join(
                f"{inner}{scalar(key)}:{self.after_colon(each, below)}" for key, each in value.items()
            )
        return f" {flow(value, quote)}"


def flow(value: Any, quote: str = "") -> str:
    """A value on one line. Raises NotWritable."""
    if isinstance(value, Block):
        raise NotWritable("a value of several lines can't stand on one")
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, dict):
        return f"{{{', '.join(f'{scalar(key)}: {flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(flow(each) for each in value)}]"
    return scalar(value, quote)


def scalar(value: object, quote: str = "") -> str:
    """A value without others in it, a text in this quote where it has one. Raises NotWritable."""
    if isinstance(value, Spelling):
        return _spelt(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return _text(value, quote)
    raise NotWritable(f"there is no YAML for {type(value).__name__}")


def number(value: float) -> str:
    """A float; PyYAML reads an exponent only behind a fraction, and with its sign."""
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, e, exponent = repr(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + e + exponent


def _spelt(value: Spelling) -> str:
    """JSON text in its spelling where PyYAML reads that as JSON does."""
    try:
        meant = json.loads(value)
    except ValueError:
        raise NotWritable(f"{value} is no value") from None
    if isinstance(meant, int | float):
        found = resolve(value)[1]
        if type(found) is type(meant) and found == meant:
            return str(value)
    return flow(meant)


def _text(value: str, quote: str) -> str:
    if is_open(value):
        raise NotWritable("this text would be a placeholder")
    if not quote and _PLAIN.fullmatch(value) and resolve_or_none(value) == ("string", value):
        return value
    if quote == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    if any("\ud800" <= each <= "\udfff" for each in value):
        raise NotWritable("this text has no UTF-8")
    return "".join(
        each if each.isprintable() or each == " " else _escape(each)
        for each in json.dumps(value, ensure_ascii=False)
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def resolve_or_none(text: str) -> tuple[str, object] | None:
    """What a plain scalar is; None where PyYAML fails."""
    try:
        return resolve(text)
    except ValueError:
        return None


def _unit(document: Document) -> str:
    """The indentation that the first section has more than what it stands in."""
    text = document.text
    for _, node in document.objects():
        for entry in node.entries:
            below = entry.node
            if below.kind != "object" or not below.entries or text[below.span.start] in "{*":
                continue
            inner = line_indent(text, below.span.start)
            added = inner.removeprefix(line_indent(text, entry.key_span.start))
            if added and "\n" in text[entry.key_span.end : below.span.start]:
                return added
    return "  "
