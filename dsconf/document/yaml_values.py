"""YAML as PyYAML's safe_load reads it, on ruamel.yaml's parser: `no` is false, and `5e8` is text."""

from __future__ import annotations

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_BOOLEAN = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
_NULL = ("", "~", "null", "Null", "NULL")
_INT = re.compile(r"[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)")
_FLOAT = re.compile(
    r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.(inf|Inf|INF))|\.[0-9][0-9_]*([eE][-+][0-9]+)?|\.(nan|NaN|NAN)"
)
_LONGEST = 1 << 20


def load_yaml(text: str) -> Any:
    """The value of a YAML text. Raises ValueError, naming line and column."""
    if len(text) > _LONGEST:
        raise ValueError("the file is too large for a configuration")
    try:
        node = YAML(typ="rt", pure=True).compose(text)
        return None if node is None else _value(node, {})
    except YAMLError as error:
        raise ValueError(_fault(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _fault(error: YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


def _value(node: Node, known: dict[int, Any]) -> Any:
    """The value of a node; an alias stands for the value of its anchor, which `known` holds by the node's id."""
    if id(node) not in known:
        if isinstance(node, MappingNode):
            known[id(node)] = _mapping(node, known)
        elif isinstance(node, SequenceNode):
            known[id(node)] = [_value(element, known) for element in node.value]
        else:
            known[id(node)] = _scalar(node)
    return known[id(node)]


def _mapping(node: MappingNode, known: dict[int, Any]) -> dict[Any, Any]:
    merged: dict[Any, Any] = {}
    found: dict[Any, Any] = {}
    for key, inner in node.value:
        value = _value(inner, known)
        if not isinstance(key, ScalarNode):
            mark = key.start_mark
            raise ValueError(f"line {mark.line + 1}, column {mark.column + 1}: a key that is no scalar")
        if key.value == "<<" and isinstance(value, dict):
            merged |= value
        else:
            found[_scalar(key)] = value
    return merged | found


def _scalar(node: Node) -> Any:
    text: str = node.value
    if isinstance(node, ScalarNode) and node.style in ("'", '"', "|", ">"):
        return text
    if text in _NULL:
        return None
    if text.lower() in _BOOLEAN and text in (text.lower(), text.upper(), text.capitalize()):
        return _BOOLEAN[text.lower()]
    if _INT.fullmatch(text):
        return _integer(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    base = 2 if digits.startswith("0b") else 16 if digits.startswith("0x") else 8 if digits[0] == "0" else 10
    return sign * int(digits, base)
