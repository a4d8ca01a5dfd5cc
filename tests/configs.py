"""Configs and scopes made from plain values, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsconf.config.context import Consumer, Context
from dsconf.config.derive import Facts
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.evaluate import Scope


def config_of(
    source: str | dict[str, Any],
    consumer: Consumer | None = None,
    world_size: int | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """The Config of a JSON text, or of a value that is written as JSON first."""
    text = source if isinstance(source, str) else json.dumps(source)
    return Config(scan("test.json", text), load_keys(), Context(consumer, world_size), overrides)


def scope_of(config: Config, key: Mapping[str, object] | None = None) -> Scope:
    """A scope in which conditions read `config`."""
    return Scope(config, Facts(config), key)
