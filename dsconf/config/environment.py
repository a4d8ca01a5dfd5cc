"""What a worker ends up with for a value that Accelerate's launcher hands on in an environment variable.

The launcher makes text of a value as YAML or JSON gives it, and the plugins in the workers read that text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsconf.config.coerce import OTHER_READERS, Fails, Invalid, Node, expected, types_of

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")
_ALL_DEVICES = ("auto", "gpu", "cpu")
_PORTS = 65536
_TORCH_NAMES = {"_HYBRID_SHARD_ZERO2": "HYBRID_SHARD_ZERO2"}
"""Members of torch's enumerations that Accelerate calls by another name, and takes by both."""


class Refused(Exception):
    """The value fails, and when."""

    def __init__(self, fails: Fails = "init") -> None:
        super().__init__(fails)
        self.fails: Fails = fails


def arriving(node: Node, value: object) -> object | Invalid:
    """What the worker makes of `value` in the key that `node` of a key table describes."""
    if "any" in types_of(node):
        return value
    if value is None and node.get("nullable"):
        return node.get("default")  # not handed on
    try:
        return WAYS[node.get("way", "text")](node, value)
    except Refused as refused:
        return Invalid(refused.fails, expected(node))


def truth(value: object) -> bool:
    """A value that is read as a word for true or false. Raises Refused."""
    text = str(value).lower()
    if text not in _TRUE + _FALSE:
        raise Refused
    return text in _TRUE


def number(value: object) -> int:
    """A value that is read as an integer. Raises Refused."""
    try:
        return int(str(value))
    except ValueError:
        raise Refused from None


def _text(node: Node, value: object) -> object:
    return str(value)


def _flag(node: Node, value: object) -> object:
    return truth(value)


def _true_word(node: Node, value: object) -> object:
    """Only "true" counts as true; nothing is refused."""
    return str(value).lower() == "true"


def _integer(node: Node, value: object) -> object:
    found = number(value)
    if found not in node.get("values", (found,)) or found < node.get("min", found):
        raise Refused
    return found


def _size(node: Node, value: object) -> object:
    """A size that the launcher itself compares with 1."""
    if not isinstance(value, int | float):
        raise Refused("launch")
    return _integer(node, value)


def _steps(node: Node, value: object) -> object:
    """A number without any sign or space, or the word "auto"."""
    text = str(value)
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < node["min"]:
        raise Refused
    return int(text)


def _clipping(node: Node, value: object) -> object:
    text = str(value).lower()
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise Refused from None


def _word(node: Node, value: object) -> object:
    """One of the words, exactly."""
    return _one_of(node, str(value))


def _member(node: Node, value: object) -> object:
    """The name of a member of an enumeration in any case, or its number from 1 on where the names have one."""
    text = str(value).upper()
    numbers = node.get("numbered", 0)
    if text.isdecimal() and numbers:
        if not 1 <= int(text) <= numbers:
            raise Refused
        return node["values"][int(text) - 1]
    return _one_of(node, _TORCH_NAMES.get(text, text))


def _device(node: Node, value: object) -> object:
    return _one_of(node, str(value).lower())


def _launcher(node: Node, value: object) -> object:
    if str(value).lower() not in node["values"]:
        raise Refused("launch")
    return str(value)


def _kernel(node: Node, value: object) -> object:
    """One of the words, or the name of an attention kernel of the Hugging Face hub."""
    text = str(value)
    return text if "/" in text and "flash-attn" in text else _one_of(node, text)


def _length(node: Node, value: object) -> object:
    return None if str(value) == "None" else number(value)


def _precision(node: Node, value: object) -> object:
    return _lower_or_upper(node, value, str.lower)


def _backend(node: Node, value: object) -> object:
    return _lower_or_upper(node, value, str.upper).lower()


def _lower_or_upper(node: Node, value: object, change: Callable[[str], str]) -> str:
    if not isinstance(value, str) or change(value).lower() not in node["values"]:
        raise Refused("launch")
    return change(value)


def _enum(node: Node, value: object) -> object:
    """A word that the loader looks up; what is no text is let through, and equal to none of them."""
    if value not in node["values"] and isinstance(value, str):
        raise Refused("parse")
    return value


def _place(node: Node, value: object) -> object:
    """A word that the loader looks up."""
    if value not in node["values"]:
        raise Refused("parse")
    return value


def _ids(node: Node, value: object) -> object:
    if not isinstance(value, str):
        raise Refused("launch")
    return value


def _processes(node: Node, value: object) -> object:
    """The number of workers, of which torchrun makes an integer unless it is a word for all there are.

    -1 leaves it to the command line.
    """
    if value in _ALL_DEVICES:
        return value
    found = _launch_number(value)
    if found < 1 and found != -1:
        raise Refused("launch")
    return found


def _machines(node: Node, value: object) -> object:
    """The number of machines, which the launcher compares with 1 before torchrun makes an integer of it."""
    if not isinstance(value, int | float) or (isinstance(value, float) and value > 1):
        raise Refused("launch")
    return value


def _port(node: Node, value: object) -> object:
    """A number for a socket, or 0 for a free one."""
    if value == 0:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _PORTS:
        raise Refused("launch")
    return value


def _cpu(node: Node, value: object) -> object:
    """A flag that the launcher itself reads."""
    try:
        return truth(value)
    except Refused:
        raise Refused("launch") from None


def _launch_number(value: object) -> int:
    try:
        return number(value)
    except Refused:
        raise Refused("launch") from None


def _section(node: Node, value: object) -> object:
    """A section; what is none is passed over."""
    return {}


def _keys(node: Node, value: object) -> object:
    """A section whose keys the launcher asks for."""
    raise Refused("launch")


def _kept(node: Node, value: object) -> object:
    return value


def _unused(node: Node, value: object) -> object:
    """A value that gets nowhere: the launcher goes on with what it has without it."""
    return node.get("default")


def _one_of(node: Node, text: str) -> str:
    if text not in node["values"]:
        raise Refused
    return text


WAYS: dict[str, Callable[[Node, Any], object]] = {
    "text": _text,
    "flag": _flag,
    "true-word": _true_word,
    "integer": _integer,
    "size": _size,
    "steps": _steps,
    "clipping": _clipping,
    "word": _word,
    "member": _member,
    "device": _device,
    "launcher": _launcher,
    "kernel": _kernel,
    "length": _length,
    "precision": _precision,
    "backend": _backend,
    "enum": _enum,
    "ids": _ids,
    "place": _place,
    "processes": _processes,
    "machines": _machines,
    "port": _port,
    "cpu": _cpu,
    "section": _section,
    "keys": _keys,
    "kept": _kept,
    "unused": _unused,
}
"""By the name that a key table gives it (`way`) how a value is read."""
OTHER_READERS["environment"] = arriving
