"""What the readers of FSDP2 code share: the calls of a file, and where they note what became of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from dsconf.formats.fsdp2.read_scopes import Event, Scopes, shown
from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Attr,
    Choice,
    Made,
    Op,
    Opaque,
    Value,
    called,
    plain,
    torch_name,
)
from dsconf.formats.outcome import Item, Outcome
from dsconf.formats.reading import Default, Remark
from dsconf.plan import Unresolved

_LONGEST = 60


class Notes:
    """A file that was followed, and what is said of its settings while they are read."""

    def __init__(self, run: Scopes, wrapper: MetadataWrapper, given: Mapping[str, object]) -> None:
        """`given` are values by key that count instead of those of the file."""
        self.run = run
        self.given = given
        self._wrapper = wrapper
        self.fields: dict[str, str] = {}
        self.written: dict[str, object] = {}
        self.items: list[Item] = []
        self.remarks: dict[str, Remark] = {}
        self.in_force: dict[str, Default] = {}
        self.labels: dict[str, str] = {}

    # ---- what the file calls -------------------------------------------------------------------------

    def of_torch(self, *names: str) -> Iterator[Event]:
        """The calls of functions and classes of torch with these names."""
        return (event for event in self.run.events if torch_name(event.made.function) in names)

    def methods(self, *names: str) -> Iterator[Event]:
        """The calls of methods with these names."""
        return (
            event
            for event in self.run.events
            if called(event.made) in names and not torch_name(event.made.function)
        )

    def place(self, node: cst.CSTNode | None) -> str:
        """The line and the column of a piece of code, from 1."""
        places = self._wrapper.resolve(PositionProvider)
        found = places.get(node) if node is not None else None
        return f"{found.start.line}:{found.start.column + 1}" if found is not None else "?"

    def text(self, value: Value | None) -> str:
        """A value in words, cut where it is long."""
        found = str(shown(self.run, value)) if value is not None else "nothing"
        return found if len(found) <= _LONGEST else f"{found[: _LONGEST - 3]}..."

    # ---- what is said --------------------------------------------------------------------------------

    def take(self, key: str, field: str, value: Value | object) -> None:
        """A setting that goes to a field of the Plan."""
        self.written.setdefault(key, shown(self.run, value) if isinstance(value, Value) else value)
        self.fields.setdefault(key, field)

    def instead(self, key: str, field: str, *kinds: type) -> Any:
        """The value that is given for a key, which is noted; UNKNOWN where there is none of these kinds.

        Without kinds it is a number, or several.
        """
        value = self.given.get(key, UNKNOWN)
        if isinstance(value, list):
            value = tuple(value)
        numbers = value if isinstance(value, tuple) else (value,)
        if kinds and not isinstance(value, kinds):
            return UNKNOWN
        if not kinds and not all(isinstance(number, int | float) for number in numbers):
            return UNKNOWN
        self.take(key, field, self.given[key])
        self.labels[field] = f"--set {key}"
        return value

    def default(self, key: str, field: str, value: object, note: str) -> None:
        """A setting that is not written, and whose default changes training."""
        self.fields.setdefault(key, field)
        self.in_force.setdefault(key, Default(value, note))

    def open(self, key: str, field: str, value: Value, node: cst.CSTNode | None = None, *kinds: type) -> Any:
        """A setting whose value only a run determines: Unresolved, unless a value of these kinds is given."""
        given = self.instead(key, field, *kinds)
        return self.left_open(key, field, value, node) if given is UNKNOWN else given

    def left_open(self, key: str, field: str, value: Value, node: cst.CSTNode | None = None) -> Unresolved:
        """A setting whose value only a run determines."""
        self.take(key, field, value)
        place = self.place(node or _node(value))
        self.remark(key, "exact", f"{place}: `{self.text(value)}` is known in a run only")
        return Unresolved(key=key)

    def remark(self, key: str, outcome: Outcome, note: str) -> None:
        """A word on a setting; the first one counts."""
        self.remarks.setdefault(key, Remark(outcome, note))

    def say(
        self,
        key: str,
        value: Value | object,
        outcome: Outcome,
        note: str,
        *,
        node: cst.CSTNode | None = None,
        action: str | None = None,
        written: bool = True,
    ) -> None:
        """What became of something that has no place in the Plan."""
        if key in {item.key for item in self.items}:
            return
        found = shown(self.run, value) if isinstance(value, Value) else value
        if written:
            self.written.setdefault(key, found)
        place = f"{self.place(node)}: " if node is not None else ""
        self.fields.pop(key, None)
        self.items.append(Item(key, found, outcome, note=place + note, action=action, written=written))

    def number(self, key: str, field: str, value: Value, node: cst.CSTNode | None = None) -> Any:
        """A number, or Unresolved."""
        given = self.instead(key, field, int, float)
        if given is not UNKNOWN:
            return given
        found = plain(value)
        if isinstance(found, int | float) and not isinstance(found, bool):
            self.take(key, field, value)
            return found
        return self.open(key, field, value, node, int, float)

    def conditional(self, key: str, event: Event, what: str, beside: Sequence[Event]) -> None:
        """Say that a call is made under a condition that only a run determines, and that no other call has."""
        shared = {id(condition.test) for other in beside for condition in other.conditions}
        for condition in event.conditions:
            test = self.text(condition.test)
            if id(condition.test) not in shared:
                word = "where" if condition.holds else "unless"
                self.remark(key, "needs-value", f"{self.place(event.made.node)}: {what} only {word} `{test}`")


def _node(value: Value) -> cst.CSTNode | None:
    match value:
        case Made(node=node) | Op(node=node) | Opaque(node=node) | Attr(node=node):
            return node
        case Choice(test=test):
            return _node(test)
        case _:
            return None
