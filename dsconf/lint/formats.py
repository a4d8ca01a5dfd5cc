"""The formats that lint reads: each with its key table, its facts and its checks, imported where a file needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from dsconf.config.context import Context
from dsconf.config.derive import FACTS
from dsconf.config.effective import Config, Facts, Reader
from dsconf.config.tables import Spec
from dsconf.document.node import Document
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.checks import CHECKS
from dsconf.lint.event import Event, Needs

Check = Callable[[Config, Facts], Iterator[Event | Needs]]

NAMES = ("deepspeed", "accelerate", "trainer", "axolotl", "llamafactory")
"""The formats by name, which is that of their room."""
TITLES = {
    "deepspeed": "DeepSpeed",
    "accelerate": "Accelerate",
    "trainer": "Trainer",
    "axolotl": "Axolotl",
    "llamafactory": "LLaMA-Factory",
}
"""What people call who reads them."""


class Format(NamedTuple):
    """What lint needs to know of a format."""

    table: Callable[[Context, Document | None], Spec]
    """The key table, as it holds for the versions that will run and, where one is given, for a file."""
    facts: Mapping[str, Callable[[Reader], object]]
    checks: Mapping[str, Check]


@cache
def format_named(name: str) -> Format:
    """One of `NAMES`. Raises KeyError."""
    return _LOADERS[name]()


def facts_of(config: Config) -> Facts:
    """The facts of a Config of any format."""
    return Facts(config, format_named(config.format).facts)


def _deepspeed() -> Format:
    return Format(lambda context, _document: load_keys(context.deepspeed_version), FACTS, CHECKS)


def _accelerate() -> Format:
    from dsconf.formats.accelerate.facts import FACTS as FACTS_
    from dsconf.formats.accelerate.keys import load_keys as load
    from dsconf.formats.accelerate.keys import table_for
    from dsconf.lint.checks.accelerate import CHECKS as CHECKS_

    return Format(lambda _context, document: table_for(document) if document else load(), FACTS_, CHECKS_)


def _trainer() -> Format:
    from dsconf.formats.trainer.facts import FACTS as FACTS_
    from dsconf.formats.trainer.keys import load_keys as load
    from dsconf.lint.checks.trainer import CHECKS as CHECKS_

    return Format(lambda _context, _document: load(), FACTS_, CHECKS_)


def _axolotl() -> Format:
    from dsconf.formats.axolotl.facts import FACTS as FACTS_
    from dsconf.formats.axolotl.keys import load_keys as load
    from dsconf.lint.checks.trainer import CHECKS as CHECKS_

    return Format(lambda _context, _document: load(), FACTS_, CHECKS_)


def _llamafactory() -> Format:
    from dsconf.formats.llamafactory.facts import FACTS as FACTS_
    from dsconf.formats.llamafactory.keys import load_keys as load

    return Format(lambda _context, _document: load(), FACTS_, {})


_LOADERS: dict[str, Callable[[], Format]] = {
    "deepspeed": _deepspeed,
    "accelerate": _accelerate,
    "trainer": _trainer,
    "axolotl": _axolotl,
    "llamafactory": _llamafactory,
}
