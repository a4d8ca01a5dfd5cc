"""Whether what a compiled rule reads exists: keys, facts, fields of the context."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dsconf.config.context import Context, Gpu, Model
from dsconf.config.effective import BESIDE
from dsconf.config.tables import Spec, spec_at
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.nearest import nearest

_OPERATORS = {
    "==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/", "//", "%", "and", "or", "not", "list",
    "object",
    "optimizer_known", "nearest_optimizer", "scheduler_known", "nearest_scheduler", "since",
}  # fmt: skip
_INNER = {"gpu": Gpu._fields, "model": Model._fields}
"""The fields of fields of the context."""
_VERSION = re.compile(r"\d+(\.\d+)+")
_PATHS = ("path", "present", "auto", "spelt")
_READING = ("when", "severity", "fails", "at", "message", "help", "related", "fix")


def operations(value: Any) -> Iterator[list[Any]]:
    """Every operation inside of something compiled, itself first."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        if value and isinstance(value[0], str) and (value[0] in _OPERATORS or len(value) == 2):
            yield value
        for element in value:
            yield from operations(element)


def leaves(entry: dict[str, Any], *kinds: str) -> set[str]:
    """The arguments of all leaves of these kinds in a compiled rule."""
    parts = [entry.get(field) for field in _READING]
    return {code[1] for code in operations(parts) if code[0] in kinds and isinstance(code[1], str)}


def faults(entry: dict[str, Any], table: Spec, facts: Iterable[str]) -> Iterator[str]:
    """What a rule reads and does not exist."""
    paths = (
        leaves(entry, *_PATHS)
        | {path for _, path in entry["at"]}
        | {path for path, _ in entry["related"]}
        | {path for _, fix in entry["fix"] for _, path, _ in fix["edits"]} - {"key"}
    )
    for path in sorted(paths):
        name, _, inside = path.partition(".")
        holder, place = (load_keys(), inside) if name in BESIDE else (table, path)
        try:
            spec_at(holder, place)
        except KeyError:
            yield f"no key {path}{_meant(place, _keys(holder, place))}"
    for name in sorted(leaves(entry, "fact") - set(facts)):
        yield f"no fact.{name}{_meant(name, facts)}"
    for name in sorted(leaves(entry, "context")):
        field, _, inner = name.partition(".")
        if field not in Context._fields:
            yield f"no context.{name}{_meant(name, Context._fields)}"
        elif inner and inner not in _INNER.get(field, ()):
            yield f"no context.{name}{_meant(inner, _INNER.get(field, ()))}"
    for code in operations([entry.get(field) for field in _READING]):
        if code[0] == "since" and not _is_version(code[1]):
            yield "since() takes a version in quotes, such as '0.19.3'"


def _is_version(argument: list[Any]) -> bool:
    return argument[0] == "literal" and bool(_VERSION.fullmatch(str(argument[1])))


def _keys(table: Spec, path: str) -> list[str]:
    """The paths beside a path that does not exist: those of the deepest section on its way."""
    above = ""
    spec = table
    for key in path.split("."):
        below = spec.get("keys", {}).get(key, spec.get("each"))
        if below is None:
            break
        spec, above = below, f"{above}{key}."
    return [above + key for key in spec.get("keys", {})]


def _meant(name: str, known: Iterable[str]) -> str:
    meant = nearest(name, known)
    return f": did you mean {meant}?" if meant else ""
