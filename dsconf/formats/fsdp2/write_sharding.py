"""Writes what is divided over the ranks, and what rests in CPU memory."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import ENDS_IN_ROOT, Draft
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


def write_units(draft: Draft) -> None:
    """Write which modules are sharded as units, and whether their activations are computed again."""
    wrapping, recompute = draft.plan.wrapping, draft.plan.recompute is True
    named = bool(wrapping.block_classes)
    sized = not named and wrapping.min_params is not None
    root = not named and not sized and wrapping.root_only
    draft.flags.update(
        SEPARATE_ENDS=wrapping.separate_ends and not (root or recompute),
        NAMED_BLOCKS=named,
        SIZED_BLOCKS=sized,
        ROOT_ONLY=root,
        RECOMPUTED=recompute and not root,
    )
    if named:
        label = draft.labels["wrapping.block_classes"]
        draft.constants["BLOCK_CLASSES"] = Constant(repr(wrapping.block_classes), label)
        target = f"modules of class {', '.join(wrapping.block_classes)}, then the root"
        draft.landings["wrapping.block_classes"] = Landing("exact", target)
    elif not sized and not root:
        note = "the elements of the model's outermost nn.ModuleLists, as a rule the blocks that the model itself names"
        action = "say their classes with --blocks, or the model with --model"
        draft.landings["wrapping.block_classes"] = Landing("exact", "find_blocks()", note, action)
    if sized:
        label = draft.labels["wrapping.min_params"]
        draft.constants["MIN_PARAMS"] = Constant(repr(wrapping.min_params), label)
    size = (
        "modules with more parameters than that are units" if sized else "the classes of the units are given"
    )
    draft.landings["wrapping.min_params"] = Landing("exact" if sized else "no-effect", "find_blocks()", size)
    ends = draft.flags["SEPARATE_ENDS"]
    as_wanted = Landing("exact", "find_units()" if ends else "")
    draft.landings["wrapping.separate_ends"] = as_wanted if ends == wrapping.separate_ends else ENDS_IN_ROOT
    draft.landings["wrapping.root_only"] = Landing("exact", "fully_shard(model) alone" if root else "")
    if draft.plan.recompute is None:
        return
    target = "checkpoint_wrapper(block)" if draft.flags["RECOMPUTED"] else ""
    landing = Landing("exact", target)
    if recompute and root:
        note = "which modules are to be computed again is not known"
        landing = Landing("approximate", "", note, "name their classes with --blocks")
    draft.landings["recompute"] = landing


def write_sharding(draft: Draft) -> None:
    """Write when weights are freed and when gradients are reduced; write_units comes first."""
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
    weights = {
        "full": Landing("exact", "full_state_dict(model)", "the whole fp32 weights on rank 0"),
        "sharded": Landing(
            "exact", "save_checkpoint()", "torch.distributed.checkpoint writes each rank's shards"
        ),
        "local": Landing(
            "approximate", "save_checkpoint()", "FSDP2 has no flat parameters: DTensors are saved instead"
        ),
    }
    if draft.plan.checkpoint.weights is not None:
        draft.landings["checkpoint.weights"] = weights[draft.plan.checkpoint.weights]
    note = "every rank loads the model, and takes rank 0's weights"
    draft.landings["checkpoint.loads_on_rank_0"] = Landing(
        "approximate" if draft.plan.checkpoint.loads_on_rank_0 else "exact",
        "prepare()",
        f"{note}: each node's CPU memory holds one copy per rank"
        if draft.plan.checkpoint.loads_on_rank_0
        else note,
    )


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
        for name in ("parameters", "optimizer", "pinned"):
            draft.landings[f"offload.{name}"] = Landing("exact", "", "nothing is offloaded")
        return
    draft.constants["PIN_MEMORY"] = Constant(repr(offload.pinned), draft.labels["offload.pinned"])
    target = f"CPUOffloadPolicy(pin_memory={offload.pinned})"
    rest = "parameters and gradients" if offload.optimizer else "optimizer state and step"
    note = "" if both else f"{rest} move to CPU memory as well: it is all or nothing; no number changes"
    group = f'start with dist.init_process_group("{BACKENDS}")'
    landing = Landing("exact" if both else "approximate", target, note, group)
    draft.landings["offload.parameters"] = draft.landings["offload.optimizer"] = landing
    draft.landings["offload.pinned"] = Landing("exact", target)
