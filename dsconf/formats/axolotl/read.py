"""From an Axolotl config to the Plan: what Trainer trains with the arguments that Axolotl makes of it."""

from __future__ import annotations

from typing import Any

from dsconf.config.effective import Config, Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.axolotl.arguments import DEFAULTS, NAMES, ROUNDS_DOWN, given, warmup
from dsconf.formats.axolotl.facts import FACTS
from dsconf.formats.axolotl.leftover import FATES, OWN
from dsconf.formats.fsdp_precision import Kind, precision
from dsconf.formats.fsdp_section import BY_SIZE, TRANSFORMER, Section
from dsconf.formats.outcome import Item, Outcome
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.formats.training.arguments import Given
from dsconf.formats.training.read import FATES as OF_TRAINER
from dsconf.formats.training.read import as_reduced, leftover, read_batch, read_clipping, read_word
from dsconf.formats.training.read_optimizer import read_optimizer
from dsconf.formats.training.read_schedule import read_length, read_schedule
from dsconf.plan import Launch, Parallelism, Plan, Precision, Sharding, TrainerSchedule, Unresolved

_SECTION = "fsdp_config"
_OWNER = "Axolotl"
_WARMUP = "3% of all steps, and 100 at most"
_RECOMPUTE = "gradient_checkpointing"


def read(config: Config) -> Reading:
    """Read a Config that lint has no error for; under DeepSpeed what the keys beside `deepspeed` say."""
    return _Reader(config).run()


