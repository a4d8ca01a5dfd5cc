"""The DeepSpeed config that a section deepspeed_config means, and a Reading of it under the keys of the section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsconf.config.effective import Config
from dsconf.formats.accelerate.leftover import leave_out
from dsconf.formats.accelerate.notes import Notes
from dsconf.formats.accelerate.read import facts_of, read
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.plan import Plan, Unresolved

_SECTION = "deepspeed_config."
_ZERO = "zero_optimization."
_DEFAULT = "Accelerate's default"
_DEVICES = ("optimizer", "param")
_CLIPPING = 1.0
"""What Accelerate puts for "auto"; Trainer puts its max_grad_norm there."""


class Flat(NamedTuple):
    """A section as the dictionary that Accelerate hands to DeepSpeed."""

    settings: dict[str, Any]
    """Without what the script decides: the micro batch, and with it the whole batch."""
    sources: dict[str, str]
    """By dotted path of the dictionary the key of the YAML file that it comes from."""
    items: list[Item]
    """Keys that go nowhere."""
    remarks: dict[str, Remark]


def settings_of(config: Config) -> Flat | None:
    """What the keys of the section mean; None where it names a file instead, or does not count."""
    notes = Notes(config, facts_of(config))
    if notes.facts.value("deepspeed_on") is not True or notes.facts.value("ds_file") is not None:
        return None
    return _Flattened(notes).run()


class _Flattened:
    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.settings: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.remarks: dict[str, Remark] = {}

    def run(self) -> Flat:
        steps = self._value("gradient_accumulation_steps")
        self._put("gradient_accumulation_steps", steps, "gradient_accumulation_steps")
        self._clipping()
        stage = self._value("zero_stage")
        self._put(f"{_ZERO}stage", stage, "zero_stage")
        for name in _DEVICES:
            self._offload(name)
        gathers = self._value("zero3_save_16bit_model") is True
        self._put(f"{_ZERO}stage3_gather_16bit_weights_on_model_save", gathers, "zero3_save_16bit_model")
        names = self._value("deepspeed_moe_layer_cls_names")
        if isinstance(names, str) and stage == 3:
            self._put(f"{_ZERO}leaf_module.classes", names.split(","), "deepspeed_moe_layer_cls_names")
        self._precision()
        land_rest(self.notes)
        return Flat(self.settings, self.sources, self.notes.items, self.remarks)

    def _value(self, name: str) -> object:
        return self.notes.config.value(_SECTION + name)

    def _put(self, path: str, value: object, name: str) -> None:
        *above, last = path.split(".")
        section = self.settings
        for key in above:
            section = section.setdefault(key, {})
        section[last] = value
        source = name if name == "mixed_precision" else _SECTION + name
        self.sources[path] = source
        self.notes.fields[source] = path

    def _clipping(self) -> None:
        name, key = "gradient_clipping", f"{_SECTION}gradient_clipping"
        norm = self._value(name)
        if norm == 0:
            note = "Accelerate leaves 0 out, and DeepSpeed then clips at its default"
            self.notes.item(key, "no-effect", note)
            return
        if norm == "auto":
            norm = _CLIPPING
            note = f"Accelerate puts {_CLIPPING} for auto; Trainer puts max_grad_norm there"
            self.remarks[key] = Remark("exact", note)
        self._put(name, norm, name)

    def _offload(self, name: str) -> None:
        path, key = f"{_ZERO}offload_{name}", f"offload_{name}_device"
        device = self._value(key)
        self._put(f"{path}.device", device, key)
        where = f"{_SECTION}offload_{name}_nvme_path"
        if device == "nvme":
            # The launcher hands no path on, and the plugin takes this word for one.
            self.settings["zero_optimization"][f"offload_{name}"]["nvme_path"] = "none"
            note = "the launcher drops it: DeepSpeed writes to a folder named none where the run starts"
            action = "name a DeepSpeed JSON with deepspeed_config_file, which can say the path"
            self.notes.item(where, "no-effect", note, action)
        else:
            self.notes.item(where, "no-effect", "nothing is offloaded to NVMe")

    def _precision(self) -> None:
        word = self.notes.facts.value("mixed_precision")
        if word == "fp16":
            self._put("fp16.enabled", True, "mixed_precision")
            self.settings["fp16"]["auto_cast"] = True
            self.sources["fp16.auto_cast"] = "mixed_precision"
        elif word in ("bf16", "fp8"):
            self._put("bf16.enabled", True, "mixed_precision")


def land_rest(notes: Notes) -> None:
    """Say what becomes of the keys of the section that say nothing of training."""
    launched = "how the processes of several machines are started"
    for name in ("hostfile", "exclusion_filter", "inclusion_filter", "multinode_launcher"):
        notes.item(f"{_SECTION}deepspeed_{name}", "no-effect", launched)
    flag = (
        "weights are divided as soon as they are made, which is how they are loaded and not what is trained"
    )
    notes.item(f"{_SECTION}zero3_init_flag", "no-effect", flag)
    path = f"{_SECTION}deepspeed_moe_layer_cls_names"
    notes.item(path, "no-effect", "only ZeRO-3 gathers the weights of blocks of experts together")


def join(config: Config, flat: Flat, inner: Reading) -> Reading:
    """The Reading of a file: `inner` is that of the dictionary that its section means."""
    outer, notes = read(config), Notes(config, facts_of(config))

    def renamed(key: str) -> str:
        return flat.sources.get(key, key)

    written = {source for source in flat.sources.values() if config.present(source)}
    fields, in_force, remarks = dict(outer.fields), dict(outer.in_force), dict(outer.remarks)
    fields.pop("mixed_precision", None)
    for key, field in inner.fields.items():
        if key in flat.sources or key in inner.in_force:
            fields.setdefault(renamed(key), field)
    items = [item for item in [*flat.items] if item.key not in fields]
    for item in inner.items:
        key = renamed(item.key)
        if key in written or not item.written:
            items.append(item._replace(key=key, value=config.shown(key) if key in written else item.value))
    in_force |= {renamed(key): default for key, default in inner.in_force.items()}
    for key, source in flat.sources.items():
        if source not in written and source in fields:
            in_force[source] = Default(_at(flat.settings, key), _DEFAULT)
    for key, remark in inner.remarks.items():
        remarks[renamed(key)] = remark
    for key, remark in flat.remarks.items():
        remarks[key] = remark.joined(remarks[key]) if key in remarks else remark
    done = {item.key for item in items} | fields.keys()
    items += [item for item in outer.items if item.key not in done and not item.key.startswith(_SECTION)]
    notes.items, notes.fields = items, fields
    leave_out(notes)
    labels = {field: renamed(label) for field, label in inner.labels.items()} | dict(outer.labels)
    plan = _named(inner.plan, flat.sources).model_copy(
        update={
            "launch": outer.plan.launch,
            "parallelism": inner.plan.parallelism.model_copy(
                update={"sequence": outer.plan.parallelism.sequence}
            ),
        }
    )
    of_deepspeed = frozenset(inner.fields)
    return Reading(
        plan, fields, notes.items, remarks, in_force, labels, outer.source, outer.written, of_deepspeed
    )


def join_file(config: Config, inner: Reading) -> Reading:
    """The Reading of a file that names a DeepSpeed JSON, of which `inner` is the Reading."""
    outer, notes = read(config), Notes(config, facts_of(config))
    named = f"{_SECTION}deepspeed_config_file"
    # The file says the precision, and Accelerate refuses a word of its own beside it.
    notes.fields = {key: field for key, field in outer.fields.items() if key != "mixed_precision"}
    note = "its keys follow"
    notes.items = [item for item in outer.items if not item.key.startswith(_SECTION)]
    notes.item(named, "exact", note)
    land_rest(notes)
    leave_out(notes)
    plan = inner.plan.model_copy(
        update={
            "launch": outer.plan.launch,
            "parallelism": inner.plan.parallelism.model_copy(
                update={"sequence": outer.plan.parallelism.sequence}
            ),
        }
    )
    return Reading(
        plan,
        {**notes.fields, **inner.fields},
        [*notes.items, *inner.items],
        {**outer.remarks, **inner.remarks},
        {**outer.in_force, **inner.in_force},
        {**outer.labels, **inner.labels},
        outer.source,
        {**outer.written, **inner.written},
        frozenset(inner.fields),
    )


def _at(settings: Mapping[str, Any], path: str) -> object:
    found: Any = settings
    for key in path.split("."):
        found = found[key]
    return found


def _named(plan: Plan, sources: Mapping[str, str]) -> Plan:
    """The Plan with the keys of the YAML file for what is left open."""
    steps = plan.batch.accumulation
    if isinstance(steps, Unresolved):
        named = Unresolved(key=sources.get(steps.key, steps.key))
        return plan.model_copy(update={"batch": plan.batch.model_copy(update={"accumulation": named})})
    return plan
