"""Scalars of YAML as PyYAML's safe_load resolves them: `no` is false, `0777` is octal, and `5e8` is text."""

from __future__ import annotations

import re

from dsconf.document.node import Kind
from dsconf.document.tokens import short, too_long

Resolved = tuple[Kind, object]
"""A kind and the value; "unknown" for what JSON has no value for, such as a date."""

OPEN: Resolved = ("unknown", None)
TAG = "tag:yaml.org,2002:"
"""What the tags that YAML itself has begin with, which are written `!!int`."""

_BOOLEANS = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_INT = re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)")
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_DATE = r"(\d{4})-(\d\d?)-(\d\d?)(?:(?:[Tt]|[ \t]+)\d\d?:\d\d:\d\d(?:\.\d*)?(?:[ \t]*(?:Z|[-+]\d\d?(?::\d\d)?))?)?"
_SPECIAL = ("<<", "=")
"""Text that PyYAML takes for tags of its own, which nothing constructs outside keys."""


def resolve(text: str) -> Resolved:
    """What a plain scalar (one without quotes) is. Raises ValueError, with a message for people, where PyYAML fails."""
    if text in _NULLS:
        return "null", None
    first = text[0]
    if first.isalpha():  # most scalars are words
        return ("boolean", _boolean(text)) if _is_boolean(text) else ("string", text)
    if _INT.fullmatch(text):
        return "number", _integer(text)
    if _FLOAT.fullmatch(text):
        return "number", _float(text)
    if text[4:5] == "-" and _is_date(text):
        return OPEN
    return OPEN if text in _SPECIAL else ("string", text)


def tagged(tag: str, text: str) -> Resolved:
    """What a scalar with a tag is; custom tags, sets and binary data leave it open. Raises ValueError as above."""
    name = tag.removeprefix(TAG) if tag.startswith(TAG) else ""
    try:
        if name == "str":
            return "string", text
        if name == "null":
            return "null", None
        if name == "bool":
            return "boolean", _boolean(text)
        if name == "int":
            return "number", _integer(text)
        if name == "float":
            return "number", _float(text)
    except (LookupError, ValueError):
        raise ValueError(f"!!{name} can't stand before {short(text)}") from None
    return OPEN


def _is_boolean(text: str) -> bool:
    return text.lower() in _BOOLEANS and text in (text.lower(), text.upper(), text.capitalize())


def _boolean(text: str) -> bool:
    return _BOOLEANS[text.lower()]


def _integer(text: str) -> int:
    try:
        sign, digits = _signed(text)
        if digits.startswith("0b"):
            return sign * int(digits, 2)
        if digits.startswith("0x"):
            return sign * int(digits, 16)
        if digits[0] == "0" and digits != "0":
            return sign * int(digits, 8)
        total = 0
        for part in digits.split(":"):
            total = total * 60 + int(part)
        return sign * total
    except ValueError:
        problem = too_long(text) if len(text) > 4000 else f"{short(text)} is meant as a number, and is none"
        raise ValueError(problem) from None


def _float(text: str) -> float:
    sign, digits = _signed(text.lower())
    if digits in (".inf", ".nan"):
        return sign * float(digits[1:])
    # In PyYAML's order, so that the last bits are its bits, too.
    total, base = 0.0, 1
    for part in reversed(digits.split(":")):
        total += float(part) * base
        base *= 60
    return sign * total


def _signed(text: str) -> tuple[int, str]:
    text = text.replace("_", "")
    return (-1 if text.startswith("-") else 1), text[1:] if text[:1] in ("-", "+") else text


def _is_date(text: str) -> bool:
    match = re.fullmatch(_DATE, text, re.ASCII)  # few files have dates
    if match is None or (match.end(3) == len(text) < 10):
        return False
    import datetime

    try:
        datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        raise ValueError(f"{short(text)} reads as a date, and there is no such day") from None
    return True