class _Reader:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.facts = Facts(config, FACTS)
        self.given = given(config)
        self.arguments = Given(self.given, NAMES, DEFAULTS, _OWNER)

    def run(self) -> Reading:
        deepspeed = self.facts.value("deepspeed_on") is True
        section = self._section() if self.facts.value("fsdp_on") is True and not deepspeed else None
        kind: Kind = "ddp" if section is None else "fsdp1" if section.version == 1 else "fsdp2"
        self.arguments.fields["deepspeed" if deepspeed else "fsdp_version"] = "sharding.partition"
        told = self.arguments
        parts: dict[str, Any] = {}
        if section is not None:
            parts = {
                "offload": section.offloaded,
                "wrapping": section.wrapping,
                "checkpoint": section.checkpoint,
            }
        each = self._reduces_each(kind)
        sizes = self._sizes()
        nothing = Sharding(partition="nothing", reshard_after_forward=False)
        optimizer, schedule = read_optimizer(told), self._schedule()
        divided = nothing if section is None else section.sharding(self._group(sizes))
        batch = read_batch(told, keeps=divided.partition == "parameters" and not each)
        plan = Plan(
            sharding=as_reduced(divided, batch, each=each),
            optimizer=optimizer,
            schedule=schedule,
            length=read_length(told, schedule),
            batch=batch,
            clipping=read_clipping(told),
            precision=self._precision(kind, each=each),
            parallelism=Parallelism(tensor=sizes["tensor_parallel"], context=sizes["context_parallel"]),
            launch=self._launch(sizes),
            recompute=self._recompute(section),
            **parts,
        )
        self._leftovers()
        source = "axolotl-deepspeed" if deepspeed else "axolotl" if section is None else f"axolotl-{kind}"
        return Reading(
            plan, told.fields, told.items, told.remarks, told.in_force, {}, source, self.config.as_written
        )

    def _item(self, path: str, outcome: Outcome, note: str, action: str | None = None) -> None:
        if self.config.present(path):
            shown = self.config.shown(path)
            self.arguments.items.append(Item(path, shown, outcome, "", note, action))

    # ---- FSDP ----------------------------------------------------------------------------------------

    def _section(self) -> Section:
        def value(name: str) -> Any:
            found = self.config.value(f"{_SECTION}.{name}")
            return None if found is UNKNOWN else found

        version = self.facts.value("fsdp_version")
        classes = value("transformer_layer_cls_to_wrap")
        section = Section(
            version=version if isinstance(version, int) else 1,
            reshard=value("reshard_after_forward") is not False,
            offload=value("offload_params") is True,
            pinned=value("cpu_offload_pin_memory") is not False,
            policy=value("auto_wrap_policy") or TRANSFORMER,
            classes=tuple(classes.split(",")) if isinstance(classes, str) else (),
            min_params=value("min_num_params") or 0,
            state_dict=value("state_dict_type") or "FULL_STATE_DICT",
            loads_on_rank_0=value("cpu_ram_efficient_loading") is True,
            syncs=value("sync_module_states") is not False,
            recompute=value("activation_checkpointing") is True or None,
        )
        self._place(section)
        return section

    def _place(self, section: Section) -> None:
        told = self.arguments
        for name, field in section.fields().items():
            if self.config.knows(f"{_SECTION}.{name}"):
                told.fields[f"{_SECTION}.{name}"] = field
        told.fields[f"{_SECTION}.cpu_offload_pin_memory"] = "offload.pinned"
        told.fields["fsdp"] = "sharding.partition"
        if not section.offload:
            del told.fields[f"{_SECTION}.cpu_offload_pin_memory"]
            self._item(f"{_SECTION}.cpu_offload_pin_memory", "no-effect", "nothing is offloaded")
        if not self.config.present("fsdp_version") and not self.config.present(f"{_SECTION}.version"):
            told.in_force["fsdp_version"] = Default(section.version, f"{_OWNER}'s default")
        if section.policy == BY_SIZE and not self.config.present(f"{_SECTION}.min_num_params"):
            self._item(f"{_SECTION}.auto_wrap_policy", "rejected-by-source", "it needs min_num_params")
        told_keys = set()
        for name, fate in section.fates():
            path = f"{_SECTION}.{name}"
            if self.config.knows(path):
                told_keys.add(path)
                self._item(path, fate.outcome, fate.note, fate.action)
        last = "how the model is written at the end changes no training"
        others = {
            "final_state_dict_type": last,
            "mixed_precision_policy": "nobody reads it: bf16 and fp16 count",
        }
        for name, note in others.items():
            told_keys.add(f"{_SECTION}.{name}")
            self._item(f"{_SECTION}.{name}", "no-effect", note)
        self._item("fsdp_final_state_dict_type", "no-effect", last)
        for item in self.config.written:
            known = item.path in told.fields or item.path in told_keys
            if item.path.startswith(f"{_SECTION}.") and not known:
                name = item.path.rpartition(".")[2]
                self._item(item.path, "no-effect", f"{_OWNER} drops it: {_SECTION} has no key {name}")

    # ---- groups of ranks -----------------------------------------------------------------------------

    def _sizes(self) -> dict[str, int]:
        found = {}
        for name in ("dp_shard", "dp_replicate", "tensor_parallel", "context_parallel"):
            value = self.config.value(f"{name}_size")
            found[name] = value if isinstance(value, int) and value > 1 else 1
        for name in ("tensor_parallel", "context_parallel"):
            self.arguments.fields[f"{name}_size"] = f"parallelism.{name.partition('_')[0]}"
        copies = found["dp_replicate"] > 1
        for name in ("dp_shard_size", "dp_replicate_size"):
            if copies:
                self.arguments.fields[name] = "sharding.group"
            elif name == "dp_shard_size":
                self.arguments.fields[name] = "launch.world_size"
            else:
                self._item(name, "no-effect", "one copy of the model, over all ranks")
        return found

    def _group(self, sizes: dict[str, int]) -> int | None:
        if sizes["dp_replicate"] == 1:
            return None
        return sizes["dp_shard"] * sizes["context_parallel"]

    def _launch(self, sizes: dict[str, int]) -> Launch:
        """The number of ranks, where the sizes say it."""
        if sizes["dp_shard"] == 1:
            return Launch()
        world = 1
        for size in sizes.values():
            world *= size
        return Launch(world_size=world)

    # ---- arguments -----------------------------------------------------------------------------------

    def _schedule(self) -> TrainerSchedule | None:
        told = self.arguments
        ratio = "cosine_min_lr_ratio"
        if self.given.get("lr_scheduler_kwargs") and ratio in self.given:
            told.fields[ratio] = "schedule.arguments"
        elif ratio in self.given:
            self._item(ratio, "no-effect", "only a cosine reads it")
        found = read_schedule(told)
        if found is None or found.name == "constant":
            return found
        said = told.has("warmup_steps") or told.has("warmup_ratio")
        if not said:
            told.fields["warmup_steps"] = "schedule.warmup_steps"
            told.in_force["warmup_steps"] = Default(warmup(self.given), f"{_OWNER}'s default: {_WARMUP}")
        steps: Any = found.warmup_steps
        if told.has("warmup_steps"):
            if steps == 1:
                told.remark("warmup_steps", Remark("exact", f"{_OWNER} makes 2 of 1"))
        elif warmup(self.given) is not None:
            steps = warmup(self.given)
        elif not said:
            steps = Unresolved(key="warmup_steps")
        told.remarks.pop("warmup_ratio", None)
        if isinstance(steps, float):
            told.remark("warmup_ratio", Remark("approximate", ROUNDS_DOWN))
        return found.model_copy(update={"warmup_steps": 2 if steps == 1 else steps})

    def _precision(self, kind: Kind, *, each: bool) -> Precision:
        told = self.arguments
        word = told.raw("bf16") if told.has("bf16") else "auto"
        if word == "full":
            told.place("bf16", "precision.compute")
            told.idle("bf16 counts", "fp16")
            return Precision(compute="bf16", masters="bf16")
        if word == "auto":
            return self._auto(kind, each=each)
        found = read_word(told)
        if isinstance(found, Unresolved):
            return Precision(compute=found)
        dtypes = precision(found, kind)
        return dtypes.model_copy(update={"accumulate": "fp32"}) if each and found != "no" else dtypes

    def _auto(self, kind: Kind, *, each: bool) -> Precision:
        """bf16 where the GPU has it, else what fp16 says."""
        told, gpu = self.arguments, self.config.context.gpu
        told.place("bf16", "precision.compute")
        if not told.has("bf16"):
            told.in_force["bf16"] = Default("auto", f"{_OWNER}'s default")
        told.idle("bf16 counts where the GPU has it", "fp16")
        if gpu is None or gpu.bf16 is None:
            return Precision(compute=Unresolved(key="bf16"))
        dtypes = precision("bf16" if gpu.bf16 else "no", kind)
        return dtypes.model_copy(update={"accumulate": "fp32"}) if each and gpu.bf16 else dtypes

    def _reduces_each(self, kind: Kind) -> bool:
        raw = self.given.get("accelerator_config")
        inner = raw.get("gradient_accumulation_kwargs") if isinstance(raw, dict) else None
        each = isinstance(inner, dict) and inner.get("sync_each_batch") is True and kind != "ddp"
        if each:
            self.arguments.place("accelerator_config", "precision.accumulate")
        else:
            self._item("accelerator_config", "no-effect", "nothing in it changes what is trained")
        return each

    def _recompute(self, section: Section | None) -> bool | None:
        if section is not None and section.recompute:
            self._item(_RECOMPUTE, "no-effect", f"{_SECTION}.activation_checkpointing counts")
            return True
        self.arguments.fields.pop(f"{_SECTION}.activation_checkpointing", None)
        self._item(f"{_SECTION}.activation_checkpointing", "no-effect", "it is off")
        raw = self.given.get(_RECOMPUTE)
        if raw is None:
            return None
        if isinstance(raw, str):
            note = "what is kept of activations moves out of GPU memory, which no translation writes"
            action = "put the forward pass in torch.autograd.graph.save_on_cpu()"
            self._item(_RECOMPUTE, "unsupported", note, action)
            return True
        self.arguments.fields[_RECOMPUTE] = "recompute"
        return raw is True

    def _leftovers(self) -> None:
        told = self.arguments
        for path in dict.fromkeys([*(item.path for item in self.config.written), *self.config.overrides]):
            if "." in path or path == _SECTION:
                continue
            if path in told.fields or path in {item.key for item in told.items}:
                continue
            raw = self.config.raw(path)
            if path in FATES:
                fate = FATES[path] if raw else OWN._replace(note="it is off")
                self._item(path, fate.outcome, fate.note, fate.action)
            elif path in OF_TRAINER and raw is not None:
                leftover(told, path)
            else:
                self._item(path, OWN.outcome, OWN.note)
        if "deepspeed" in self.given and not self.given["deepspeed"]:
            told.fields.pop("deepspeed", None)
