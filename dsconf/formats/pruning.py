"""What of a key table holds for one file: a value that nobody will read in it can't be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_READING = ("type", "values", "items", "min", "way", "numbered", "wrong_fails")
"""What a node says of values that are read."""


def pruned(node: Mapping[str, Any], hold: frozenset[str], *, read: bool = True) -> dict[str, Any]:
    """A node of a key table, with all below it, where the conditions `hold` by which keys are read (`read_if`)."""
    read = read and node.get("read_if", "") in {"", *hold}
    if "alias" in node:
        return dict(node)
    if "keys" not in node:
        if read:
            return dict(node)
        return {"type": "any", **{name: said for name, said in node.items() if name not in _OF_READING}}
    if not read:
        node = {**node, "way": "section"}  # whatever stands there is passed over
    return {**node, "keys": {name: pruned(below, hold, read=read) for name, below in node["keys"].items()}}
