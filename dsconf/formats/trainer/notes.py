"""What the readers of training arguments share: the Config, its facts, and what is said of its keys."""

from __future__ import annotations

from typing import Any

from dsconf.config.effective import Config, Facts, Written
from dsconf.document.node import UNKNOWN
from dsconf.formats.outcome import Item, Outcome
from dsconf.formats.trainer.merge import given
from dsconf.formats.training.arguments import Given

SECTION = "fsdp_config"


class Notes:
    """Training arguments while they are read."""

    def __init__(self, config: Config, facts: Facts) -> None:
        self.config = config
        self.facts = facts
        self.arguments = Given(given(config))
        """The arguments by their canonical names."""

    @property
    def whole(self) -> bool:
        """Whether these are all arguments, not a section fsdp_config alone; what is said beside it counts by itself."""
        inside = [item for item in self.config.written if item.path.partition(".")[0] != SECTION]
        return bool(inside) or self.config.document.root.open

    @property
    def in_section(self) -> list[Written]:
        """The keys of fsdp_config that are written."""
        return [item for item in self.config.written if item.path.startswith(f"{SECTION}.")]

    def value(self, path: str) -> Any:
        """An effective value, None where it is not known."""
        value = self.config.value(path) if self.config.knows(path) else self.config.raw(path)
        return None if value is UNKNOWN else value

    def item(self, path: str, outcome: Outcome, note: str, action: str | None = None) -> None:
        """What becomes of a key without a place, where it is written."""
        if self.config.present(path):
            self.arguments.items.append(Item(path, self.config.shown(path), outcome, "", note, action))
