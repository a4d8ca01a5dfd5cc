"""What a model says of a configuration key beyond its Python type."""

from __future__ import annotations

from typing import Literal, NamedTuple

Moment = Literal["parse", "init", "step"]
Filler = Literal["trainer", "accelerate"]


class Key(NamedTuple):
    """Facts about one key, attached to a model field by `Annotated[T, Key(...)]`.

    The default, the bounds and the allowed values stand in the field itself; the docstring of the field is
    what a user reads about the key.
    """

    aliases: tuple[str, ...] = ()
    """Other spellings that the framework accepts for this key."""
    status: Literal["active", "deprecated", "removed", "inert"] = "active"
    """`removed`: its presence alone is refused; `inert`: accepted and read by nobody."""
    replacement: str | None = None
    """The path to write instead of a deprecated key."""
    auto_filled_by: tuple[Filler, ...] = ()
    """Who replaces the value "auto" in this key before the framework sees it."""
    quoted_fails: Moment | None = None
    """When a number written as a string fails in a key that the framework reads without coercion."""
    unit: str | None = None
    """The unit of a number: elements, bytes, steps, ..."""
