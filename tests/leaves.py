"""Whether the report of a translation holds every key that is written, and each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dsconf.formats.deepspeed.keys import load_keys
from dsconf.translate.report import Report


def leaves(value: object, path: str = "") -> set[str]:
    """The dotted paths of all that is no object, or an empty one."""
    if isinstance(value, dict) and value:
        return set().union(*(leaves(v, f"{path}.{key}" if path else key) for key, v in value.items()))
    return {path}


def canonical(path: str) -> str:
    """A path in the spelling that DeepSpeed's own code uses."""
    node: Mapping[str, Any] = load_keys()
    names = []
    for key in path.split("."):
        spec = node.get("keys", {}).get(key, node.get("each", {}))
        if "alias" in spec:
            key = spec["alias"]
            spec = node["keys"][key]
        names.append(key)
        node = spec
    return ".".join(names)


def _upwards(path: str) -> set[str]:
    names = path.split(".")
    return {".".join(names[:depth]) for depth in range(1, len(names) + 1)}


def faults(source: object, report: Report) -> Iterator[str]:
    """What is wrong with the report of a config; an item may stand for a whole section, by naming it."""
    keys = [item.key for item in report.items]
    yield from (f"{key} is in the report twice" for key in set(keys) if keys.count(key) > 1)
    written = {item.key for item in report.items if item.written}
    for leaf in leaves(source) - {""}:
        # A key that is there in two spellings has an item for each, the one that does not count as it is spelt.
        items = written & _upwards(leaf) or written & _upwards(canonical(leaf))
        if len(items) != 1:
            yield f"{leaf} is in {len(items)} items of the report: {sorted(items)}"
    for item in report.items:
        if item.outcome == "unsupported" and not item.note:
            yield f"{item.key} is unsupported, and nothing says why"
        if not (item.note or item.target):
            yield f"{item.key}: nothing is said of it"
