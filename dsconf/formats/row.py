"""What `dsconf resolve` shows of what becomes of a config beyond its own keys."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A setting that a worker gets."""

    name: str
    value: object
    source: str
    """The path of the key that it comes from, "default", or why it is what it is."""
