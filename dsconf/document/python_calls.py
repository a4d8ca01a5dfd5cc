"""Calls in a Python file whose keywords are a config. No code is run."""

from __future__ import annotations

import ast

from dsconf.document.node import Entry, Node, Span
from dsconf.document.python_dicts import Places, parse_python, plain_node

_SUBCLASSES = (
    "SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "PPOConfig", "RewardConfig",
    "RLOOConfig", "GKDConfig",
)  # fmt: skip
"""Classes of trl that are TrainingArguments by another name."""


def training_arguments(text: str) -> list[Node]:
    """The arguments of each call of TrainingArguments or a class of that kind, as an object, in the order of the text.

    A value that is no literal is of the kind "unknown", and an object is open where a call unpacks something. Of the
    arguments without a name only the first one counts, which is output_dir.
    Raises NotPython.
    """
    tree = parse_python(text)
    places = Places(text)
    aliases = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname and _is_arguments(alias.name)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node, aliases)]
    return sorted((_object(call, places) for call in calls), key=lambda node: node.span)


def _is_arguments(name: str) -> bool:
    return name.endswith("TrainingArguments") or name in _SUBCLASSES


def _called(call: ast.Call, aliases: set[str]) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return _is_arguments(name) or name in aliases


def _object(call: ast.Call, places: Places) -> Node:
    found = Node("object", 0)
    found.span = places.span(call)
    found.open = any(isinstance(argument, ast.Starred) for argument in call.args)
    if call.args and not found.open:
        value = plain_node(call.args[0], places)
        found.entries.append(Entry("output_dir", value.span, value))
    for keyword in call.keywords:
        if keyword.arg is None:
            found.open = True
            continue
        start = places.offset(keyword.lineno, keyword.col_offset)
        span = Span(start, start + len(keyword.arg))
        found.entries.append(Entry(keyword.arg, span, plain_node(keyword.value, places)))
    return found
