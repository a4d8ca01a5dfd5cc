"""What the walk over the key table and the named checks find, for rules to judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsconf.document.node import Document, Span


class Event(NamedTuple):
    """Something that a rule judges: `kind` names the rules, `key` is what their conditions and messages read."""

    kind: str
    path: str
    span: Span
    key: Mapping[str, object]
    related: tuple[tuple[Span, str], ...] = ()
    elsewhere: tuple[tuple[Document, Span, str], ...] = ()
    """Places in other files."""


class Needs(NamedTuple):
    """A check can't be decided without a field of the Context."""

    kind: str
    field: str
