"""Key tables, and what is computed once for each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

Spec = Mapping[str, Any]
"""A node of a key table (see `dsconf.formats.table`)."""

_Value = TypeVar("_Value")
_FILE = "keys.json"
_MOST = 16
"""Tables to remember: one for each target version of a run, as a rule one in all."""


@cache
def table_beside(module: str) -> dict[str, Any]:
    """The root of the key table that stands in the folder of a module, which is given by its file."""
    folder = os.path.dirname(os.path.abspath(module))  # noqa: PTH100, PTH120  pathlib costs start-up time
    with open(os.path.join(folder, _FILE), encoding="utf-8") as handle:  # noqa: PTH118, PTH123
        table: dict[str, Any] = json.load(handle)
    return table


def per_table(function: Callable[[Spec], _Value]) -> Callable[[Spec], _Value]:
    """Call a function of a whole table once for each table, which nobody changes: a run asks for it with every key."""
    known: dict[int, tuple[Spec, _Value]] = {}

    def remembered(table: Spec) -> _Value:
        found = known.get(id(table))
        if found is None:
            if len(known) == _MOST:
                known.clear()
            # Holding the table keeps its id from being given to another one.
            found = known[id(table)] = (table, function(table))
        return found[1]

    return remembered


@per_table
def _places(_table: Spec) -> dict[str, tuple[Spec, Spec]]:
    return {}


def spec_at(table: Spec, path: str) -> tuple[Spec, Spec]:
    """The table's nodes of the section that holds `path` and of the key itself. Raises KeyError."""
    places = _places(table)
    place = places.get(path)
    if place is None:
        place = places[path] = _find(table, path)
    return place


def _find(table: Spec, path: str) -> tuple[Spec, Spec]:
    section, spec = table, table
    for key in path.split("."):
        section, below = spec, spec.get("keys", {}).get(key, spec.get("each"))
        if below is None:
            raise KeyError(path)
        spec = below
    return section, spec
