"""Hand-formatted YAML of arguments, with what is left to the user as comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dsconf.document.yaml_style import flow, scalar
from dsconf.formats.outcome import Landing

_START = "in your script: "


class Line(NamedTuple):
    """A key with its value, which may be a mapping; `comment` says where the value comes from."""

    key: str
    value: object
    comment: str = ""


def lines_of(entries: Iterable[Line], indent: str = "") -> list[str]:
    """The lines of some keys; a mapping of lines or of values stands below its key."""
    found = []
    for key, value, comment in entries:
        behind = f"  # {_one_line(comment)}" if comment else ""
        if isinstance(value, Mapping) and value:
            below = [Line(str(name), each) for name, each in value.items()]
        elif isinstance(value, list) and value and isinstance(value[0], Line):
            below = value
        else:
            found.append(f"{indent}{scalar(key)}: {flow(value)}{behind}")
            continue
        found += [f"{indent}{scalar(key)}:{behind}", *lines_of(below, indent + "  ")]
    return found


def open_lines(open_: Mapping[str, str], unsaid: Sequence[str] = ()) -> list[str]:
    """Comments on the arguments that the user has to write: those left open, and those of which nothing is said."""
    found = [f"# {name}: ...  # {key} is left open: write your own" for name, key in open_.items()]
    if unsaid:
        found += [
            "",
            f"# Not said by the source: {', '.join(unsaid)}. Write yours; else Trainer's defaults hold.",
        ]
    return found


def heading(origin: str, landings: Mapping[str, Landing], labels: Mapping[str, str]) -> list[str]:
    """The comment at the head: what the file is, and what the script has to do beside it."""
    found = [f"# {_one_line(line)}".rstrip() for line in origin.split("\n")]
    duties = {
        landing.action.removeprefix(_START): labels.get(field, field)
        for field, landing in landings.items()
        if landing.action is not None and landing.action.startswith(_START)
    }
    if duties:
        found += ["#", "# In the script:", "#"]
        found += [f"#   {_one_line(what)}: {duty}" for duty, what in duties.items()]
    return [*found, ""]


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))
