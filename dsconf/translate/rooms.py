"""The rooms of the formats, of which a translation needs two."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def room(name: str) -> Any:
    """A module of dsconf.formats, such as `accelerate.read`, which is read only where a file or a target needs it."""
    return import_module(f"dsconf.formats.{name}")
