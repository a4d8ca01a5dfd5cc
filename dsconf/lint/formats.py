"""The formats that lint reads: each with its key table, its facts and its checks, looked up where a file needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import NamedTuple

from dsconf.config.context import Context
from dsconf.config.effective import Config, Facts, Reader
from dsconf.config.tables import Spec
from dsconf.document.node import Document
from dsconf.lint.event import Event, Needs

Check = Callable[[Config, Facts], Iterator[Event | Needs]]

NAMES = ("deepspeed", "accelerate", "trainer", "axolotl", "llamafactory")
"""The formats by name, which is that of their room."""


class Format(NamedTuple):
    """What lint needs to know of a format."""

    table_for: Callable[[Document | None, Context], Spec]
    """The key table, as it holds for a file, where one is given, and for the versions that will run."""
    facts: Mapping[str, Callable[[Reader], object]]
    checks: Mapping[str, Check]


@cache
def format_named(name: str) -> Format:
    """One of `NAMES`. Its room has `keys` with a function `table_for` and `facts`, lint the checks of that name."""
    room = f"dsconf.formats.{name}"
    facts = "dsconf.config.derive" if name == "deepspeed" else f"{room}.facts"
    return Format(
        import_module(f"{room}.keys").table_for,
        import_module(facts).FACTS,
        import_module(f"dsconf.lint.checks.{name}").CHECKS,
    )


def facts_of(config: Config) -> Facts:
    """The facts of a Config of any format."""
    return Facts(config, format_named(config.format).facts)
