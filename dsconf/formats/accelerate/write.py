"""From the Plan to an Accelerate config for FSDP2, or for DDP where nothing is divided."""

from __future__ import annotations

from dsconf.formats.accelerate.notes import MEETING, NO_HOST
from dsconf.formats.accelerate.write_script import duties, land_script
from dsconf.formats.accelerate.yaml_text import heading, lines_of
from dsconf.formats.fsdp_precision import Kind, land_precision, word_for
from dsconf.formats.fsdp_section import write_section
from dsconf.formats.layout import OWN_PLAN, layout_of
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import Request, Writing
from dsconf.formats.yaml_lines import Line
from dsconf.plan import Launch, Plan

NEEDS = "Accelerate 1.15"
_LAYOUT = "parallelism_config_{}_size"
_WORLD = "say the number of ranks with --world-size"


def write(plan: Plan, request: Request) -> Writing:
    """Write a Plan as the YAML that `accelerate launch --config_file` reads.

    What only a script can say lands with what it has to do, which stands at the head of the file, too.
    """
    return _Writer(plan, request).run()


class _Writer:
    def __init__(self, plan: Plan, request: Request) -> None:
        self.plan = plan
        self.request = request
        self.lines: list[Line] = []
        self.landings: dict[str, Landing] = {}

    def run(self) -> Writing:
        sharded = self.plan.sharding.partition != "nothing" or self.plan.parallelism.context > 1
        self._put("compute_environment", "LOCAL_MACHINE")
        if sharded:
            self._sharded()
        else:
            self._replicated()
        self._layout(sharded=sharded)
        self._precision("fsdp2" if sharded else "ddp")
        write_launch(self.plan, self.request, self.lines, self.landings)
        self.landings |= land_script(self.plan)
        left = duties(self.landings, self.request.labels)
        text = "\n".join([*heading(self.request.origin, left), *lines_of(self.lines), ""])
        return Writing(text, self.landings, NEEDS)

    def _put(self, key: str, value: object, field: str = "") -> None:
        self.lines.append(Line(key, value, self.request.labels.get(field, "")))

    def _sharded(self) -> None:
        self._put("distributed_type", "FSDP", "sharding.partition")
        section = write_section(self.plan)
        self.landings |= section.landings
        labels = self.request.labels
        inner = [
            Line(f"fsdp_{name}", value, labels.get(field, "")) for name, value, field in section.settings
        ]
        self._put("fsdp_config", inner)

    def _replicated(self) -> None:
        self._put("distributed_type", self._kind(), "sharding.partition")
        target = f"distributed_type: {self._kind()}"
        self.landings["sharding.partition"] = Landing(
            "exact", target, "every rank holds the whole training state"
        )
        whole = Landing("exact", target, "nothing is divided")
        for field in ("sharding.reshard_after_forward", "sharding.group", "sharding.own_linear"):
            self.landings[field] = whole
        for field in ("block_classes", "min_params", "root_only", "separate_ends"):
            self.landings[f"wrapping.{field}"] = whole
        summed = self.plan.sharding.sums_gradients
        action = "multiply the loss by the number of ranks before its backward pass"
        self.landings["sharding.sums_gradients"] = Landing(
            "approximate" if summed else "exact", "", "DDP averages gradients", action if summed else None
        )
        offload = self.plan.offload
        moved = offload.parameters or offload.optimizer
        kept = Landing("unsupported" if moved else "exact", "", "DDP offloads nothing" * moved)
        for field in ("parameters", "optimizer", "pinned"):
            self.landings[f"offload.{field}"] = kept
        recompute = "call model.gradient_checkpointing_enable(), or torch.utils.checkpoint in the model"
        on = self.plan.recompute is True
        self.landings["recompute"] = Landing(
            "exact",
            "",
            "" if not on else "the script does it",
            f"in your script: {recompute}" if on else None,
        )
        self.landings["checkpoint.weights"] = Landing("exact", target, "every rank has the whole weights")
        self.landings["checkpoint.loads_on_rank_0"] = Landing(
            "exact", target, "DDP sends the weights of rank 0 to all"
        )
        unused = self.plan.wrapping.unused_parameters
        found = "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])"
        self.landings["wrapping.unused_parameters"] = Landing(
            "exact", found * unused, "", f"in your script: {found}" if unused else None
        )

    def _kind(self) -> str:
        return "NO" if self.plan.world == 1 else "MULTI_GPU"

    # ---- parallelism_config --------------------------------------------------------------------------

    def _layout(self, *, sharded: bool) -> None:
        plan = self.plan
        tensor, context = plan.parallelism.tensor, plan.parallelism.context
        sizes: dict[str, tuple[int, str]] = {}
        for name, size, field in (("tp", tensor, "tensor"), ("cp", context, "context")):
            if size > 1:
                sizes[name] = (size, f"parallelism.{field}")
            self.landings[f"parallelism.{field}"] = Landing(
                "exact", _LAYOUT.format(name) + f": {size}" * (size > 1)
            )
        self._sequence()
        if tensor > 1:
            mesh = 'device_mesh=accelerator.torch_device_mesh["tp"]'
            action = f'in your script: from_pretrained(..., tp_plan="auto", {mesh})'
            landing = Landing("approximate", f"{_LAYOUT.format('tp')}: {tensor}", OWN_PLAN, action)
            self.landings |= dict.fromkeys(("parallelism.tensor", "parallelism.block_styles"), landing)
            self.landings["parallelism.root_styles"] = landing
        group = plan.sharding.group
        if group is None and not sizes:
            return
        if not sharded and plan.world != tensor:
            note = "Accelerate makes no copies of a model that is divided by tensor parallelism: shard it as well"
            self._land_sizes(sizes, group, Landing("unsupported", "", note))
            return
        if not sharded:
            self._put("parallelism_config", [self._size(name, *each) for name, each in sizes.items()])
            return
        self._data_parallel(sizes)

    def _data_parallel(self, sizes: dict[str, tuple[int, str]]) -> None:
        """The sizes of copies and shards, whose product with the others is the number of ranks."""
        layout, group, field = layout_of(self.plan), self.plan.sharding.group, "sharding.group"
        if layout.misfit:
            self._land_sizes(sizes, group, Landing("unsupported", "", layout.misfit))
            return
        if layout.shards is None or layout.copies is None:
            landing = Landing(
                "needs-value", "parallelism_config", "its sizes multiply to the number of ranks", _WORLD
            )
            self._land_sizes(sizes, group, landing)
            return
        if layout.copies == 1 and not sizes:
            target = "one group of all ranks: no parallelism_config"
            self.landings[field] = Landing("exact", target)
            return
        entries = [self._size(name, *each) for name, each in sizes.items()]
        entries.append(self._size("dp_shard", layout.shards, field))
        if layout.copies > 1:
            entries.append(self._size("dp_replicate", layout.copies, field))
        copies, shards = _LAYOUT.format("dp_replicate"), _LAYOUT.format("dp_shard")
        target = f"{copies}: {layout.copies}, {shards}: {layout.shards}"
        note = "" if group is None else f"{layout.copies} copies, each divided over {group} ranks"
        self.landings[field] = Landing("exact", target, note)
        self._put("parallelism_config", entries)

    def _land_sizes(self, sizes: dict[str, tuple[int, str]], group: int | None, landing: Landing) -> None:
        if group is not None:
            self.landings["sharding.group"] = landing
        self.landings |= {field: landing for _, field in sizes.values()}

    def _size(self, name: str, size: int, field: str) -> Line:
        return Line(_LAYOUT.format(name), size, self.request.labels.get(field, ""))

    def _sequence(self) -> None:
        size = self.plan.parallelism.sequence
        note = "Accelerate divides sequences over ranks by Ulysses under DeepSpeed only"
        action = "--to accelerate-deepspeed, or divide them with cp_size"
        self.landings["parallelism.sequence"] = (
            Landing("unsupported", "", note, action) if size > 1 else Landing("exact")
        )

    def _precision(self, kind: Kind) -> None:
        word = word_for(self.plan.precision)
        if word is not None:
            field = "precision.compute"
            if self.plan.precision.compute == "fp32" and self.plan.precision.autocast is not None:
                field = "precision.autocast"
            self._put("mixed_precision", word, field)
        self.landings |= land_precision(self.plan, kind, "mixed_precision: {}")


