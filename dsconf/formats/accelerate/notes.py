"""What the readers of an Accelerate Config share: values, and the places where they note what became of a key."""

from __future__ import annotations

from dsconf.config.effective import Config, Facts
from dsconf.formats.outcome import Item, Outcome
from dsconf.formats.reading import Default, Remark

SIZES = "parallelism_config.parallelism_config_{}_size"
MEETING = {"main_process_ip": "host", "main_process_port": "port", "machine_rank": "machine_rank"}
"""By key the field of Launch: how the processes of several machines find each other."""
NO_HOST = "HOST"
"""What is written in the place of an address that nobody has said yet."""


class Notes:
    """A Config, and what is said of its keys while it is read."""

    def __init__(self, config: Config, facts: Facts) -> None:
        self.config = config
        self.facts = facts
        self.fields: dict[str, str] = {}
        self.items: list[Item] = []
        self.remarks: dict[str, Remark] = {}
        self.in_force: dict[str, Default] = {}
        self.labels: dict[str, str] = {}

    def item(self, path: str, outcome: Outcome, note: str, action: str | None = None) -> None:
        """Say what becomes of a written key that has no place in the Plan."""
        if self.config.present(path) and path not in self.done:
            self.items.append(Item(path, self.config.shown(path), outcome, note=note, action=action))

    @property
    def done(self) -> set[str]:
        """The keys of which something is said."""
        return {item.key for item in self.items} | self.fields.keys()

    def number(self, path: str, default: int | None = None) -> int | None:
        """A value that is an integer, else the default."""
        value = self.config.value(path)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def whole(self, fact: str) -> int | None:
        """A fact that is an integer, else None."""
        value = self.facts.value(fact)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def size(self, name: str) -> int:
        """A size of parallelism_config, 1 where there is no layout."""
        if self.facts.value("parallelism_on") is not True:
            return 1
        return self.number(SIZES.format(name), 1) or 1

    @property
    def distributed(self) -> str:
        """The word of distributed_type."""
        return str(self.config.value("distributed_type"))
