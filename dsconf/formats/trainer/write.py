"""From the Plan to training arguments with FSDP2, or with DDP where nothing is divided."""

from __future__ import annotations

from dsconf.formats.fsdp_section import write_section
from dsconf.formats.layout import OWN_PLAN, Layout, layout_of
from dsconf.formats.outcome import Landing
from dsconf.formats.trainer.file import NEEDS, land_launch, text_of
from dsconf.formats.trainer.notes import SECTION
from dsconf.formats.training.accumulation import EACH_BATCH, land_accumulation, reduces_each
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.replicas import land_replicas
from dsconf.formats.training.write import write_arguments, write_word
from dsconf.formats.writing import Request, Writing
from dsconf.formats.yaml_lines import Line
from dsconf.plan import Plan

_OFFLOAD = "cpu_offload"
_BACKENDS = "cpu:gloo,cuda:nccl"
_LAYOUT = "parallelism_config=ParallelismConfig({})"


def write(plan: Plan, request: Request) -> Writing:
    """Write a Plan as the YAML that HfArgumentParser.parse_yaml_file reads, or TrainingArguments(**values) takes.

    What only a script can say stands at the head of the file.
    """
    return _Writer(plan, request).run()


class _Writer(Draft):
    def __init__(self, plan: Plan, request: Request) -> None:
        super().__init__(plan, request.labels)
        self.request = request
        self.lines: list[Line] = []

    def run(self) -> Writing:
        sharded = self.plan.sharding.partition != "nothing"
        if sharded:
            self._sharded()
        else:
            land_replicas(self)
        write_word(self, "fsdp2" if sharded else "ddp")
        if sharded:
            self._accumulation()
        write_arguments(self)
        self._layout()
        land_launch(self)
        return Writing(text_of(self, self.request, self.lines, self.unsaid), self.landings, NEEDS)

    def _sharded(self) -> None:
        labels = self.request.labels
        written = write_section(self.plan, offload_key=_OFFLOAD)
        self.landings |= written.landings
        inner = []
        for name, value, field in written.settings:
            names = name == "transformer_layer_cls_to_wrap" and isinstance(value, str)
            inner.append(Line(name, str(value).split(",") if names else value, labels.get(field, "")))
        self.lines.append(Line("fsdp", True, labels.get("sharding.partition", "")))
        self.lines.append(Line(SECTION, inner))
        offload = self.plan.offload
        if offload.parameters or offload.optimizer:
            self.put(
                "ddp_backend", _BACKENDS, "offload.parameters" if offload.parameters else "offload.optimizer"
            )

    def _accumulation(self) -> None:
        each = reduces_each(self.plan)
        if each:
            self.put("accelerator_config", EACH_BATCH, "batch.accumulation")
        land_accumulation(self, each=each)

    def _layout(self) -> None:
        """Groups of ranks, which arguments in a file can't say."""
        parallelism, group = self.plan.parallelism, self.plan.sharding.group
        layout = layout_of(self.plan)
        sizes = _sizes(layout, divided=group is not None)
        target = _LAYOUT.format(", ".join(f"{name}={size or '...'}" for name, size in sizes.items()))
        note = "a file of arguments can't say it"
        loaded = 'load the model with tp_plan="auto", and ' if parallelism.tensor > 1 else ""
        action = f"in your script: {loaded}pass {target} of accelerate to TrainingArguments"
        said = Landing("exact", target, note, action)
        if layout.misfit:
            said = Landing("unsupported", "", layout.misfit)
        tensor = _divided(said) if parallelism.tensor > 1 else Landing("exact")
        sequence = Landing("exact")
        if parallelism.sequence > 1:
            note = "Trainer divides sequences over ranks by Ulysses under DeepSpeed only"
            sequence = Landing("unsupported", "", note, "--to trainer-deepspeed")
        self.landings |= {
            "parallelism.tensor": tensor,
            "parallelism.block_styles": tensor,
            "parallelism.root_styles": tensor,
            "parallelism.context": said if parallelism.context > 1 else Landing("exact"),
            "parallelism.sequence": sequence,
            "sharding.group": Landing("exact") if group is None else said,
        }


def _sizes(layout: Layout, *, divided: bool) -> dict[str, int | None]:
    """The arguments of a ParallelismConfig; `divided`: whether the state is divided over a group of the ranks."""
    named = (("tp_size", layout.tensor), ("cp_size", layout.context))
    sizes: dict[str, int | None] = {name: size for name, size in named if size > 1}
    if sizes or divided:
        sizes["dp_shard_size"] = layout.shards
    if divided:
        sizes["dp_replicate_size"] = layout.copies
    return sizes


def _divided(said: Landing) -> Landing:
    """The landing of layers that are divided over ranks, which has nothing better than `said`."""
    if said.outcome == "unsupported":
        return said
    return said._replace(outcome="approximate", note=OWN_PLAN)
