"""When Trainer reduces the gradients of several micro batches under FSDP2, and in which dtype they are added up."""

from __future__ import annotations

from dsconf.formats.outcome import Landing, Outcome
from dsconf.formats.training.draft import Draft
from dsconf.plan import Plan, Unresolved

EACH_BATCH = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
"""The accelerator_config by which gradients are reduced on each micro batch, so that shards of them are added up."""


def reduces_each(plan: Plan) -> bool:
    """Whether gradients are to be reduced on each micro batch: only so are shards kept, and added up in fp32."""
    if plan.batch.accumulation in (1, None):
        return False
    precision = plan.precision
    wide = precision.accumulate == "fp32" and precision.compute != "fp32"
    return plan.sharding.partition in ("gradients", "parameters") or wide


def land_accumulation(draft: Draft, *, each: bool) -> None:
    """What becomes of the dtype in which gradients are added up."""
    precision, field = draft.plan.precision, "precision.accumulate"
    want = precision.accumulate or precision.compute
    compute = precision.compute if precision.compute != "fp32" else precision.autocast or "fp32"
    if draft.plan.batch.accumulation == 1:
        draft.landings[field] = Landing("exact", "", "one micro batch: nothing is added up")
        return
    have = precision.masters if each else compute
    target = "sync_each_batch: true" if each else ""
    if isinstance(want, Unresolved) or isinstance(have, Unresolved):
        draft.landings[field] = Landing("close", target, "shards of gradients are added up in fp32" * each)
    elif want == have:
        draft.landings[field] = Landing("exact", target, f"gradients are added up in {want}")
    else:
        outcome: Outcome = "close" if have == "fp32" else "approximate"
        draft.landings[field] = Landing(outcome, target, f"gradients are added up in {have}, not in {want}")
