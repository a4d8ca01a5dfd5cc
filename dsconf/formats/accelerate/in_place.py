"""An Accelerate config for FSDP1 made one for FSDP2 where it stands: comments, order and line ends stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dsconf.config.effective import Config
from dsconf.document.edit import Change, EditError, apply
from dsconf.document.node import Document, Edit, Entry, Node
from dsconf.document.yaml_edit import YamlChange
from dsconf.formats.accelerate.read import read
from dsconf.formats.accelerate.write import write
from dsconf.formats.fsdp_section import TRANSFORMER
from dsconf.formats.outcome import Item, Landing
from dsconf.formats.reading import Reading
from dsconf.formats.writing import Request
from dsconf.plan import Launch, Plan

_SECTION = "fsdp_config"
_LAYOUT = "parallelism_config"
_GONE = (
    "sharding_strategy",
    "backward_prefetch",
    "forward_prefetch",
    "use_orig_params",
    "sync_module_states",
)
"""Keys that FSDP2 does not read."""
_STAYS = "it stays as it is"
_LINE = re.compile(r"[ \t]*(?:\r?\n|\Z)")


class Edited(NamedTuple):
    """The new text, and what became of every key."""

    text: str
    reading: Reading
    landings: Mapping[str, Landing]
    needs: str


def to_fsdp2(
    config: Config,
    labels: Mapping[str, str],
    parse: Callable[[str], Document],
    classes: tuple[str, ...] = (),
) -> Edited:
    """Rewrite the text of a Config for FSDP1; one for FSDP2 loses the keys that FSDP2 does not read.

    `labels` say where the fields of its Plan come from, `parse` reads a YAML text, `classes` are those of the units
    where somebody else than the file names them. Raises EditError, with a message
    for people, where the file is none for FSDP, or can't be changed so that it holds what is meant.
    """
    return _Rewriting(config, parse, classes).run(labels)


class _Rewriting:
    def __init__(self, config: Config, parse: Callable[[str], Document], classes: tuple[str, ...]) -> None:
        self.config = config
        self.parse = parse
        self.reading = read(config)
        self.classes = classes if classes != self.reading.plan.wrapping.block_classes else ()
        self.document = config.document
        self.change: Change = YamlChange(self.document, parse)
        self.changed = False
        self.removed: set[str] = set()
        self.new: dict[str, object] = {}
        """Keys that the section gets."""

    def run(self, labels: Mapping[str, str]) -> Edited:
        source = self.reading.source
        if source not in ("accelerate-fsdp1", "accelerate-fsdp2"):
            raise EditError("distributed_type is not FSDP: there is nothing to change to FSDP2")
        old = source == "accelerate-fsdp1"
        writing = write(self._plan(), Request("", labels))
        replicated = self.reading.plan.sharding.partition == "nothing"
        if replicated:
            self._set(self._entry("distributed_type"), "MULTI_GPU" if self._world() != 1 else "NO")
        else:
            self._rewrite(old=old)
        text = self._text()
        if replicated:
            text = self._without_section(text)
        stays = {f"launch.{field}": Landing("exact", "", _STAYS) for field in Launch.model_fields}
        return Edited(text, self._told(replicated=replicated), {**writing.landings, **stays}, writing.needs)

    def _rewrite(self, *, old: bool) -> None:
        self._drop_twins()
        if old:
            self._put("version", 2)
            self._strategy()
            self._layout()
            self._state_dict()
        self._units()
        self._add()
        for name in _GONE:
            if (entry := self.config.entry(f"{_SECTION}.{name}")) is not None:
                self._remove(entry)
                self.removed.add(f"{_SECTION}.{name}")

    # ---- single keys ---------------------------------------------------------------------------------

    def _strategy(self) -> None:
        """The strategy becomes reshard_after_forward, in its place where there is none yet."""
        sharding = self.reading.plan.sharding
        value = sharding.reshard_after_forward is True
        strategy = self.config.entry(f"{_SECTION}.sharding_strategy")
        if self.config.entry(f"{_SECTION}.reshard_after_forward") is None and strategy is not None:
            self.change.rename(strategy.key_span.start, self._spelt("reshard_after_forward"))
            self._set(strategy, value)
            return
        self._put("reshard_after_forward", value)

    def _state_dict(self) -> None:
        """FSDP1 gathers whole weights where nothing is said, FSDP2 does not."""
        path = f"{_SECTION}.state_dict_type"
        weights = self.reading.plan.checkpoint.weights
        if weights == "local" or self.config.raw(path) is None:
            self._put("state_dict_type", "FULL_STATE_DICT" if weights == "full" else "SHARDED_STATE_DICT")

    def _plan(self) -> Plan:
        plan = self.reading.plan
        if not self.classes:
            return plan
        named = plan.wrapping.model_copy(update={"block_classes": self.classes})
        return plan.model_copy(update={"wrapping": named})

    def _units(self) -> None:
        """FSDP2 can't choose units by their size."""
        sized = self.reading.plan.wrapping.min_params is not None
        if self.classes:
            self._put("transformer_layer_cls_to_wrap", ",".join(self.classes))
        elif not sized or self.reading.source == "accelerate-fsdp2":
            return
        self._put("auto_wrap_policy", TRANSFORMER)
        if sized and (entry := self.config.entry(f"{_SECTION}.min_num_params")) is not None:
            self._remove(entry)

    def _layout(self) -> None:
        """Copies of the state are a matter of parallelism_config."""
        group, world = self.reading.plan.sharding.group, self._world()
        if any(item.outcome == "needs-value" for item in self.reading.items):
            raise EditError(
                "how many GPUs a machine has is not known: give --gpus-per-node, and --world-size"
            )
        if group is None:
            return
        if world is None or world % group:
            raise EditError(
                f"the number of ranks is not known to divide into groups of {group}: give --world-size"
            )
        sizes = {f"{_LAYOUT}_dp_replicate_size": world // group, f"{_LAYOUT}_dp_shard_size": group}
        section = self.config.entry(_LAYOUT)
        if section is None:
            self._insert(self.document.root, _LAYOUT, sizes)
            return
        for name, size in sizes.items():
            if (entry := self.config.entry(f"{_LAYOUT}.{name}")) is not None:
                self._set(entry, size)
            else:
                self._insert(section.node, name, size)

    # ---- entries -------------------------------------------------------------------------------------

    def _world(self) -> int | None:
        return self.reading.plan.launch.world_size

    def _entry(self, path: str) -> Entry:
        entry = self.config.entry(path)
        if entry is None:
            raise EditError(f"{path} is not written")
        return entry

    def _set(self, entry: Entry, value: object) -> None:
        if entry.node.plain() != value or isinstance(value, bool) is not isinstance(entry.node.plain(), bool):
            self.change.set(entry.key_span.start, value)
            self.changed = True

    def _remove(self, entry: Entry) -> None:
        if self._renamed(entry):
            return
        self.change.remove(entry.key_span.start)
        self.changed = True

    def _renamed(self, entry: Entry) -> bool:
        """Whether the entry became another one."""
        strategy = self.config.entry(f"{_SECTION}.sharding_strategy")
        new = self.config.entry(f"{_SECTION}.reshard_after_forward") is None
        return new and entry is strategy and self.reading.source == "accelerate-fsdp1"

    def _put(self, name: str, value: object) -> None:
        """Give a key of the section a value, as it is spelt there."""
        entry = self.config.entry(f"{_SECTION}.{name}")
        if entry is not None:
            self._set(entry, value)
        else:
            self.new[self._spelt(name)] = value

    def _spelt(self, name: str) -> str:
        """A name with a prefix, unless all keys of the section have none."""
        section = self.config.entry(_SECTION)
        keys = [entry.key for entry in section.node.entries] if section is not None else []
        bare = bool(keys) and not any(key.startswith("fsdp_") for key in keys)
        return name if bare else f"fsdp_{name}"

    def _add(self) -> None:
        """Write what the section does not have yet."""
        section = self.config.entry(_SECTION)
        if not self.new:
            return
        if section is None:
            self._insert(self.document.root, _SECTION, self.new)
            return
        if section.node.kind != "object":
            self._set(section, self.new)
            return
        for name, value in self.new.items():
            self._insert(section.node, name, value)

    def _insert(self, holder: Node, name: str, value: object) -> None:
        self.change.insert(holder, name, value)
        self.changed = True

    def _drop_twins(self) -> None:
        """Of a key with and without its prefix the last one counts."""
        for item in self.config.written:
            if item.path.startswith(f"{_SECTION}.") and item.entry is not self.config.entry(item.path):
                self._remove(item.entry)

    # ---- the text ------------------------------------------------------------------------------------

    def _text(self) -> str:
        text = self.document.text
        return apply(text, self.change.edits()) if self.changed else text

    def _without_section(self, text: str) -> str:
        """The text without fsdp_config, of which its comments stay."""
        document = self.parse(text)
        entry = document.root.members().get(_SECTION)
        if entry is None:
            return text
        edit = _removal(document, entry)
        after = apply(text, [edit])
        left, kept = document.root.plain(), self.parse(after)
        assert isinstance(left, dict)
        del left[_SECTION]
        if kept.root.plain() != left or _comments(kept) != _comments(document):
            raise EditError("fsdp_config can't be taken out here: remove it by hand")
        return after

    def _told(self, *, replicated: bool) -> Reading:
        """The Reading, in which all that stays in the file is said to stay."""
        items = [self._item(item, replicated=replicated) for item in self.reading.items]
        return self.reading._replace(items=items)

    def _item(self, item: Item, *, replicated: bool) -> Item:
        in_section = item.key.startswith(f"{_SECTION}.")
        if item.key == f"{_SECTION}.reshard_after_forward" and not replicated:
            value = str(self.reading.plan.sharding.reshard_after_forward).lower()
            note = f"{item.note}; now it counts, and says the same"
            return item._replace(outcome="exact", target=f"reshard_after_forward: {value}", note=note)
        if item.key in self.removed or (replicated and in_section):
            return item._replace(target="removed")
        if self.classes and item.key == f"{_SECTION}.transformer_layer_cls_to_wrap":
            target = f"transformer_layer_cls_to_wrap: {','.join(self.classes)}"
            return item._replace(outcome="exact", target=target, note="")
        if item.outcome == "no-effect":
            return item._replace(note=f"{_STAYS}: {item.note}", action=None)
        return item._replace(outcome="exact", note=_STAYS, action=None)


def _removal(document: Document, entry: Entry) -> Edit:
    """The removal of an entry with its lines, which leaves a line for each comment in them."""
    text, (start, end) = document.text, entry.span
    line = text.rfind("\n", 0, start) + 1
    comments = [
        text[each.start : each.end].rstrip()
        for what, each in document.relaxations
        if "comment" in what and start <= each.start < end
    ]
    if text[line:start].strip(" \ufeff"):
        raise EditError("fsdp_config shares its line with something else")
    tail = _LINE.match(text, end)
    stop = tail.end() if tail is not None else end + len(text[end:]) - len(text[end:].lstrip(" \t"))
    newline = "\r\n" if "\r\n" in text else "\n"
    return Edit(line, stop, "".join(f"{comment}{newline}" for comment in comments))


def _comments(document: Document) -> list[str]:
    return sorted(
        document.text[place.start : place.end].rstrip()
        for what, place in document.relaxations
        if "comment" in what
    )
