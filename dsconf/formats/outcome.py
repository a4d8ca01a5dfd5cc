"""What becomes of a key in a translation."""

from __future__ import annotations

from typing import Literal, NamedTuple

Outcome = Literal[
    "exact", "close", "approximate", "no-effect", "needs-value", "rejected-by-source", "unsupported"
]

FIDELITY: tuple[Outcome, ...] = ("exact", "close", "approximate", "unsupported")
"""The outcomes that say how faithful a translation is, best first; the others say nothing of it."""


def worst(outcomes: list[Outcome]) -> Outcome:
    """The least faithful of several outcomes; those that say nothing of fidelity don't count."""
    return FIDELITY[max((FIDELITY.index(outcome) for outcome in outcomes if outcome in FIDELITY), default=0)]


class Landing(NamedTuple):
    """What a writer makes of one field of the Plan."""

    outcome: Outcome
    target: str = ""
    """The code or setting that stands for it."""
    note: str = ""
    action: str | None = None
    """What the user should do."""


class Item(NamedTuple):
    """One key of the source in the report of a translation."""

    key: str
    value: object
    outcome: Outcome
    target: str = ""
    note: str = ""
    action: str | None = None
    written: bool = True
    """False for a default that changes training."""
