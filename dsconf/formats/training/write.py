"""The arguments that a Plan becomes, beside those of how it is sharded."""

from __future__ import annotations

from collections.abc import Mapping

from dsconf.formats.fsdp_precision import Kind, land_precision, word_for
from dsconf.formats.outcome import Landing
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.write_optimizer import write_optimizer
from dsconf.formats.training.write_schedule import write_length, write_schedule
from dsconf.plan import LossScaling, Plan, Precision, Unresolved

_WEIGHED = "where the model takes num_items_in_batch, Trainer weighs the tokens of all micro batches alike"
_SCALER = "in your script: trainer.accelerator.scaler = torch.amp.GradScaler({}), before train()"
_POLICY = (
    "in your script: trainer.accelerator.state.fsdp_plugin.mixed_precision_policy = "
    "MixedPrecisionPolicy(param_dtype={0}, reduce_dtype={1}, output_dtype={0}), before train()"
)
_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}


def write_arguments(draft: Draft) -> None:
    """Settle the arguments and landings of batch, optimizer, schedule and clipping."""
    _batch(draft)
    write_optimizer(draft)
    write_schedule(draft)
    write_length(draft)
    _clipping(draft)


def _clipping(draft: Draft) -> None:
    norm, field = draft.plan.clipping.max_norm, "clipping.max_norm"
    if norm is not None:
        draft.set("max_grad_norm", norm, field)
    elif field in draft.said:
        draft.set("max_grad_norm", 0.0, field, note="nothing is clipped")
    else:
        draft.landings[field] = Landing("exact")
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
    draft.landings |= _in_trainer(draft.plan, land_precision(draft.plan, kind, "{}: true"))
    compute = draft.plan.precision.compute
    if word is None:
        assert isinstance(compute, Unresolved)
        draft.leave_open("bf16", compute, "precision.compute")
    elif word == "no":
        said, meant = "no: true", "neither bf16 nor fp16"
        for field, landing in draft.landings.items():
            if landing.target.startswith(said):
                draft.landings[field] = landing._replace(target=meant)
    else:
        draft.put(word, True, "precision.compute")


def _in_trainer(plan: Plan, landings: Mapping[str, Landing]) -> dict[str, Landing]:
    """Landings with what a script does where Trainer, not the script, makes the Accelerator."""
    found = {}
    for field, landing in landings.items():
        action = landing.action
        if action is not None and field.startswith("precision.scaling"):
            action = _SCALER.format(_scaler(plan.precision.scaling))
        elif action is not None and field == "precision.reduce":
            action = _POLICY.format(*_policy(plan.precision))
        elif action is not None:
            action = action.replace("before prepare()", "before you make the Trainer")
        found[field] = landing._replace(action=action)
    return found


def _scaler(scaling: LossScaling | None) -> str:
    assert scaling is not None
    window = "" if scaling.window is None else f", growth_interval={scaling.window}"
    return f"init_scale={scaling.scale}{window}"


def _policy(precision: Precision) -> tuple[str, str]:
    """The dtypes of parameters and of reduction."""
    compute = precision.compute if precision.compute != "fp32" else precision.autocast
    return _DTYPES[str(compute)], _DTYPES[str(precision.reduce or precision.compute)]
