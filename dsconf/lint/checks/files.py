"""The DeepSpeed config that a file names."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.effective import Config, Facts
from dsconf.lint.beside import NAMED_BY, file_named
from dsconf.lint.event import Event, Needs


def _is_a_path(name: str) -> bool:
    """Whether text names a file: a config itself may stand there, too, in base64."""
    return "." in name or "/" in name


def file_missing(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """A named DeepSpeed config that is not where it may be."""
    if facts.value("deepspeed_on") is not True:
        return
    named, path = file_named(config), NAMED_BY[config.format][0]
    entry = config.entry(path)
    if named is not None and named[1] is None and entry is not None and _is_a_path(named[0]):
        yield Event("accelerate-ds-file-missing", path, entry.span, {"path": named[0]})
