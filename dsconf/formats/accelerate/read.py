"""From an Accelerate Config to the Plan: what `accelerate launch` trains, by the section that distributed_type makes
count."""

from __future__ import annotations

from dsconf.config.effective import Config, Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.facts import FACTS
from dsconf.formats.accelerate.leftover import leave_out
from dsconf.formats.accelerate.notes import MEETING, NO_HOST, SIZES, Notes
from dsconf.formats.fsdp_precision import Kind, Word, precision
from dsconf.formats.fsdp_section import BY_SIZE, NO_WRAP, TRANSFORMER, Section
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.plan import (
    Batch,
    Checkpoint,
    Launch,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    Unresolved,
    Wrapping,
)

_UNREAD = ("XLA", "MEGATRON_LM")
_FP8 = "8-bit training is not translated: what is written trains in bf16"
_DEFAULT = "Accelerate's default"


def read(config: Config) -> Reading:
    """Read a Config that lint has no error for; of DeepSpeed only what stands beside its section.

    The optimizer, the schedule, clipping and the batch are the script's: they stay None. Unsupported settings are
    items of the Reading, not exceptions: their fields keep the Plan's defaults.
    """
    return _Reader(config, facts_of(config)).run()


def facts_of(config: Config) -> Facts:
    """The facts of an Accelerate Config."""
    return Facts(config, FACTS)


