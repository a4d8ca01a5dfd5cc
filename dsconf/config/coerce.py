"""What DeepSpeed ends up with for a value as it is written, one key at a time.

It repeats the lax conversions of pydantic without importing it: lint runs this for every key of a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Node = Mapping[str, Any]
Fails = Literal["parse", "launch", "init", "step"]

# What pydantic strips around a number: Unicode's white space, which str.strip() only nearly is.
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_TRUE = ("1", "on", "t", "true", "y", "yes")
_FALSE = ("0", "off", "f", "false", "n", "no")
_NUMBERS = ("int", "float")

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "list": "a list",
    "object": "an object",
    "any": "any value",
    "null": "nothing: JSON can't hold it",
}
_PLURALS = {"int": "integers", "float": "numbers", "bool": "booleans", "str": "strings", "object": "objects"}
_CONVERTERS: dict[str, Callable[[Any], object]] = {"int": int, "str": str, "bool": bool}
_LIMITS = (("exclusive_min", "above"), ("max", "up to"), ("exclusive_max", "below"))


class Invalid(NamedTuple):
    """A value that DeepSpeed refuses."""

    fails: Fails
    """When: reading the config, before the workers start, in deepspeed.initialize or when Accelerate is set up, or
    in the first step that needs the value."""
    expected: str
    """What should stand there, in words: "an integer", "one of 0, 1, 2, 3"."""


OTHER_READERS: dict[str, Callable[[Node, Any], object | Invalid]] = {}
"""What becomes of values elsewhere, by reader: `dsconf.config.environment` adds itself."""


class _Refused(Exception):
    pass


def coerce(node: Node, reader: str, value: object, *, strict: bool = False) -> object | Invalid:
    """What becomes of `value` in the key that `node` of a key table describes.

    `reader` is that of the section that holds the key: "pydantic" converts, and takes "auto" for an absent key,
    but not where the section is `strict`; "raw" keeps a value as it is; "environment" hands it on as text.
    """
    if node.get("status") == "removed":
        return Invalid(node.get("wrong_fails", "parse"), "nothing: the key was removed")
    types = types_of(node)
    if "object" in types and isinstance(value, dict):
        return value
    if reader in OTHER_READERS:
        return OTHER_READERS[reader](node, value)
    if "object" in types and value is None and node.get("nullable"):
        return node.get("default")
    if reader == "raw":
        return _raw(node, types, value)
    if value == "auto" and not strict:
        return node.get("default")
    try:
        return (_lax_v1 if node.get("pydantic") == 1 else _lax)(node, types, value)
    except _Refused:
        return Invalid("parse", expected(node))


def expected(node: Node) -> str:
    """What a key takes, in words."""
    types = types_of(node)
    values = [json.dumps(value) for value in node.get("values", ())]
    if types == ["null"] and node.get("nullable"):
        return "null"
    if values and len(types) == 1:
        words = "one of " + ", ".join(values)
    else:
        parts = [_words(node, kind) for kind in types if kind != "str" or not values]
        words = " or ".join(parts + values)
    return words + (" or null" if node.get("nullable") else "")


def _words(node: Node, kind: str) -> str:
    if kind == "list" and "item_values" in node:
        return "a list of " + ", ".join(json.dumps(value) for value in node["item_values"])
    if kind == "list" and "items" in node:
        return f"a list of {_PLURALS[node['items']]}"
    words = _WORDS[kind] + (", not empty" if node.get("not_empty") else "")
    if kind not in _NUMBERS:
        return words
    if "min" in node and "max" in node:
        return f"{words} from {node['min']} to {node['max']}"
    if "min" in node:
        return f"{words} of {node['min']} or more"
    limits = [f"{word} {node[name]}" for name, word in _LIMITS if name in node]
    return " ".join([words, " and ".join(limits)]).strip()


def types_of(node: Node) -> list[str]:
    """The types that a key takes."""
    kinds = node.get("type", "any")
    return [kinds] if isinstance(kinds, str) else kinds


def _in_bounds(node: Node, number: float) -> bool:
    return not (
        ("min" in node and not number >= node["min"])
        or ("max" in node and not number <= node["max"])
        or ("exclusive_min" in node and not number > node["exclusive_min"])
        or ("exclusive_max" in node and not number < node["exclusive_max"])
    )


def _raw(node: Node, types: list[str], value: object) -> object | Invalid:
    if "any" in types:
        return value
    if node.get("not_empty"):
        return value or Invalid("parse", expected(node))
    if node.get("converts"):
        return _converted(node, types, value)
    wrong: Fails | None = node.get("wrong_fails")
    if "object" in types:
        if "bool" in types and isinstance(value, bool):
            return value
        return Invalid(wrong or "parse", expected(node))
    if "int" in types or "float" in types or node.get("items") == "float":
        fails = _raw_number_fails(node, types, value)
    elif wrong is None or (value is None and node.get("nullable")):
        fails = None
    elif "bool" in types:
        # Either it is compared with true and false, or combined with another by `|`.
        fits = value in node["values"] if "values" in node else isinstance(value, int)
        fails = None if fits else wrong
    elif node.get("iterated") and isinstance(value, str | dict):
        fails = None
    else:
        text = _in_declared_case(node, value) if node.get("ignore_case") else value
        if _raw_text_fits(node, types, text):
            return text
        fails = wrong
    return value if fails is None else Invalid(fails, expected(node))


def _converted(node: Node, types: list[str], value: object) -> object | Invalid:
    """What Python's own int(), str() or bool() makes of a value."""
    try:
        return _CONVERTERS[types[0]](value)
    except (TypeError, ValueError, OverflowError):
        return Invalid("parse", expected(node))


