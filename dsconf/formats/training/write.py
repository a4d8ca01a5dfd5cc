"""The arguments that a Plan becomes, beside those of how it is sharded."""

from __future__ import annotations

from dsconf.formats.fsdp_precision import Kind, land_precision, word_for
from dsconf.formats.outcome import Landing
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.write_optimizer import write_optimizer
from dsconf.formats.training.write_schedule import write_schedule
from dsconf.plan import Unresolved

_WEIGHED = "where the model takes num_items_in_batch, Trainer weighs the tokens of all micro batches alike"


def write_arguments(draft: Draft) -> None:
    """Settle the arguments and landings of batch, optimizer, schedule and clipping."""
    _batch(draft)
    write_optimizer(draft)
    write_schedule(draft)
    norm = draft.plan.clipping.max_norm
    note = "" if norm is None else "where it acts, its factor rounds differently"
    draft.set(
        "max_grad_norm",
        0.0 if norm is None else norm,
        "clipping.max_norm",
        "exact" if norm is None else "close",
        note or "nothing is clipped",
    )
    scaled = draft.plan.precision.compute == "fp16"
    skips = draft.plan.clipping.skips_not_finite is True and not scaled
    note = "after a step whose norm is not finite all weights are NaN: Trainer takes it, where the source leaves it out"
    draft.landings["clipping.skips_not_finite"] = Landing(
        "approximate" if skips else "exact", "", note if skips else ""
    )


def _batch(draft: Draft) -> None:
    batch = draft.plan.batch
    if batch.micro is not None:
        draft.set("per_device_train_batch_size", batch.micro, "batch.micro")
    if batch.accumulation is not None:
        note = "" if batch.accumulation == 1 else _WEIGHED
        draft.set("gradient_accumulation_steps", batch.accumulation, "batch.accumulation", note=note)
    ranks = draft.plan.ranks
    product = (
        f"{draft.name('per_device_train_batch_size')} x {draft.name('gradient_accumulation_steps')} x GPUs"
    )
    if isinstance(batch.total, Unresolved):
        draft.landings["batch.total"] = Landing("needs-value", product)
    else:
        action = None if ranks is None or batch.total is None else f"start it on {ranks} GPUs"
        draft.landings["batch.total"] = Landing("exact", product, "", action)


def write_word(draft: Draft, kind: Kind) -> None:
    """Settle bf16 and fp16, and what becomes of the dtypes of the Plan."""
    word = word_for(draft.plan.precision)
    draft.landings |= land_precision(draft.plan, kind, "{}: true")
    compute = draft.plan.precision.compute
    if word is None:
        assert isinstance(compute, Unresolved)
        draft.leave_open("bf16", compute, "precision.compute")
    elif word == "no":
        target = draft.landings["precision.compute"]
        draft.landings["precision.compute"] = target._replace(target="neither bf16 nor fp16")
    else:
        draft.put(word, True, "precision.compute")
