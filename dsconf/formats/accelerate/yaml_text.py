"""The YAML of Accelerate: keys in the order of `accelerate config`, which is that of the alphabet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dsconf.formats import yaml_lines
from dsconf.formats.yaml_lines import Line


def lines_of(entries: Iterable[Line]) -> list[str]:
    """The lines of some keys, and of those in their sections."""
    return yaml_lines.lines_of(_ordered(entries))


def _ordered(entries: Iterable[Line]) -> list[Line]:
    return [
        line._replace(value=_ordered(line.value)) if isinstance(line.value, list) else line
        for line in sorted(entries, key=lambda line: line.key)
    ]


def heading(origin: str, duties: Mapping[str, str]) -> list[str]:
    """The comment at the head: what the file is, and what the script has to do beside it."""
    return yaml_lines.heading(origin, "The rest is the script's", duties.items())
