"""Values as messages show them."""

from __future__ import annotations

import json

from dsconf.document.node import UNKNOWN

_LONGEST = 120
"""Characters of one value in a message."""


class Words(str):
    """Text that a check has composed, which a message shows whole."""

    __slots__ = ()


def show(value: object) -> str:
    """A value as a configuration file would write it, text without its quotes, and what is long cut short."""
    if value is UNKNOWN:
        return "?"
    if isinstance(value, Words):
        return value
    if isinstance(value, str):
        text = value
    elif isinstance(value, float) and value.is_integer() and 1e5 <= abs(value) < 1e15:
        text = f"{value:.0f}"  # 5e8 is a count
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
