"""What the writers of a module share: its constants and flags, and what became of each field of the Plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from dsconf.formats.fsdp2.emit import Alias, Constant, Needed, Omitted
from dsconf.formats.fsdp2.torch_names import ON_CPU, exists, numbers, since
from dsconf.formats.outcome import Landing
from dsconf.plan import Plan, Unresolved

ENDS_IN_ROOT = Landing("close", "", "embeddings and heads belong to the root: no number changes")
"""Where embeddings and heads are no units of their own, as the Plan would have it."""


class Draft:
    """A module in the making."""

    def __init__(self, plan: Plan, labels: Mapping[str, str], torch: str | None = None) -> None:
        """`labels` says for each field of the Plan where its value comes from; `torch` is the version to write for."""
        self.plan = plan
        self.labels = defaultdict(str, labels)
        self.torch = torch
        self.oldest_torch = (
            ON_CPU if torch is None else min(ON_CPU, ".".join(map(str, numbers(torch))), key=numbers)
        )
        self.flags: dict[str, bool] = {}
        self.constants: dict[str, Constant | Needed | Alias | Omitted] = {}
        self.landings: dict[str, Landing] = {}

    def set(self, name: str, field: str, value: object, annotation: str, target: str, note: str = "") -> None:
        """Give a constant its value, or make it a parameter where it is open; the field lands exactly."""
        if isinstance(value, Unresolved):
            self.constants[name] = Needed(annotation)
            said = f", or translate with --set {value.key}=VALUE" if value.key else ""
            action = f"pass {name.lower()}{said}"
            self.landings[field] = Landing("needs-value", f"{target.format('...')}", note, action)
        else:
            self.constants[name] = Constant(source_of(value), self.labels[field])
            self.landings[field] = Landing("exact", target.format(value), note)

    def has(self, name: str, field: str) -> bool:
        """Whether the torch to write for has a name; the field lands as unsupported if not."""
        if exists(name, self.torch):
            self.oldest_torch = max(self.oldest_torch, since(name), key=numbers)
            return True
        note = f"{name} exists since torch {since(name)}"
        self.landings[field] = Landing(
            "unsupported", "", note, f"--torch-version {since(name)}, if that is what will run"
        )
        return False

    def given(self, *names: str) -> str:
        """The keyword arguments that a call needs for those of the constants that are parameters."""
        needed = [name.lower() for name in names if isinstance(self.constants.get(name), Needed)]
        return "".join(f", {name}=..." for name in needed)


def source_of(value: object) -> str:
    """A value as Python; JSON numbers may be too large for a float."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
