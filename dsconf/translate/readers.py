"""What can be translated: each format with its reader, and those that hold or name a DeepSpeed config with that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.document.source import Unusable
from dsconf.formats.accelerate import read_deepspeed as accelerate
from dsconf.formats.axolotl.arguments import given as of_axolotl
from dsconf.formats.deepspeed.read import read as read_deepspeed
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Reading
from dsconf.formats.trainer import merge as trainer
from dsconf.lint.beside import NAMED_BY
from dsconf.lint.consumer import config_of


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


def read(config: Config) -> Told:
    """Read a Config of any format that lint has no error for.

    Raises Unusable where it names a DeepSpeed config that is not there, or can't be read.
    """
    if config.format == "deepspeed":
        return _of_deepspeed(config)
    reading: Reading = import_module(f"dsconf.formats.{config.format}.read").read(config)
    if not reading.source.endswith("-deepspeed"):
        return Told(reading)
    if config.format == "accelerate":
        return _of_accelerate(config)
    return _of_arguments(config, reading)


def _of_deepspeed(config: Config) -> Told:
    reading = read_deepspeed(config)
    whole = config.document.language == "json" and not (config.overrides or config.document.relaxations)
    path = config.document.path if whole else None
    return Told(reading, Held(_settings(config), _keys(reading), path))


def _of_accelerate(config: Config) -> Told:
    flat = accelerate.settings_of(config)
    if flat is None:
        beside = _beside(config)
        inner = read_deepspeed(beside)
        return Told(accelerate.join_file(config, inner), _held(beside, _keys(inner)))
    document = scan(config.document.path, json.dumps(flat.settings), reader="json")
    inner = read_deepspeed(config_of(document, config.context._replace(consumer="accelerate")))
    return Told(accelerate.join(config, flat, inner), Held(flat.settings, frozenset(flat.sources.values())))


def _of_arguments(config: Config, reading: Reading) -> Told:
    beside = _beside(config)
    given = of_axolotl(config) if config.format == "axolotl" else trainer.given(config)
    values = trainer.handed(given, beside)
    inner = read_deepspeed(config_of(beside.document, beside.context, values | beside.overrides))
    merged = trainer.merge(reading, inner)
    return Told(merged, _held(beside, (f"{trainer.PREFIX}{key}" for key in _keys(inner)), values))


def _keys(reading: Reading) -> frozenset[str]:
    """Every key that a Reading of a DeepSpeed config speaks of."""
    return frozenset([*reading.written, *reading.in_force, *(item.key for item in reading.items)])


def _beside(config: Config) -> Config:
    """The DeepSpeed config that the file holds or names."""
    beside = config.beside.get("ds")
    if beside is None:
        entry = config.entry(NAMED_BY[config.format][0])
        message = "this DeepSpeed config can't be read here: the translation is that of what stands in it"
        raise Unusable("unreadable-file", message, entry.node.span if entry else None, config.document.text)
    return beside


def _held(beside: Config, keys: Iterable[str], values: Mapping[str, object] | None = None) -> Held:
    path = beside.document.path if not beside.overrides and beside.document.language == "json" else None
    return Held(_settings(beside, values), frozenset(keys), path)


def _settings(config: Config, values: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The values of a DeepSpeed Config as they stand in the file, with those of --set and of `values` by path."""
    plain = config.document.root.plain()
    return with_values(plain if isinstance(plain, Mapping) else {}, {**(values or {}), **config.overrides})


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
