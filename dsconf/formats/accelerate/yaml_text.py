"""Hand-formatted YAML of Accelerate: keys in the order of `accelerate config`, with comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dsconf.document.yaml_style import scalar


class Line(NamedTuple):
    """A key with its value; `comment` says where the value comes from."""

    key: str
    value: object
    """A mapping of lines for a section."""
    comment: str = ""


def lines_of(entries: Iterable[Line], indent: str = "") -> list[str]:
    """The lines of some keys, in alphabetical order."""
    found = []
    for key, value, comment in sorted(entries, key=lambda line: line.key):
        behind = f"  # {_one_line(comment)}" if comment else ""
        if isinstance(value, list):
            found += [f"{indent}{key}:{behind}", *lines_of(value, indent + "  ")]
        else:
            quote = "'" if value == "no" else ""
            found.append(f"{indent}{key}: {scalar(value, quote)}{behind}")
    return found


def heading(origin: str, duties: Mapping[str, str]) -> list[str]:
    """The comment at the head: what the file is, and what the script has to do beside it."""
    found = [f"# {_one_line(line)}".rstrip() for line in origin.split("\n")]
    if duties:
        found += ["#", "# The rest is the script's:", "#"]
        found += [f"#   {_one_line(what)}: {duty}" for what, duty in duties.items()]
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))
