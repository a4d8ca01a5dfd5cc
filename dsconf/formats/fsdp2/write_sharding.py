"""Writes what is divided over the ranks, and what rests in CPU memory."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import Draft
from dsconf.formats.fsdp2.emit import Constant
from dsconf.formats.fsdp2.torch_names import exists, since
from dsconf.formats.outcome import Landing

UNUSED = "torch.distributed.fsdp.FSDPModule.set_reduce_scatter_unused_params"
_IGNORED = "torch.distributed.fsdp.fully_shard(ignored_params)"
_GATHERED = (
    f"parameters that don't train are gathered as well: ignored_params exists since torch {since(_IGNORED)}"
)
BACKENDS = "cpu:gloo,cuda:nccl"
_ONCE = "weights are gathered once per optimizer step"
_TRAFFIC = {
    "nothing": "gradients are reduced on the last micro batch only",
    "optimizer": f"{_ONCE}, gradients reduced on the last micro batch only",
    "gradients": f"{_ONCE}, gradients reduced on each micro batch",
    "parameters": "",
}


def write_sharding(draft: Draft) -> None:
    """Write how blocks are wrapped, when weights are freed and when gradients are reduced."""
    draft.flags["SEPARATE_ENDS"] = draft.plan.wrapping.separate_ends
    draft.flags["NAMED_BLOCKS"] = bool(draft.plan.wrapping.block_classes)
    if draft.plan.wrapping.block_classes:
        label = draft.labels["wrapping.block_classes"]
        draft.constants["BLOCK_CLASSES"] = Constant(repr(draft.plan.wrapping.block_classes), label)
    sharding = draft.plan.sharding
    whole = sharding.partition != "parameters"
    counted = whole and draft.plan.batch.accumulation != 1
    last = sharding.partition in ("nothing", "optimizer")
    draft.flags.update(
        REPLICATED=sharding.partition == "nothing",
        GROUPED=sharding.group is not None,
        FROZEN_WHOLE=whole and exists(_IGNORED, draft.torch),
        COUNTED=counted,
        REDUCED_LAST=last,
        LEFT_GATHERED=sharding.reshard_after_forward is not True,
    )
    group = not isinstance(sharding.reshard_after_forward, bool)
    field = "sharding.reshard_after_forward" if group else "sharding.partition"
    value = repr(sharding.reshard_after_forward)
    draft.constants["RESHARD_AFTER_FORWARD"] = Constant(value, draft.labels[field])
    target = f"fully_shard(block, reshard_after_forward={value}), then the root"
    mesh = "fully_shard over a mesh of (ranks, 1): every rank holds the whole training state"
    notes = [_TRAFFIC[sharding.partition]] if counted else []
    if whole and not draft.flags["FROZEN_WHOLE"]:
        notes.append(_GATHERED)
    draft.landings["sharding.partition"] = Landing(
        "exact", mesh if sharding.partition == "nothing" else target, "; ".join(notes)
    )
    if sharding.group is not None:
        draft.constants["GROUP_SIZE"] = Constant(repr(sharding.group), draft.labels["sharding.group"])
        target = f"a mesh of (ranks / {sharding.group}, {sharding.group}): each group holds the whole state"
        note = "compared with ZeRO-3, whose numbers MiCS has but for the order in which it adds up gradients"
        draft.landings["sharding.group"] = Landing("close", target, note)
    draft.flags["SUMMED"] = sharding.sums_gradients
    target = "set_gradient_divide_factor(1.0): gradients are added up" if sharding.sums_gradients else ""
    note = "" if sharding.sums_gradients else "FSDP2 averages gradients, too"
    draft.landings["sharding.sums_gradients"] = Landing("exact", target, note)
    if sharding.sums_gradients:
        for setter in ("set_gradient_divide_factor", "set_force_sum_reduction_for_comms"):
            draft.has(f"torch.distributed.fsdp.FSDPModule.{setter}", "sharding.sums_gradients")
    if group:
        note = f"after the forward pass each group of {value} ranks keeps the weights, divided among them"
        draft.landings[field] = Landing("close", f"reshard_after_forward={value}", note)
    _write_unused(draft)


def _write_unused(draft: Draft) -> None:
    """Write what lets ranks leave different parameters unused; without it they reduce different gradients together."""
    unused = draft.plan.wrapping.unused_parameters
    draft.flags["UNUSED_PARAMETERS"] = unused
    if unused and not draft.has(UNUSED, "sharding.partition"):
        landing = draft.landings["sharding.partition"]
        note = f"{draft.labels['wrapping.unused_parameters']}: {landing.note}"
        draft.landings["sharding.partition"] = landing._replace(note=note)


def write_offload(draft: Draft) -> None:
    """Write the CPUOffloadPolicy."""
    offload = draft.plan.offload
    both = offload.parameters and offload.optimizer
    draft.flags["OFFLOADED"] = offload.parameters or offload.optimizer
    if not draft.flags["OFFLOADED"]:
        return
    draft.constants["PIN_MEMORY"] = Constant(repr(offload.pinned), draft.labels["offload.pinned"])
    target = f"CPUOffloadPolicy(pin_memory={offload.pinned})"
    rest = "parameters and gradients" if offload.optimizer else "optimizer state and step"
    note = "" if both else f"{rest} move to CPU memory as well: it is all or nothing; no number changes"
    group = f'start with dist.init_process_group("{BACKENDS}")'
    landing = Landing("exact" if both else "approximate", target, note, group)
    draft.landings["offload.parameters"] = draft.landings["offload.optimizer"] = landing
    draft.landings["offload.pinned"] = Landing("exact", target)
