"""What can be translated: each format with its reader, and those that hold or name a DeepSpeed config with that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.document.source import Unusable
from dsconf.formats.reading import Reading
from dsconf.lint.beside import NAMED_BY
from dsconf.lint.consumer import config_of
from dsconf.translate.rooms import room
from dsconf.translate.told import Held, Told, with_values

READ = ("deepspeed", "accelerate", "trainer", "axolotl")
"""The formats of lint that are translated, too."""
_DISTRIBUTES = ("fully_shard", "DistributedDataParallel", "replicate")
_FSDP1 = "FullyShardedDataParallel"


def is_code(path: str, text: str) -> bool:
    """Whether a file is Python code that distributes a model itself, by a name in it; others may hold a config."""
    return path.endswith(".py") and any(name in text for name in _DISTRIBUTES)


def is_older_code(path: str, text: str) -> bool:
    """Whether a file that holds no config is code for FSDP1, of which the reader of code says why it is not read."""
    return path.endswith(".py") and _FSDP1 in text


def read_code(path: str, text: str, given: Mapping[str, object]) -> Reading:
    """Read FSDP2 code, with values by key for what only a run determines. Raises Unusable where it is none."""
    reading: Reading = room("fsdp2.read").read(text, path, given)
    return reading


def _read_deepspeed(config: Config) -> Reading:
    reading: Reading = room("deepspeed.read").read(config)
    return reading


def read(config: Config) -> Told:
    """Read a Config of any format that lint has no error for.

    Raises Unusable where it names a DeepSpeed config that is not there, or can't be read.
    """
    if config.format == "deepspeed":
        return _of_deepspeed(config)
    reading: Reading = room(f"{config.format}.read").read(config)
    if not reading.source.endswith("-deepspeed"):
        return Told(reading)
    if config.format == "accelerate":
        return _of_accelerate(config)
    return _of_arguments(config, reading)


def _of_deepspeed(config: Config) -> Told:
    reading = _read_deepspeed(config)
    whole = config.document.language == "json" and not (config.overrides or config.document.relaxations)
    path = config.document.path if whole else None
    settings = _settings(config)
    return Told(reading, None if _is_open(settings) else Held(settings, _keys(reading), path))


def _of_accelerate(config: Config) -> Told:
    accelerate = room("accelerate.read_deepspeed")
    flat = accelerate.settings_of(config)
    if flat is None:
        beside = _beside(config)
        inner = _read_deepspeed(beside)
        return Told(accelerate.join_file(config, inner), _held(config, beside, _keys(inner)))
    if _is_open(flat.settings):
        raise left_open(config, flat.sources.values())
    document = scan(config.document.path, json.dumps(flat.settings), reader="json")
    inner = _read_deepspeed(config_of(document, config.context._replace(consumer="accelerate")))
    return Told(
        accelerate.join(config, flat, inner), Held(flat.settings, _keys(inner) | {*flat.sources.values()})
    )


def _of_arguments(config: Config, reading: Reading) -> Told:
    beside = _beside(config)
    trainer = room("trainer.merge")
    given = room("axolotl.arguments" if config.format == "axolotl" else "trainer.merge").given(config)
    values = trainer.handed(given, beside)
    filled = _read_deepspeed(config_of(beside.document, beside.context, values | beside.overrides))
    inner, put_in = trainer.as_it_stands(filled, beside.as_written)
    keys = (f"{trainer.PREFIX}{key}" for key in _keys(inner) - put_in)
    return Told(trainer.merge(reading, inner, put_in), _held(config, beside, keys, values))


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


def _held(
    config: Config, beside: Config, keys: Iterable[str], values: Mapping[str, object] | None = None
) -> Held | None:
    named = beside.document.path != config.document.path
    whole = beside.document.language == "json" and not (beside.overrides or beside.document.relaxations)
    path = beside.document.path if named and whole else None
    settings = _settings(beside, values)
    return None if _is_open(settings) else Held(settings, frozenset(keys), path)


def left_open(config: Config, keys: Iterable[str]) -> Unusable:
    """What is to be said of a template in which some of the keys have no value that could be translated."""
    asked = {*keys}
    open_ = [item for item in config.written if item.entry.node.plain() is UNKNOWN and item.path in asked]
    paths = ", ".join(item.path for item in open_)
    it = "it" if len(open_) == 1 else "them"
    message = f"the file leaves {paths} open: say {it} with --set, or fill the template in first"
    return Unusable("template-placeholder", message, open_[0].entry.span, config.document.text)


def _is_open(value: object) -> bool:
    """Whether a template leaves something open in it, which then can't be kept as it is."""
    if isinstance(value, Mapping):
        return any(map(_is_open, value.values()))
    return any(map(_is_open, value)) if isinstance(value, list) else value is UNKNOWN


def _settings(config: Config, values: Mapping[str, object] | None = None) -> dict[str, Any]:
    """The values of a DeepSpeed Config as they stand in the file, with those of --set and of `values` by path."""
    plain = config.document.root.plain()
    return with_values(plain if isinstance(plain, Mapping) else {}, {**(values or {}), **config.overrides})
