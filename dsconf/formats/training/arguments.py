"""Arguments of Trainer (transformers 5.24) as a source gives them, and what is said of its keys while they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dsconf.document.node import UNKNOWN
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Remark
from dsconf.formats.training.defaults import DEFAULTS
from dsconf.plan import Unresolved


class Given:
    """Arguments, by the name that Trainer has for them."""

    def __init__(
        self,
        values: Mapping[str, object],
        keys: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        owner: str = "Trainer",
    ) -> None:
        """`values` are those that the source gives, UNKNOWN where it leaves one open.

        `keys` are its own names for arguments, and `defaults` what `owner` has other than Trainer.
        """
        self._values = values
        self._keys = keys or {}
        self._defaults = {**DEFAULTS, **(defaults or {})}
        self._default = f"{owner}'s default"
        self.fields: dict[str, str] = {}
        self.items: list[Item] = []
        self.remarks: dict[str, Remark] = {}
        self.in_force: dict[str, Default] = {}

    def has(self, name: str) -> bool:
        """Whether the source gives an argument; null is the same as leaving it out."""
        return self._values.get(name) is not None

    def key(self, name: str) -> str:
        """The name that the source has for an argument."""
        return self._keys.get(name, name)

    def raw(self, name: str) -> Any:
        """The value, or Trainer's default."""
        return self._values[name] if self.has(name) else self._defaults.get(name)

    def text(self, name: str) -> str | Unresolved:
        """A value that is text; Unresolved where it is open, or something else."""
        value = self.raw(name)
        return value if isinstance(value, str) else Unresolved(key=self.key(name))

    def number(self, name: str) -> float | Unresolved:
        """A number, open where it is none or has no end.

        Text that says one counts, since other loaders than PyYAML take 5e-5 for a number.
        """
        value = self.raw(name)
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)
        known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return value if known else Unresolved(key=self.key(name))

    def whole(self, name: str) -> int | Unresolved:
        """A number that counts something."""
        value = self.number(name)
        return value if isinstance(value, Unresolved) else int(value)

    def flag(self, name: str) -> bool | Unresolved:
        """A value as true or false, as Python takes it."""
        value = self.raw(name)
        return Unresolved(key=self.key(name)) if value is UNKNOWN else bool(value)

    def place(self, name: str, field: str, *, in_force: bool = False) -> None:
        """An argument goes to a field of the Plan; `in_force`: its default changes training."""
        self.fields[self.key(name)] = field
        if in_force and not self.has(name):
            self.in_force[self.key(name)] = Default(self._defaults[name], self._default)

    def remark(self, name: str, remark: Remark) -> None:
        """What the source itself makes of an argument."""
        self.remarks[self.key(name)] = remark

    def item(self, item: Item) -> None:
        """What becomes of an argument without a place, where it is given."""
        if self.has(item.key):
            raw = self._values[item.key]
            value = None if raw is UNKNOWN else raw
            self.items.append(item._replace(key=self.key(item.key), value=value))

    def idle(self, note: str, *names: str) -> None:
        """Arguments that do not act beside the others."""
        for name in names:
            self.item(Item(name, None, "no-effect", note=note))

    def unsupported(self, name: str, note: str, action: str | None = None) -> None:
        """An argument, or its default, has no counterpart."""
        raw = self.raw(name)
        value = None if raw is UNKNOWN else raw
        self.items.append(
            Item(self.key(name), value, "unsupported", note=note, action=action, written=self.has(name))
        )
