"""Writes `dsconf/formats/deepspeed/history.json` from released DeepSpeed packages.

    for v in 0.14.5 0.15.4 ... 0.19.8; do pip install --no-deps --target DIR/$v deepspeed==$v; done
    ./dev history DIR

Each folder in DIR is named after a version and holds its package `deepspeed`, installed or unpacked from its sdist;
nothing of it but the package is run. Every version runs in a process of its own (`tests/oracle/observe.py`) and says
what it makes of the grid of keys and values. The newest one has to be the one that the key table describes. For each
key that an older version treats in another way, the smallest change to its node is looked for under which `coerce`
repeats what that version does. What no change repeats is told on stderr.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from oracle.grid import COMPUTED, NODES, SHOWN_BY, VALUES, Observed, difference, values_of
from oracle.versions import look

from dsconf.config.coerce import Invalid, coerce
from dsconf.document.write import write_text

HISTORY_FILE = Path(__file__).parents[1] / "dsconf" / "formats" / "deepspeed" / "history.json"

Node = dict[str, Any]
Seen = dict[str, Any]
Agrees = Callable[[Node], list[str]]
"""What a node gets wrong."""

PLAIN: list[Node] = [
    {"type": "any"},
    {"type": "bool"},
    {"type": "int"},
    {"type": "float"},
    {"type": "object", "open": True},
    {"type": "object", "open": True, "nullable": True},
]
"""What a key may have been that the key table does not describe any more."""
NO_BOUNDS: Node = dict.fromkeys(("min", "max", "exclusive_min", "exclusive_max"))
CHANGES: list[Node] = [
    NO_BOUNDS,
    {**NO_BOUNDS, "min": 0},
    {**NO_BOUNDS, "exclusive_min": 0},
    {**NO_BOUNDS, "min": 0, "max": 1},
    {"nullable": True},
    {"nullable": None},
    {"python_number": None},
    {"int_only": None},
    {"wrong_fails": "parse"},
    {"wrong_fails": None},
    {"quoted_fails": "parse"},
    {"quoted_fails": None},
]
"""Fields that may have been otherwise; None takes one away."""
LENGTHS = {"0": 0, "-1": -1, "2.0": 2.0, "'2'": "2", "True": True, "2": 2}


def main() -> int:
    """Read the packages and write the history."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="one folder per version, each with the package in it")
    folder: Path = parser.parse_args().folder
    names = [path.name for path in folder.iterdir() if (path / "deepspeed").is_dir()]
    versions = sorted(names, key=lambda name: [int(part) for part in name.split(".")])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        seen = pool.map(look, [folder / version for version in versions])
        write_text(HISTORY_FILE, text_of(history(dict(zip(versions, seen, strict=True)))))
    return 0


def history(seen: dict[str, Seen]) -> dict[str, Any]:
    """The history of all versions, which are given from the oldest to the newest."""
    gone = {path for said in seen.values() for path in said["values"]} - set(NODES)
    keys: dict[str, Any] = {}
    first: dict[str, str | None] = {}
    # What stands below a free name, or in an item of a list, is the same for all versions.
    for path in [path for path in [*NODES, *sorted(gone)] if "0" not in path.split(".")]:
        changes = changes_of(path, seen)
        first[path] = changes.get("since")
        if changes.get("since") and first.get(path.rpartition(".")[0]) == changes["since"]:
            del changes["since"]  # it came with its section
        if changes:
            keys[path] = changes
    pydantic_1 = [version for version, said in seen.items() if said["pydantic_version"] == 1]
    return {
        "versions": list(seen),
        "pydantic_1": pydantic_1[-1] if pydantic_1 else None,
        "optimizers": optimizers(seen),
        "keys": keys,
    }


def optimizers(seen: dict[str, Seen]) -> dict[str, dict[str, str]]:
    """DeepSpeed's own optimizers that not every version has."""
    versions = list(seen)
    found: dict[str, dict[str, str]] = {}
    for name in sorted({name for said in seen.values() for name in said["optimizers"]}):
        having = [version for version in versions if name in seen[version]["optimizers"]]
        span = {"since": having[0]} if having[0] != versions[0] else {}
        span |= {"until": having[-1]} if having[-1] != versions[-1] else {}
        if span:
            found[name] = span
    return found


def changes_of(path: str, seen: dict[str, Seen]) -> dict[str, Any]:
    """What the history says of one key, nothing where it always was as it is."""
    versions = list(seen)
    newest = seen[versions[-1]]
    having = [version for version in versions if knows(path, seen[version], newest)]
    if not having:
        return {}
    changes: dict[str, Any] = {}
    if having[0] != versions[0]:
        changes["since"] = having[0]
    table = NODES[path][0] if path in NODES else {}
    if not table:
        changes["until"] = having[-1]
    now, was = without_keys(table), []
    for version in reversed(having):
        then = node_then(path, now, seen[version])
        if then != now:
            was.append((version, then))
        now = then
    spans = []
    for version, then in reversed(was):
        base = without_keys(table)
        span: dict[str, Any] = {"until": version}
        changed = {field: value for field, value in then.items() if field not in base or base[field] != value}
        dropped = [field for field in base if field not in then]
        spans.append(
            {**span, **({"set": changed} if changed else {}), **({"drop": dropped} if dropped else {})}
        )
    return {**changes, **({"was": spans} if spans else {})}


