"""From the Plan to an Axolotl config with FSDP2, or with DDP where nothing is divided."""

from __future__ import annotations

from dsconf.formats.axolotl.arguments import NAMES, ROUNDS_DOWN
from dsconf.formats.fsdp_section import NO_WRAP, write_section
from dsconf.formats.layout import OWN_PLAN, layout_of
from dsconf.formats.outcome import Landing
from dsconf.formats.training.accumulation import EACH_BATCH, land_accumulation, reduces_each
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.replicas import land_replicas
from dsconf.formats.training.text import heading, open_lines
from dsconf.formats.training.write import write_arguments, write_word
from dsconf.formats.writing import UNTRAINED, Request, Writing
from dsconf.formats.yaml_lines import Line, lines_of
from dsconf.plan import Plan, Unresolved

NEEDS = "Axolotl with transformers 5.24"
_MODEL = Line("base_model", "MODEL", "name your model; what it is trained on (datasets) is missing, too")


def write(plan: Plan, request: Request) -> Writing:
    """Write a Plan as the part of the YAML for `axolotl train` that says how it trains, not what."""
    return _Writer(plan, request).run()


class _Writer(Draft):
    def __init__(self, plan: Plan, request: Request) -> None:
        super().__init__(plan, request.labels, NAMES)
        self.origin = request.origin
        self.lines: list[Line] = []

    def run(self) -> Writing:
        sharded = self.plan.sharding.partition != "nothing"
        if sharded:
            self._sharded()
        else:
            land_replicas(self)
        self._sizes(sharded=sharded)
        write_word(self, "fsdp2" if sharded else "ddp")
        self._word()
        if sharded:
            each = reduces_each(self.plan)
            if each:
                self.put("accelerator_config", EACH_BATCH, "batch.accumulation")
            land_accumulation(self, each=each)
        write_arguments(self)
        self._warmup()
        self._launch()
        rest = [
            Line(name, value, self.labels.get(field, "")) for name, (value, field) in self.settings.items()
        ]
        head = heading(self.origin, self.landings, self.labels)
        text = "\n".join(
            [*head, *lines_of([_MODEL, *self.lines, *rest]), *open_lines(self.open, self.unsaid), ""]
        )
        return Writing(text, self.landings, NEEDS)

    def _sharded(self) -> None:
        written = write_section(self.plan)
        self.landings |= written.landings
        inner = [
            Line(name, value, self.labels.get(field, ""))
            for name, value, field in written.settings
            if name != "version" and value != NO_WRAP
        ]
        if self.plan.offload.parameters or self.plan.offload.optimizer:
            pinned = self.plan.offload.pinned
            inner.append(Line("cpu_offload_pin_memory", pinned, self.labels.get("offload.pinned", "")))
            self.landings["offload.pinned"] = Landing(
                "exact", f"cpu_offload_pin_memory: {str(pinned).lower()}"
            )
        self.lines.append(Line("fsdp_version", 2, self.labels.get("sharding.partition", "")))
        self.lines.append(Line("fsdp_config", inner))
        if self.plan.wrapping.root_only and not self.plan.wrapping.block_classes:
            note = "Axolotl has no NO_WRAP: the blocks of the model are units; less memory, the same numbers"
            self.landings["wrapping.root_only"] = Landing("close", "", note)

    def _sizes(self, *, sharded: bool) -> None:
        """Groups of ranks."""
        plan = self.plan
        layout = layout_of(plan)
        tensor, context = layout.tensor, layout.context
        for name, size in (("tensor", tensor), ("context", context)):
            field = f"parallelism.{name}"
            if size == 1:
                self.landings[field] = Landing("exact")
            elif layout.misfit:
                self.landings[field] = Landing("unsupported", "", layout.misfit)
            else:
                self.set(f"{name}_parallel_size", size, field)
        styles = self.landings["parallelism.tensor"]
        if tensor > 1 and not layout.misfit:
            styles = styles._replace(outcome="approximate", note=OWN_PLAN)
            self.landings["parallelism.tensor"] = styles
        self.landings["parallelism.block_styles"] = self.landings["parallelism.root_styles"] = styles
        sequence = plan.parallelism.sequence > 1
        note = "Axolotl divides sequences with context_parallel_size, in a ring"
        self.landings["parallelism.sequence"] = (
            Landing("unsupported", "", note, "choose context parallelism") if sequence else Landing("exact")
        )
        if not sharded or (plan.sharding.group is None and tensor == context == 1):
            self.landings.setdefault("sharding.group", Landing("exact"))
            return
        if layout.misfit:
            self.landings["sharding.group"] = Landing("unsupported", "", layout.misfit)
        elif layout.shards is None or layout.copies is None:
            action = "say the number of ranks with --world-size"
            landing = Landing("needs-value", "dp_shard_size, dp_replicate_size", "", action)
            self.landings["sharding.group"] = landing
        else:
            target = self.put("dp_shard_size", layout.shards, "sharding.group")
            if layout.copies > 1:
                target = f"{target}, {self.put('dp_replicate_size', layout.copies, 'sharding.group')}"
            self.landings["sharding.group"] = Landing("exact", target)

    def _word(self) -> None:
        """Without a word Axolotl takes bf16 where the GPU has it."""
        compute, field = self.plan.precision.compute, "precision.compute"
        if isinstance(compute, Unresolved):
            del self.open["bf16"]
            target = self.put("bf16", "auto", field)
            note = "bf16 where the GPU has it, else fp32"
            action = f"write bf16: true or false, or translate with --set {compute.key}=true"
            self.landings[field] = Landing("needs-value", target, note, action)
        elif "bf16" not in self.settings:
            self.put("bf16", False, field)

    def _warmup(self) -> None:
        """warmup_steps of Axolotl is a whole number: a part of all steps has a key of its own."""
        written = self.settings.get("warmup_steps")
        field = "schedule.warmup_steps"
        if written is not None and isinstance(written.value, float):
            del self.settings["warmup_steps"]
            target = self.put("warmup_ratio", written.value, field)
            self.landings[field] = Landing("approximate", target, ROUNDS_DOWN)
        elif written is not None and written.value == 1:
            landing = self.landings[field]
            self.landings[field] = landing._replace(outcome="approximate", note="Axolotl makes 2 of 1")
        if written is not None or "lr_scheduler" not in self.settings:
            return
        if self.settings["lr_scheduler"].value == "constant":
            self.put("warmup_steps", 0, "schedule.name")

    def _launch(self) -> None:
        world = self.plan.world
        target = f"axolotl train --num-processes {world or '...'}"
        for field in ("launch.world_size", "launch.gpus_per_node", "launch.machines"):
            self.landings[field] = Landing("exact", target)
        self.landings |= UNTRAINED
