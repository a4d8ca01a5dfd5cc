"""What a model says of a configuration key beyond its Python type."""

from __future__ import annotations

from typing import Literal, NamedTuple

Moment = Literal["parse", "launch", "init", "step"]
Filler = Literal["trainer", "accelerate"]
Way = Literal[
    "text", "flag", "true-word", "integer", "size", "steps", "clipping", "word", "member", "device", "kernel",
    "length", "precision", "backend", "launcher", "enum", "ids", "place", "processes", "machines",
    "port", "cpu", "section", "keys", "kept", "unused",
    "truth", "version", "count", "names", "prefetch", "shards",
]  # fmt: skip
"""How a value that goes through the environment, or through Trainer, is read, see `dsconf.config.environment` and
`dsconf.config.trainer_values`."""


class Fill(NamedTuple):
    """What a library writes where a key is "auto": an argument of its own by name, or a formula in words."""

    trainer: str
    accelerate: str | None = None
    """None: Accelerate stops at such an "auto"."""

    def by_filler(self) -> dict[Filler, str]:
        """The formula of each library that fills the key."""
        fills: dict[Filler, str] = {"trainer": self.trainer}
        return fills | ({"accelerate": self.accelerate} if self.accelerate is not None else {})


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
    auto: Fill | None = None
    """What replaces the value "auto" in this key before the framework sees it."""
    quoted_fails: Moment | None = None
    """When a number written as a string fails in a key that the framework reads without coercion."""
    shown: str | None = None
    """The spelling to use when the key is called by its name; None: the canonical one."""
    mistaken: tuple[str, ...] = ()
    """Names that people write for this key, and that nobody reads."""
    unit: str | None = None
    """The unit of a number: elements, bytes, steps, ..."""
