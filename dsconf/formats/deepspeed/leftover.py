"""The outcome of every written key that has no place in the Plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dsconf.config.effective import Config, Written
from dsconf.config.tables import Spec, spec_at
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.fate import ENABLED, FATES, NVME, SWITCHED
from dsconf.formats.deepspeed.keys import NEWEST
from dsconf.formats.outcome import Item
from dsconf.plan import Plan


def leftovers(config: Config, plan: Plan, placed: Collection[str], items: Sequence[Item]) -> list[Item]:
    """An item for every key that is written, or said by --set, and not `placed` or among `items` already."""
    return _Leftovers(config, plan, placed, items).run()


class _Leftovers:
    def __init__(self, config: Config, plan: Plan, placed: Collection[str], items: Sequence[Item]) -> None:
        self.config = config
        self.plan = plan
        self.refused = {item.key for item in items if item.outcome == "unsupported"}
        self.placed = set(placed)
        self.done = {item.key for item in items} | self.placed

    def run(self) -> list[Item]:
        items = []
        for written in self.config.written:
            counting = self.config.entry(written.path)
            if counting is not written.entry and self.config.raw(written.path) is not None:
                items.append(self._outdone(written))
                continue
            above = written.path.split(".")
            prefixes = {".".join(above[:depth]) for depth in range(1, len(above) + 1)}
            if prefixes & self.done or self._opens(written):
                continue
            self.done.add(written.path)
            items.append(self._item(written.path, written.spec))
        return items + self._said()

    def _outdone(self, written: Written) -> Item:
        """A key that stands there in another spelling, too."""
        path = ".".join([*written.path.split(".")[:-1], written.entry.key])
        note = f"{written.path} is written as well, and counts"
        return Item(path, written.entry.node.plain(), "no-effect", note=note)

    def _said(self) -> list[Item]:
        """Those of --set that the file does not have, with what becomes of the section where that is one thing."""
        items = []
        for path in self.config.overrides:
            above = path.split(".")
            prefixes = [".".join(above[:depth]) for depth in range(1, len(above) + 1)]
            if self.done.isdisjoint(prefixes):
                settled = next((prefix for prefix in prefixes if prefix in FATES), path)
                item = self._item(settled, spec_at(self.config.table, path)[1])
                items.append(item._replace(key=path, value=self.config.raw(path)))
        return items

    def _opens(self, written: Written) -> bool:
        """Whether the keys of an object get items of their own."""
        node = written.entry.node
        declared = written.spec is not None and "keys" in written.spec
        return declared and node.kind == "object" and bool(node.entries) and written.path not in FATES

    def _item(self, path: str, spec: Spec | None) -> Item:
        value = self.config.raw(path)
        owner = path.partition(".params.")[0]
        if owner != path and self._is_foreign(owner):
            if self.config.raw(f"{owner}.type") is None:
                return Item(path, value, "no-effect", note=f"without {owner}.type DeepSpeed builds none")
            note = f"it belongs to the {owner}, which is not translated"
            return Item(path, value, "unsupported", note=note)
        settled = path in FATES and (spec is not None or owner != path)
        if settled or (spec is not None and spec.get("status") != "removed"):
            return self._fate(path, value)
        if spec is not None:
            version = self.config.context.deepspeed_version or NEWEST
            return Item(path, value, "rejected-by-source", note=f"DeepSpeed {version} has removed this key")
        if owner != path and value in (False, None):
            return Item(path, value, "no-effect", note="it is off")
        if owner != path:
            return self._refused_argument(path, value)
        return Item(path, value, "no-effect", note="DeepSpeed does not know this key and ignores it")

    def _is_foreign(self, owner: str) -> bool:
        """Whether the optimizer or scheduler that the arguments are for did not get into the Plan."""
        return (self.plan.optimizer if owner == "optimizer" else self.plan.schedule) is None

    def _fate(self, path: str, value: object) -> Item:
        for section, (switch, off) in SWITCHED.items():
            if path.startswith(f"{section}.") and path != switch:
                return self._part(path, value, switch, off)
        fate = FATES.get(path)
        if fate is None:
            return self._without_fate(path, value)
        switches = ENABLED.get(path)
        off = switches is not None and not any(self.config.value(switch) for switch in switches)
        if off or self._is_inert(path):
            return Item(path, value, "no-effect", note="it is off")
        return Item(path, value, fate.otherwise, note=fate.note, action=fate.action)

    def _part(self, path: str, value: object, switch: str, off: object) -> Item:
        """A key of a section that acts only while another key is on."""
        state = self.config.value(switch)
        if state == off:
            return Item(path, value, "no-effect", note=f"{switch} is {'none' if off == 'none' else 'false'}")
        if switch in self.refused:
            return Item(path, value, "unsupported", note=NVME)
        if off == "none" and switch not in self.placed:
            return Item(path, value, "no-effect", note=FATES[switch].note)
        if path in FATES:
            if self._is_inert(path):
                return Item(path, value, "no-effect", note="it is off")
            fate = FATES[path]
            return Item(path, value, fate.otherwise, note=fate.note, action=fate.action)
        if state is UNKNOWN:
            return Item(path, value, "no-effect", note="it acts in fp16 only")
        return Item(path, value, "unsupported", note=FATES[switch].note)

    def _is_inert(self, path: str) -> bool:
        if not FATES[path].inert:
            return False
        value = self.config.value(path)
        return any(type(value) is type(quiet) and value == quiet for quiet in FATES[path].inert)

    def _without_fate(self, path: str, value: object) -> Item:
        if value in ({}, [], None):
            return Item(path, value, "no-effect", note="it is empty")
        if ".params." in path:
            return self._refused_argument(path, value)
        return Item(path, value, "unsupported", note="this key is not translated yet")

    def _refused_argument(self, path: str, value: object) -> Item:
        name = self.config.raw(f"{path.partition('.params.')[0]}.type")
        note = f"{name} does not take it: deepspeed.initialize raises TypeError"
        return Item(path, value, "rejected-by-source", note=note, action="remove it")
