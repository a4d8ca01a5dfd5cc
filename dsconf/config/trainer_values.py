"""What becomes of values that TrainingArguments hands on to plugins of Accelerate, and of those that Axolotl checks.

TrainingArguments reads each key of fsdp_config in a way of its own: as a word for true or false, as Python's truth
value, as an exact word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsconf.config.coerce import OTHER_READERS, Invalid, Node, coerce, expected
from dsconf.config.environment import Refused, truth


def taken(node: Node, value: object) -> object | Invalid:
    """What TrainingArguments makes of `value` in the key that `node` of a key table describes."""
    try:
        return WAYS.get(node.get("way", "kept"), _kept)(node, value)
    except Refused as refused:
        return Invalid(refused.fails, expected(node))
    except (TypeError, ValueError, OverflowError):
        return Invalid("init", expected(node))


def checked(node: Node, value: object) -> object | Invalid:
    """What pydantic makes of `value` where null says no more than leaving the key out."""
    if value is None and node.get("nullable"):
        return node.get("default")
    return coerce(node, "pydantic", value, strict=True)


def _kept(node: Node, value: object) -> object:
    return value


def _flag(node: Node, value: object) -> object:
    """A value that is read as a word for true or false."""
    return truth(value)


def _truth(node: Node, value: object) -> object:
    return bool(value)


def _version(node: Node, value: Any) -> object:
    """What Python's own int() makes of it; a version that there is not is let through."""
    return int(value)


def _word(node: Node, value: object) -> object:
    """One of the words, exactly."""
    if value not in node["values"]:
        raise Refused
    return value


def _count(node: Node, value: Any) -> object:
    """An integer, of which only a positive one is handed on."""
    if value > 0 and not isinstance(value, int):
        raise Refused
    return int(value) if value > 0 else 0


def _names(node: Node, value: Any) -> object:
    """Names in one text or a list."""
    if value is not None and not isinstance(value, str):
        ",".join(value)
    return value


def _prefetch(node: Node, value: object) -> object:
    """A word in any case, or its number as text."""
    if not isinstance(value, str):
        raise Refused
    return _member(node, value)


def _shards(node: Node, value: object) -> object:
    """A word in any case, or its number as text. A number is let through, and then equal to none of them."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Refused("step")
    return _member(node, value)


def _member(node: Node, value: str) -> object:
    words, text = node["values"], value.upper()
    if text.isdecimal():
        if not 1 <= int(text) <= node["numbered"]:
            raise Refused
        return words[int(text) - 1]
    return _word(node, text)


WAYS: dict[str, Callable[[Node, Any], object]] = {
    "flag": _flag,
    "truth": _truth,
    "version": _version,
    "word": _word,
    "count": _count,
    "names": _names,
    "prefetch": _prefetch,
    "shards": _shards,
}
"""By the name that a key table gives it (`way`) how a value is read; any other is kept."""
OTHER_READERS["trainer"] = taken
OTHER_READERS["lax"] = checked
