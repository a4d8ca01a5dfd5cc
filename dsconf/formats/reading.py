"""What a reader of a format gives: the Plan, and what it says of the keys itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsconf.formats.outcome import Item, Outcome, worst
from dsconf.plan import Plan


class Remark(NamedTuple):
    """What the source itself makes of a key: the outcome is not better than this, whatever the target does."""

    outcome: Outcome
    note: str

    def joined(self, other: Remark) -> Remark:
        """Both: the worse outcome, and one note after the other."""
        notes = [note for note in (self.note, other.note) if note]
        return Remark(worst([self.outcome, other.outcome]), "; ".join(notes))


class Default(NamedTuple):
    """A value that the source puts where nothing is written."""

    value: object
    note: str = "the default"


class Reading(NamedTuple):
    """A Plan and where it comes from."""

    plan: Plan
    fields: Mapping[str, str]
    """The field of the Plan that each key goes to."""
    items: list[Item]
    """Keys without a place in the Plan, with their outcome."""
    remarks: dict[str, Remark]
    """By key."""
    in_force: dict[str, Default]
    """Keys that are not written, and whose defaults change training."""
    labels: Mapping[str, str] = {}
    """Fields whose value comes from something else than a key, and from what."""
    source: str = ""
    """The format, as the report calls it."""
    written: Mapping[str, object] = {}
    """Every key that stands in the source, in order, with the value as it is shown."""
    deepspeed: frozenset[str] = frozenset()
    """Keys of another source whose defaults are DeepSpeed's."""
