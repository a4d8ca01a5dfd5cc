"""What the readers of JSON and of HJSON share."""

from __future__ import annotations

import json

MAX_DEPTH = 200
"""A configuration is some six levels deep; `json.load` itself gives up near 1,000."""

STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
"""A string of JSON, as a regular expression."""

WORDS = {"true": True, "false": False, "null": None}
CLOSES = {"object": "}", "array": "]"}
"""What ends a container of each kind."""

_LARGEST = 1e10
"""From here on HJSON leaves a whole number that is written with a fraction or an exponent a float."""


def string_of(token: str) -> str:
    """The content of a string of JSON with its quotes."""
    return str(json.loads(token)) if "\\" in token else token[1:-1]


def hjson_float(token: str) -> int | float:
    """The number that HJSON makes of digits with a fraction or an exponent. Raises OverflowError beyond 1.8e308."""
    number = float(token)
    whole = int(number)
    return whole if whole == number and abs(number) < _LARGEST else number


def too_large(token: str) -> str:
    """What is wrong with a number for which `hjson_float` raises OverflowError."""
    return f"{short(token)} is too large for a number: DeepSpeed's reader stops at it"


def too_long(token: str) -> str:
    """What is wrong with an integer that Python refuses to convert, which it does beyond 4,300 digits."""
    return f"a number of {len(token)} digits is too long"


def short(text: str) -> str:
    """A piece of a text for a message."""
    return text if len(text) <= 40 else text[:37] + "..."
