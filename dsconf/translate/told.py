"""A source as it was read: the Plan with where it comes from, and the DeepSpeed config in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dsconf.formats.outcome import Item
from dsconf.formats.reading import Reading


class Held(NamedTuple):
    """The DeepSpeed config that a source is, holds, or names."""

    settings: Mapping[str, Any]
    keys: frozenset[str]
    """The keys of the source that stand for it."""
    path: str | None = None
    """The file that is nothing but it, and that any JSON reader reads."""


class Told(NamedTuple):
    """What a source says."""

    reading: Reading
    deepspeed: Held | None = None


def with_values(settings: Mapping[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """A DeepSpeed config with other values, by dotted path."""
    root = dict(settings)
    for path, value in values.items():
        *above, name = path.split(".")
        section = root
        for key in above:
            inner = section.get(key)
            section[key] = dict(inner) if isinstance(inner, Mapping) else {}
            section = section[key]
        section[name] = value
    return root


def without(settings: Mapping[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """A DeepSpeed config without some of its keys, by dotted path."""

    def left(section: Mapping[str, Any], above: str) -> dict[str, Any]:
        return {
            key: left(value, f"{above}{key}.") if isinstance(value, Mapping) else value
            for key, value in section.items()
            if f"{above}{key}" not in paths
        }

    return left(settings, "")


def kept(told: Told) -> Reading:
    """The Reading for a target that trains with DeepSpeed, too: what its config says is kept as it is."""
    reading, held = told.reading, told.deepspeed
    if held is None:
        return reading
    items = [
        item if item.key not in held.keys or item.outcome == "rejected-by-source" else _as_it_is(item)
        for item in reading.items
        if item.written or item.key not in held.keys
    ]
    remarks = {key: remark for key, remark in reading.remarks.items() if key not in held.keys}
    in_force = {key: default for key, default in reading.in_force.items() if key not in held.keys}
    return reading._replace(items=items, remarks=remarks, in_force=in_force)


def _as_it_is(item: Item) -> Item:
    return item._replace(outcome="exact", target="", note="", action=None)