def write_launch(plan: Plan, request: Request, lines: list[Line], landings: dict[str, Landing]) -> None:
    """Write the machines and their ranks; without their number `accelerate launch` has to be given it."""
    labels = request.labels
    world = plan.world
    each, machines = plan.launch.gpus_per_node, plan.launch.machines
    if machines is None:
        machines = 1 if world is None or each is None else max(1, -(-world // each))
    lines.append(Line("num_machines", machines, labels.get("launch.machines", "")))
    landings["launch.machines"] = Landing("exact", f"num_machines: {machines}")
    landings["launch.gpus_per_node"] = Landing("exact", "num_processes, over num_machines")
    _write_meeting(plan.launch, machines, request, lines, landings)
    if world is None:
        action = f"{_WORLD}, or to accelerate launch with --num_processes"
        landings["launch.world_size"] = Landing("needs-value", "num_processes", "", action)
        return
    lines.append(Line("num_processes", world, labels.get("launch.world_size", "") or "of all machines"))
    landings["launch.world_size"] = Landing("exact", f"num_processes: {world}")


def _write_meeting(
    launch: Launch, machines: int, request: Request, lines: list[Line], landings: dict[str, Landing]
) -> None:
    """Write how the processes of several machines find each other: as the source has it, else with a place for it."""
    unsaid: dict[str, object] = {}
    labels = dict(request.labels)
    if machines > 1 and launch.host is None:
        unsaid |= {"host": NO_HOST, "port": 29500}
        labels["launch.host"] = "the address of the machine of rank 0; machine_rank differs on each"
        note = "name the first machine in main_process_ip, and each machine's number in machine_rank"
        landings["launch.machines"] = Landing("needs-value", f"num_machines: {machines}", "", note)
    for key, name in MEETING.items():
        field, said = f"launch.{name}", getattr(launch, name)
        value = unsaid.get(name) if said is None else said
        if value is not None:
            lines.append(Line(key, value, labels.get(field, "")))
        landings[field] = Landing("exact", f"{key}: {value}" if value is not None else "")