def _in_declared_case(node: Node, value: object) -> object:
    if not isinstance(value, str):
        return value
    return next((known for known in node["values"] if known.lower() == value.lower()), value)


def _raw_number_fails(node: Node, types: list[str], value: object) -> Fails | None:
    """When a value fails that is used as a number without a look at it before."""
    quoted: Fails | None = node.get("quoted_fails")
    fails: Fails | None = node.get("wrong_fails", quoted)
    if value is None:
        return None if node.get("nullable") else fails
    if isinstance(value, int | float) and ("int" in types or "float" in types):
        fits = _in_bounds(node, value) and (isinstance(value, int) or not node.get("int_only"))
        return None if fits else fails
    if isinstance(value, list) and "list" in types:
        return quoted if any(isinstance(item, str) for item in value) else None
    if isinstance(value, str) and quoted is None:
        # Nothing notices the string, or float() reads it.
        try:
            return None if fails is None or _in_bounds(node, float(value)) else fails
        except ValueError:
            return fails
    return fails


def _raw_text_fits(node: Node, types: list[str], value: object) -> bool:
    if isinstance(value, str):
        return "str" in types and value in node.get("values", (value,))
    if isinstance(value, list):
        kind = dict if node.get("items") == "object" else str
        return "list" in types and all(isinstance(item, kind) for item in value)
    return False


def _lax(node: Node, types: list[str], value: object) -> object:
    """The value that pydantic's lax mode makes of it. Raises _Refused."""
    if (value is None and node.get("nullable")) or "any" in types:
        return value
    if "str" in types and isinstance(value, str):
        if value not in node.get("values", (value,)):
            raise _Refused
        return [value] if "list" in types else value
    if "list" in types and isinstance(value, list):
        if node.get("items") == "str" and not all(isinstance(item, str) for item in value):
            raise _Refused
        if not all(item in node.get("item_values", value) for item in value):
            raise _Refused
        # What takes a single string too is made a list without repetitions.
        return list(dict.fromkeys(value)) if "str" in types else value
    if "bool" in types:
        return _bool(value)
    if "int" in types:
        number: float = _int(value, node)
    elif "float" in types:
        number = _float(value, node)
    else:
        raise _Refused
    # Of several types, `values` restricts the strings only.
    if not _in_bounds(node, number) or (len(types) == 1 and number not in node.get("values", (number,))):
        raise _Refused
    return number


def _lax_v1(node: Node, types: list[str], value: Any) -> object:
    """What pydantic 1, with which DeepSpeed read its sections before 0.15, makes of a value. Raises _Refused."""
    if value is None and node.get("nullable"):
        return None
    if "object" in types and value in ([], ""):
        return {}  # it calls dict()
    if "list" in types and isinstance(value, list):
        return value
    try:
        if "values" in node:
            # An Enum, to which 3.0 and true are numbers, but "3" is not.
            return node["values"][node["values"].index(value)]
        if "bool" in types:
            return _bool(value)
        if "int" in types or "float" in types:
            number = int(value) if "int" in types else float(value)
            if _in_bounds(node, number):
                return number
    except (TypeError, ValueError, OverflowError):
        raise _Refused from None
    if "str" in types and isinstance(value, int | float | str):
        return str(value)
    raise _Refused


def _bool(value: object) -> bool:
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
    raise _Refused


def _int(value: object, node: Node) -> int:
    if node.get("python_number"):
        _python_number(value, int)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        # Only what a signed 64-bit integer holds; not false for inf and nan either.
        if not -(2.0**63) < value < 2.0**63 or value != int(value):
            raise _Refused
        return int(value)
    if not isinstance(value, str):
        raise _Refused
    # A sign, ASCII digits with single underscores between them, and zeros after a point.
    whole, point, rest = value.strip(_SPACE).partition(".")
    if not whole.isascii() or not whole[-1:].isdigit() or not (whole[:1].isdigit() or whole[:1] in "+-"):
        raise _Refused
    if point and (not rest or rest.strip("0")):
        raise _Refused
    try:
        return int(whole)
    except ValueError:
        raise _Refused from None


def _float(value: object, node: Node) -> float:
    if node.get("python_number"):
        return _python_number(value, float)
    if isinstance(value, str):
        text = value.strip(_SPACE)
        if "_" in value:
            if value.startswith("_") or value.endswith("_") or "__" in value:
                raise _Refused
            text = value.replace("_", "")
        if not text.isascii() or text != text.strip():
            raise _Refused
    elif isinstance(value, int | float):
        text = ""
    else:
        raise _Refused
    try:
        return float(text or value)
    except (ValueError, OverflowError):
        raise _Refused from None


def _python_number(value: object, kind: type[int] | type[float]) -> float:
    """What the validators of fp16 make of a value: Python's int() or float(), no booleans, finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Refused
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        raise _Refused from None
    if number - number != 0:
        raise _Refused
    return number
