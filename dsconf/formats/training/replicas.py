"""What becomes of a Plan whose ranks all hold everything: Trainer takes DDP."""

from __future__ import annotations

from dsconf.formats.outcome import Landing
from dsconf.formats.training.draft import Draft


def land_replicas(draft: Draft) -> None:
    """Settle the landings of what is divided and offloaded, and the recomputation of activations."""
    plan = draft.plan
    whole = Landing("exact", "DDP, without fsdp", "every rank holds the whole training state")
    fields = ("partition", "reshard_after_forward", "group")
    draft.landings |= {f"sharding.{field}": whole for field in fields}
    units = ("block_classes", "min_params", "root_only", "separate_ends")
    draft.landings |= {f"wrapping.{field}": whole for field in units}
    unused = plan.wrapping.unused_parameters
    if unused:
        target = draft.put("ddp_find_unused_parameters", True, "wrapping.unused_parameters")
        draft.landings["wrapping.unused_parameters"] = Landing("exact", target)
    summed = plan.sharding.sums_gradients
    action = "in your script: multiply the loss by the number of ranks in compute_loss()"
    draft.landings["sharding.sums_gradients"] = Landing(
        "approximate" if summed else "exact", "", "DDP averages gradients", action if summed else None
    )
    moved = plan.offload.parameters or plan.offload.optimizer
    kept = Landing("unsupported" if moved else "exact", "", "DDP offloads nothing" if moved else "")
    draft.landings |= {f"offload.{field}": kept for field in ("parameters", "optimizer", "pinned")}
    draft.landings["checkpoint.weights"] = draft.landings["checkpoint.loads_on_rank_0"] = whole
    if plan.recompute is not None:
        draft.set("activation_checkpointing", plan.recompute, "recompute")
