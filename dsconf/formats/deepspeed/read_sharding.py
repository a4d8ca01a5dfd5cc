"""What the Plan divides over the GPUs, and what it moves to CPU memory."""

from __future__ import annotations

from typing import Literal

from dsconf.config.dtypes import short_name
from dsconf.config.tables import spec_at
from dsconf.formats.deepspeed.fate import NVME, TRAFFIC
from dsconf.formats.deepspeed.notes import (
    LOOKS_AT_NORM,
    NO_SCALE,
    NOT_FINITE,
    STEP_BEFORE,
    UNSCALED,
    Notes,
)
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Remark
from dsconf.plan import Offload, Sharding

SHARDING_FIELDS = {
    "zero_optimization.stage": "sharding.partition",
    "zero_optimization.zero_hpz_partition_size": "sharding.reshard_after_forward",
    "zero_optimization.mics_shard_size": "sharding.group",
    "gradient_allreduce_op": "sharding.sums_gradients",
    "zero_optimization.offload_param.device": "offload.parameters",
    "zero_optimization.offload_param.pin_memory": "offload.pinned",
    "zero_optimization.offload_optimizer.device": "offload.optimizer",
    "zero_optimization.offload_optimizer.pin_memory": "offload.pinned",
    "zero_optimization.cpu_offload": "offload.optimizer",
    "zero_optimization.cpu_offload_param": "offload.parameters",
}
"""The field of the Plan that each key goes to."""

LINEAR = "zero_optimization.memory_efficient_linear"
"""At stage 3, whether DeepSpeed replaces F.linear."""
_OFFLOADS_FROM = {"param": 3, "optimizer": 1}
"""The first stage that reads a section of offload."""
_STAYS = "after a step whose norm is not finite DeepSpeed leaves out all others, too; PyTorch goes on"
_SCALED = "it is scaled here"
_Partition = Literal["nothing", "optimizer", "gradients", "parameters"]
_PARTITIONS: tuple[_Partition, ...] = ("nothing", "optimizer", "gradients", "parameters")


def read_sharding(notes: Notes) -> Sharding:
    """The ZeRO stage, and hpZ; a stage that is not known is 0, with an item that says so."""
    path, group = "zero_optimization.stage", "zero_optimization.zero_hpz_partition_size"
    stage, ranks = notes.config.value(path), notes.config.value(group)
    whole = notes.config.raw("zero_optimization")
    if isinstance(whole, bool):
        stage, note = int(whole), f"it means stage {int(whole)}"
        notes.items.append(Item("zero_optimization", whole, "exact", note=note))
        notes.in_force[path] = Default(stage, "of zero_optimization")
    elif not isinstance(stage, int):
        notes.unsupported(path, "the stage is not known", f"--set {path}=3 translates it as ZeRO-3")
        stage = 0
    elif not notes.config.present(path):
        notes.in_force[path] = Default(int(stage), "DeepSpeed's default")
    if path not in {item.key for item in notes.items}:
        if stage == 0:
            _remark_on_stage_0(notes)
        elif not _skips_what_is_not_finite(notes, stage):
            notes.remarks[path] = Remark("exact", NOT_FINITE)
    partition = _PARTITIONS[int(stage)]
    if stage != 3 or not isinstance(ranks, int) or ranks <= 1:
        notes.leave(group)
        ranks = 0
    own_linear = notes.config.value(LINEAR) is not False if int(stage) == 3 else None
    return Sharding(
        partition=partition,
        reshard_after_forward=ranks or stage == 3,
        group=_group(notes, int(stage)),
        sums_gradients=_sums(notes, int(stage)),
        own_linear=own_linear,
        keeps_gathered=own_linear is False,
    )


def _group(notes: Notes, stage: int) -> int | None:
    """The ranks of a group of MiCS, which older versions have."""
    path, gather = (f"zero_optimization.mics_{key}" for key in ("shard_size", "hierarchical_params_gather"))
    if not notes.config.knows(path) or spec_at(notes.config.table, path)[1].get("status") == "removed":
        notes.leave(path)
        return None
    size = notes.config.value(path)
    idle = {gather: TRAFFIC}
    if stage != 3 or not isinstance(size, int) or size < 1:
        idle[path] = "MiCS acts at stage 3, in groups of ranks"
        notes.leave(path)
        size = None
    for key, note in idle.items():
        if notes.config.present(key):
            notes.items.append(Item(key, notes.config.raw(key), "no-effect", note=note))
    return size


