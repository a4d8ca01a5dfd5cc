"""What older versions of DeepSpeed accept: the key table of an older version, from that of the newest.

`history.json` is written by `tools/history.py` from the released packages. Its `keys` are dotted paths into the key
table, outer ones first, each with some of these, where `until` is the last of the read versions for which it holds:

since   the first version that has the key
until   the last one that has it, for a key that the table does not have any more
was     what the key was before, oldest first: [{until, set: fields of its node, drop: names of fields}]
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Collection
from functools import cache
from typing import Any

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "history.json")  # noqa: PTH100, PTH118, PTH120
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)

Node = dict[str, Any]


@cache
def load_history() -> dict[str, Any]:
    """The whole of `history.json`."""
    with open(_FILE, encoding="utf-8") as handle:  # noqa: PTH123
        history: dict[str, Any] = json.load(handle)
    return history


def known_version(text: str) -> str:
    """A version as X.Y.Z.

    X.Y stands for the last release of its series, and whatever is newer than all for the newest. Raises ValueError.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no version of DeepSpeed: write X.Y.Z or X.Y, such as 0.18.9")
    wanted = tuple(float("inf") if part is None else int(part) for part in match.groups())
    versions: list[str] = load_history()["versions"]
    fitting = [version for version in versions if _numbers(version) <= wanted]
    if not fitting:
        raise ValueError(f"DeepSpeed {text} is too old: dsconf knows {versions[0]} and later")
    older = fitting[-1]
    if match[3] is None or older == versions[-1]:
        return older
    return ".".join(str(int(part)) for part in match.groups())


def _span(versions: list[str], version: str) -> tuple[int, int]:
    """The places of the read versions that one stands for: itself, or those below and above it.

    What came between two read versions may be there already, so that it is no error to use it.
    """
    at = max(place for place, name in enumerate(versions) if _numbers(name) <= _numbers(version))
    return at, at if _numbers(versions[at]) == _numbers(version) else at + 1


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def keys_of(table: Node, version: str) -> Node:
    """The key table of one of the versions of `history.json`, from the `table` of the newest."""
    return overlaid(table, load_history(), version)


def overlaid(table: Node, history: Node, version: str) -> Node:
    """The key table of one of a history's versions; the `table` of the newest is left as it is."""
    versions = history["versions"]
    place = {name: number for number, name in enumerate(versions)}
    at, upto = _span(versions, version)
    table = copy.deepcopy(table)
    for path, changes in history["keys"].items():
        above, _, name = path.rpartition(".")
        section = _section(table, above)
        if section is None:
            continue
        if "since" in changes and upto < place[changes["since"]]:
            _remove(section, name)
            continue
        if "until" in changes and at > place[changes["until"]]:
            continue
        for earlier in changes.get("was", ()):
            if at <= place[earlier["until"]]:
                node = section["keys"].setdefault(name, {})
                node.update(copy.deepcopy(earlier.get("set", {})))
                for field in earlier.get("drop", ()):
                    node.pop(field, None)
                break
    if at <= place.get(history["pydantic_1"], -1):
        _mark(table)
    return table


def optimizers_of(newest: Collection[str], version: str) -> set[str]:
    """DeepSpeed's own optimizers in one of the versions of `history.json`, in lower case, from those of the newest."""
    history = load_history()
    place = {name: number for number, name in enumerate(history["versions"])}
    at, upto = _span(history["versions"], version)
    names = set(newest)
    for name, span in history["optimizers"].items():
        first, last = span.get("since", history["versions"][0]), span.get("until", history["versions"][-1])
        if place[first] <= upto and at <= place[last]:
            names.add(name)
        else:
            names.discard(name)
    return names


def came_with(table: Node, path: str) -> str | None:
    """The first of the read versions that has a key, in any of its spellings; None for one that is no key.

    `table` is that of the newest. What it has only as removed counts as no key.
    """
    node, canonical = table, []
    for name in path.split("."):
        keys = node.get("keys", {})
        name = keys.get(name, {}).get("alias", name)
        if name not in keys:
            return None
        node = keys[name]
        canonical.append(name)
    if node.get("status") == "removed":
        return None
    since: str | None = load_history()["keys"].get(".".join(canonical), {}).get("since")
    return since


def _section(table: Node, path: str) -> Node | None:
    node = table
    for name in path.split(".") if path else ():
        node = node.get("keys", {}).get(name)
        if node is None:
            return None
    return node if "keys" in node else None


def _remove(section: Node, name: str) -> None:
    """Take a key out, with its other spellings."""
    for other in [other for other, node in section["keys"].items() if node.get("alias") == name]:
        del section["keys"][other]
    section["keys"].pop(name, None)


def _mark(section: Node) -> None:
    """Say of everything that pydantic reads that it is pydantic 1."""
    for node in section["keys"].values():
        if section.get("reader") == "pydantic" and "alias" not in node:
            node["pydantic"] = 1
        if "keys" in node:
            _mark(node)
