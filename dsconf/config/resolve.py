"""What every key ends up as: the answer to "what will auto become?"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dsconf.config.context import CONSUMER_NAMES
from dsconf.config.derive import WITH_DEFAULTS, facts_of
from dsconf.config.effective import Config, Origin
from dsconf.config.tables import Spec
from dsconf.document.node import UNKNOWN


class Row(NamedTuple):
    """One key."""

    path: str
    value: object
    """UNKNOWN where the file and its context don't determine it."""
    origin: Origin
    note: str = ""
    line: int | None = None
    """Where the key stands in the file."""


def resolve(config: Config) -> list[Row]:
    """Every declared key, in the order of the key table.

    A section has no row of its own, except one that is off while it is not written (its default is null): then that
    row stands for its keys. Keys that were removed appear only where they are written.
    """
    facts = facts_of(config)
    follows = WITH_DEFAULTS if config.format == "deepspeed" else {}
    rows = []
    for path, section, spec in [*_leaves(config), *_items(config)]:
        entry = config.entry(path)
        if spec.get("status") == "removed" and entry is None:
            continue
        line = config.document.position(entry.key_span.start)[0] if entry else None
        value, origin = config.effective(path)
        note = ""
        fact = follows.get(path)
        if fact is not None and (origin in ("default", "absent", "dropped") or value is None):
            derived = facts.derived(fact)
            if derived.value is not UNKNOWN and derived.value != value:
                value, origin = derived.value, "derived"
                note = "from " + ", ".join(sorted(derived.paths - {path}))
        elif entry is None and section.get("unknown") == "depends":
            note = f"where {config.raw(path.partition('.')[0] + '.type')} takes it"
        rows.append(Row(path, value, origin, note or _note(config, spec, origin), line))
    return rows


def _leaves(config: Config) -> Iterator[tuple[str, Spec, Spec]]:
    """Path, section and node of every key that gets a row."""
    stack: list[tuple[str, Spec, Spec]] = [("", config.table, config.table)]
    while stack:
        path, section, spec = stack.pop()
        off = path and spec.get("default", ()) is None and not config.present(path)
        if "keys" not in spec or off:
            yield path, section, spec
            continue
        below = [
            (f"{path}.{name}" if path else name, spec, child)
            for name, child in spec["keys"].items()
            if "alias" not in child
        ]
        stack.extend(reversed(below))


def _items(config: Config) -> Iterator[tuple[str, Spec, Spec]]:
    """Path, section and node of the written keys below free names and in lists, which the table can't enumerate."""
    for item in config.written:
        keys, node = config.table, item.entry.node
        below_free_name = False
        for key in item.path.split("."):
            below_free_name = below_free_name or key not in keys.get("keys", {})
            keys = keys.get("keys", {}).get(key, {})
        opens = (
            item.spec is not None and ("keys" in item.spec or "each" in item.spec) and node.kind == "object"
        )
        if below_free_name and item.spec is not None and not opens:
            yield item.path, item.section, item.spec


def _note(config: Config, spec: Spec, origin: Origin) -> str:
    """What a person has to know about an origin."""
    if origin == "filled":
        consumer = config.context.consumer
        fills = {consumer: spec["filled_by"][consumer]} if consumer else spec["filled_by"]
        return '"auto": ' + "; ".join(f"{CONSUMER_NAMES[name]} puts {words}" for name, words in fills.items())
    if origin == "dropped":
        return '"auto": DeepSpeed takes its default'
    if origin == "invalid":
        return "what is written is no value for it: see dsconf lint"
    return ""


def known(row: Row) -> bool:
    """Whether the value is determined."""
    return row.value is not UNKNOWN