def knows(path: str, said: Seen, newest: Seen) -> bool:
    """Whether a version has the key.

    Pydantic names its fields. Of the others those count that it looks up while it reads a config; where even the
    newest version, which has the key, looks later or not at all, its name has to stand in the source. A key of the top
    level counts too where deepspeed.initialize names it: it looks itself.
    """
    section, _, name = path.rpartition(".")
    if name and ".params" in path:
        return True
    if section in said["pydantic"]:
        return name in said["pydantic"][section]
    if section and not knows(section, said, newest):
        return False
    removed = path in NODES and NODES[path][0].get("status") == "removed"
    if path in said["plain"] or path in said["pydantic"]:
        return True
    looked_up = path in newest["plain"] and not removed
    return name in said["literals"] if not looked_up else not section and name in said["initialize"]


def without_keys(node: Node) -> Node:
    """A node without those below it."""
    return {field: value for field, value in node.items() if field not in ("keys", "each")}


def node_then(path: str, now: Node, said: Seen) -> Node:
    """The node of a key in one version, given that in the next newer one."""
    if path in said["lengths"]:
        return smallest(path, [now], lambda node: wrong_lengths(node, said["lengths"][path]))
    if path == "scheduler.params.warmup_max_lr":
        default = said["schedules"]["WarmupLR"]["warmup_max_lr"]
        return merged(now, {"default": default, "nullable": True if default is None else None})
    if path not in said["values"]:
        return now
    accepted = any(Observed(*each).refused is None for each in said["values"][path])
    gone = not now or (now.get("status") == "removed" and accepted)
    seeds = [*PLAIN, *siblings(path)] if gone else [now]
    if path in said["defaults"] and (gone or "default" in now) and path not in (*COMPUTED, *SHOWN_BY):
        default = said["defaults"][path]
        if not isinstance(default, dict):
            seeds = [{**seed, "default": default} for seed in seeds]
    reader = "pydantic" if path.rpartition(".")[0] in said["pydantic"] else "raw"
    mark = {"pydantic": 1} if said["pydantic_version"] == 1 else {}
    seen = dict(zip(map(repr, VALUES), (Observed(*each) for each in said["values"][path]), strict=True))

    def wrong(node: Node) -> list[str]:
        cases = ((value, seen[repr(value)]) for value in values_of(path, node))
        node = {**node, **mark}
        return [text for value, each in cases if (text := difference(path, node, reader, value, each))]

    node = smallest(path, seeds, wrong)
    if path in said["raises"] and "keys" in NODES[path][0] and ".params" not in path:
        node = merged(
            node,
            {
                "reader": "pydantic" if path in said["pydantic"] else None,
                "unknown": "raises" if said["raises"][path] else None,
            },
        )
    return node


def siblings(path: str) -> Iterator[Node]:
    """The other nodes of a section: a key that is gone may have been like one that is there."""
    section = path.rpartition(".")[0]
    for other, (node, _) in NODES.items():
        if other.rpartition(".")[0] == section and "keys" not in node and node.get("status") != "removed":
            yield {field: value for field, value in node.items() if field not in ("filled_by", "unit")}


def wrong_lengths(node: Node, said: dict[str, bool]) -> list[str]:
    """The numbers of steps over which a node and the schedule differ; `said` is whether it takes each."""
    built = {text: LENGTHS[text] for text in said}
    return [
        text for text, value in built.items() if isinstance(coerce(node, "raw", value), Invalid) == said[text]
    ]


def merged(node: Node, change: Node) -> Node:
    """A node with a change made."""
    return {
        field: value for field, value in {**node, **change}.items() if value is not None or field == "default"
    }


def smallest(path: str, seeds: list[Node], wrong: Agrees) -> Node:
    """The first node that gets nothing wrong, fewest changes first; else the one that gets least wrong."""
    best: tuple[int, Node] | None = None
    for count in range(3):
        for seed in seeds:
            for changes in itertools.combinations(CHANGES, count):
                node = seed
                for change in changes:
                    node = merged(node, change)
                faults = wrong(node)
                if not faults:
                    return node
                if best is None or len(faults) < best[0]:
                    best = len(faults), node
    assert best is not None
    tell(f"{path} is not quite {best[1]}: {[text[:120] for text in wrong(best[1])]}")
    return best[1]


@cache
def tell(text: str) -> None:
    """Say it once."""
    sys.stderr.write(f"{text}\n")


def text_of(written: dict[str, Any]) -> str:
    """JSON with one key per line."""
    parts = [f'"{name}": {json.dumps(value)}' for name, value in written.items() if name != "keys"]
    lines = ",\n".join(f'  "{path}": {json.dumps(value)}' for path, value in written["keys"].items())
    return "{" + ",\n".join([*parts, f'"keys": {{\n{lines}\n}}']) + "}\n"


if __name__ == "__main__":
    sys.exit(main())
