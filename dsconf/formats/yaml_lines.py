"""Hand-formatted YAML: keys with comments on where their values come from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from dsconf.document.yaml_style import flow, scalar


class Line(NamedTuple):
    """A key with its value, which may be a mapping or a list of lines; `comment` says where the value comes from."""

    key: str
    value: object
    comment: str = ""


def lines_of(entries: Iterable[Line], indent: str = "") -> list[str]:
    """The lines of some keys; a list of lines, or a mapping, stands below its key."""
    found = []
    for key, value, comment in entries:
        behind = f"  # {one_line(comment)}" if comment else ""
        if isinstance(value, Mapping) and value:
            below = [Line(str(name), each) for name, each in value.items()]
        elif isinstance(value, list) and value and isinstance(value[0], Line):
            below = value
        else:
            found.append(f"{indent}{scalar(key)}: {flow(value)}{behind}")
            continue
        found += [f"{indent}{scalar(key)}:{behind}", *lines_of(below, indent + "  ")]
    return found


def heading(origin: str, title: str, duties: Collection[tuple[str, str]]) -> list[str]:
    """The comment at the head: what the file is, and below `title` what the script has to do for which key."""
    found = [f"# {one_line(line)}".rstrip() for line in origin.split("\n")]
    if duties:
        found += ["#", f"# {title}:", "#"]
        found += [f"#   {one_line(what)}: {duty}" for what, duty in duties]
    return found


def one_line(text: str) -> str:
    """A text without line breaks, which would end a comment."""
    return " ".join(text.split("\n"))