class _Reader(Notes):
    def run(self) -> Reading:
        section = self._section() if self.facts.value("fsdp_on") is True else None
        self.fields["distributed_type"] = "sharding.partition"
        parallelism = self._parallelism()
        plan = Plan(
            batch=Batch(),
            precision=self._precision(section),
            sharding=self._sharding(section),
            parallelism=parallelism,
            launch=self._launch(),
            **self._of_section(section),
        )
        if self.distributed in _UNREAD:
            note = f"{self.distributed} is not translated"
            del self.fields["distributed_type"]
            self.item("distributed_type", "unsupported", note)
        leave_out(self)
        written = self.config.as_written
        return Reading(
            plan,
            self.fields,
            self.items,
            self.remarks,
            self.in_force,
            self.labels,
            self._name(section),
            written,
        )

    def _name(self, section: Section | None) -> str:
        if section is not None:
            return f"accelerate-fsdp{section.version}"
        return "accelerate-deepspeed" if self.distributed == "DEEPSPEED" else "accelerate"

    # ---- fsdp_config ---------------------------------------------------------------------------------

    def _section(self) -> Section:
        def value(name: str) -> object:
            return self.config.value(f"fsdp_config.{name}")

        version = self.number("fsdp_config.version", 1) or 1
        names = value("transformer_layer_cls_to_wrap")
        state = self.facts.value("state_dict_type")
        section = Section(
            version=version,
            strategy=str(value("sharding_strategy")),
            reshard=value("reshard_after_forward") is not False,
            offload=value("offload_params") is True,
            policy=str(value("auto_wrap_policy")),
            classes=tuple(names.split(",")) if isinstance(names, str) else (),
            min_params=self.number("fsdp_config.min_num_params", 0) or 0,
            state_dict=state if isinstance(state, str) else None,
            loads_on_rank_0=value("cpu_ram_efficient_loading") is True,
            syncs=value("sync_module_states") is not False,
            recompute=value("activation_checkpointing") is True,
        )
        if section.policy not in (TRANSFORMER, BY_SIZE, NO_WRAP):
            section = section._replace(policy=NO_WRAP)
        for name, field in section.fields().items():
            self.fields[f"fsdp_config.{name}"] = field
        for name, fate in section.fates():
            path = f"fsdp_config.{name}"
            if name == "ignored_modules" and self.config.value(path) in (None, UNKNOWN):
                fate = fate._replace(outcome="no-effect", note="it names none", action=None)
            if name == "activation_checkpointing_offload" and self.config.value(path) is not True:
                fate = fate._replace(outcome="no-effect", note="it is off", action=None)
            if self.config.knows(path):
                self.item(path, fate.outcome, fate.note, fate.action)
        self._defaults(section)
        return section

    def _defaults(self, section: Section) -> None:
        """Defaults that change what is trained, or how much memory it takes."""
        telling: dict[str, object] = {"version": section.version, "auto_wrap_policy": section.policy}
        if section.version == 1:
            telling["sharding_strategy"] = section.strategy
        for name, value in telling.items():
            path = f"fsdp_config.{name}"
            if not self.config.present(path):
                self.in_force[path] = Default(value, _DEFAULT)

    def _of_section(self, section: Section | None) -> dict[str, object]:
        if section is None:
            return {"checkpoint": Checkpoint()}
        if section.replicated:
            # Units of a model that nobody divides are not seen.
            for name in ("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params"):
                path = f"fsdp_config.{name}"
                self.fields.pop(path, None)
                self.in_force.pop(path, None)
                self.item(path, "no-effect", "nothing is divided: NO_SHARD")
        return {
            "offload": section.offloaded,
            "wrapping": Wrapping() if section.replicated else section.wrapping,
            "checkpoint": section.checkpoint,
            "recompute": section.recompute,
        }

    # ---- what is divided -----------------------------------------------------------------------------

    def _sharding(self, section: Section | None) -> Sharding:
        if section is None:
            return Sharding(partition="nothing", reshard_after_forward=False)
        return section.sharding(self._group(section))

    def _group(self, section: Section) -> int | None:
        """The ranks of a group that holds the whole state; None for all."""
        copies, shards = self.size("dp_replicate"), self.size("dp_shard") * self.size("cp")
        if section.version == 2:
            if copies > 1:
                self.fields[SIZES.format("dp_replicate")] = "sharding.group"
                self.fields[SIZES.format("dp_shard")] = "sharding.group"
                return shards
            return None
        if not section.hybrid:
            return None
        world, machines = self.whole("processes"), self.whole("machines")
        each = self.config.context.gpus_per_node
        if each is None and world is not None and machines and world % machines == 0:
            each = world // machines
        path = "fsdp_config.sharding_strategy"
        if each is None:
            self.fields.pop(path)
            note = "the ranks of each machine hold a copy, and their number is not known"
            self.item(path, "needs-value", note, "give --world-size, or --gpus-per-node")
        if each is not None and each == world:
            note = "on one machine there is one copy: all is divided over all ranks, as with FULL_SHARD"
            self.fields[path] = "sharding.partition"
            self.remarks[path] = Remark("exact", note)
            return None
        self.labels["sharding.group"] = f"{path}: the GPUs of a machine"
        return each

    def _parallelism(self) -> Parallelism:
        if self.facts.value("parallelism_on") is not True:
            return Parallelism()
        for name, field in (("tp", "tensor"), ("cp", "context"), ("sp", "sequence")):
            if self.size(name) > 1:
                self.fields[SIZES.format(name)] = f"parallelism.{field}"
        if self.size("dp_replicate") == 1 and self.size("dp_shard") > 1:
            self.fields[SIZES.format("dp_shard")] = "sharding.partition"
        elif self.facts.value("fsdp_on") is not True and self.size("dp_replicate") > 1:
            self.fields[SIZES.format("dp_replicate")] = "sharding.partition"
        return Parallelism(tensor=self.size("tp"), context=self.size("cp"), sequence=self.size("sp"))

    # ---- the rest ------------------------------------------------------------------------------------

    def _precision(self, section: Section | None) -> Precision:
        kind: Kind = "ddp" if section is None else "fsdp1" if section.version == 1 else "fsdp2"
        word = self.facts.value("mixed_precision")
        field = "precision.autocast" if kind == "ddp" and word != "no" else "precision.compute"
        path = "fp16" if not self.config.present("mixed_precision") else "mixed_precision"
        self.fields[path] = field
        if word is UNKNOWN:
            return Precision(compute=Unresolved(key="mixed_precision"))
        taken: Word = "no"
        if word == "fp8":
            del self.fields[path]
            self.item("mixed_precision", "unsupported", _FP8, "translate with --set mixed_precision=bf16")
            taken = "bf16"
        elif word in ("bf16", "fp16"):
            taken = word
        found = precision(taken, kind)
        if self.distributed != "DEEPSPEED":
            self._parts(found, path, word)
        return found

    def _parts(self, found: Precision, path: str, word: object) -> None:
        """What mixed_precision brings with it, beside what its own key goes to."""
        scale = found.scaling.scale if found.scaling is not None else None
        parts = {
            "autocast": ("autocast", found.autocast),
            "reduce_dtype": ("reduce", found.reduce),
            "buffer_dtype": ("buffers", found.buffers),
            "GradScaler": ("scaling", scale),
        }
        for name in ("accumulate", "casts_inputs", "rounded_masters"):
            self.labels[f"precision.{name}"] = f"{path}: {word}"
        for key, (name, value) in parts.items():
            field = f"precision.{name}"
            self.labels[field] = f"{path}: {word}"
            if value is not None and self.fields.get(path) != field:
                self.fields[key] = field
                self.in_force[key] = Default(value, f"Accelerate's, with {path}: {word}")

    def _launch(self) -> Launch:
        world, machines = self.whole("processes"), self.whole("machines")
        self.fields |= {"num_processes": "launch.world_size", "num_machines": "launch.machines"}
        each = self.config.context.gpus_per_node
        if each is None and world is not None and machines and world % machines == 0:
            each = world // machines
        return Launch.model_validate(
            {"world_size": world, "machines": machines, "gpus_per_node": each, **self._meeting()}
        )

    def _meeting(self) -> dict[str, object]:
        """How the processes of several machines find each other, as far as the file says it."""
        found: dict[str, object] = {}
        for path, name in MEETING.items():
            host = name == "host"
            value = self.config.value(path) if host else self.number(path)
            if self.config.present(path) and isinstance(value, str if host else int) and value != NO_HOST:
                found[name] = value
                self.fields[path] = f"launch.{name}"
        return found