def _sums(notes: Notes, stage: int) -> bool:
    """Whether gradients are added up; a word on factors that cancel out."""
    factor = notes.config.value("gradient_predivide_factor")
    world = notes.config.context.world_size
    scaled = (
        isinstance(factor, int | float)
        and factor > 1
        and notes.config.value("prescale_gradients") is not True
    )
    if stage == 3 and scaled and world in (None, factor):
        note = (
            "PyTorch has the mean; on as many ranks as this factor says, DeepSpeed 0.19.8 forgets to "
            f"multiply by it again at ZeRO-3, so that its gradients are {factor} times too small"
        )
        path = "gradient_predivide_factor"
        notes.items.append(Item(path, notes.config.raw(path), "approximate", note=note))
    return str(notes.config.value("gradient_allreduce_op")).lower() == "sum"


def _remark_on_stage_0(notes: Notes) -> None:
    """Without ZeRO, DeepSpeed's 16-bit optimizers have faults that PyTorch does not repeat."""
    path, precision = "zero_optimization.stage", notes.facts.value("precision")
    if precision == "fp32":
        # The gradient scaler of fp16 looks for infinities.
        scaled = notes.autocasts and notes.facts.value("autocast_format") == "fp16"
        loaded = "a model loaded in 16 bits DeepSpeed trains without fp32 masters"
        notes.remarks[path] = Remark("exact", loaded if scaled else f"{NOT_FINITE}; {loaded}")
    elif precision == "fp16" and notes.config.context.since(UNSCALED):
        notes.remarks[path] = Remark("approximate", f"{NO_SCALE}; {_SCALED}")
    else:
        notes.remarks[path] = Remark("approximate", STEP_BEFORE)


def _skips_what_is_not_finite(notes: Notes, stage: int) -> bool:
    """Whether DeepSpeed leaves out a step without a finite norm: in fp16 always, else at every stage since 0.19.8."""
    precision = notes.facts.value("precision")
    if precision == "fp16" or notes.config.context.since(LOOKS_AT_NORM):
        return True
    checked = notes.config.value("bf16.check_grad_overflow") is True
    return precision == "bf16" and stage in (1, 2) and checked


def read_offload(notes: Notes) -> Offload:
    """Offload to CPU memory, at the stages where DeepSpeed reads the section; NVMe becomes an item."""
    stage = notes.config.value("zero_optimization.stage")

    def on(section: str, older: str) -> bool:
        prefix = f"zero_optimization.offload_{section}."
        device, flag = notes.config.value(f"{prefix}device"), f"zero_optimization.{older}"
        if notes.config.value(flag) is True:
            device = "cpu"
        else:
            notes.leave(flag)
        if isinstance(stage, int) and stage < _OFFLOADS_FROM[section]:
            device = "none"
            notes.leave(flag)
        # At stages 1 and 2 DeepSpeed itself takes CPU memory for "nvme".
        if device == "nvme" and (section == "param" or stage == 3):
            notes.unsupported(f"{prefix}device", NVME, f"--set {prefix}device=cpu offloads to CPU memory")
        elif device in ("cpu", "nvme"):
            return True
        notes.leave(f"{prefix}device", f"{prefix}pin_memory")
        return False

    def pinned(section: str) -> bool:
        return notes.config.value(f"zero_optimization.offload_{section}.pin_memory") is True

    parameters, optimizer = on("param", "cpu_offload_param"), on("optimizer", "cpu_offload")
    if optimizer and _stays_not_finite(notes):
        notes.remarks["zero_optimization.offload_optimizer.device"] = Remark("exact", _STAYS)
    return Offload(
        parameters=parameters,
        optimizer=optimizer,
        pinned=(parameters and pinned("param")) or (optimizer and pinned("optimizer")),
    )


def _stays_not_finite(notes: Notes) -> bool:
    """Whether DeepSpeed keeps the gradients of a step that it left out, so that it leaves out all steps after it."""
    wide = short_name(str(notes.config.value("data_types.grad_accum_dtype"))) == "fp32"
    bf16 = notes.facts.value("precision") == "bf16"
    partly = notes.config.value("zero_optimization.stage") in (1, 2)
    return wide and bf16 and partly and notes.config.context.since(LOOKS_AT_NORM)
