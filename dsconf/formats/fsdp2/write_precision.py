"""Writes the dtypes of a step, and loss scaling."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import Draft, source_of
from dsconf.formats.fsdp2.emit import Alias, Constant, Needed
from dsconf.formats.outcome import Landing
from dsconf.plan import Unresolved

DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}
_CLOSE_SUM = "FSDP2 adds up sharded gradients in fp32"


def write_precision(draft: Draft) -> None:
    """Write the MixedPrecisionPolicy; write_sharding comes first, since dtypes depend on when gradients are reduced."""
    precision = draft.plan.precision
    mixed = precision.compute != "fp32"
    any_ = isinstance(precision.compute, Unresolved)
    rounded = mixed and precision.rounded_masters
    draft.flags.update(MIXED_PRECISION=mixed, ANY_PRECISION=any_, ROUNDED_MASTERS=rounded)
    if isinstance(precision.compute, Unresolved):
        draft.constants["PARAM_DTYPE"] = Needed("torch.dtype")
        action = f"pass param_dtype (torch.float32 or torch.bfloat16), or --set {precision.compute.key}=true"
        target = "MixedPrecisionPolicy(param_dtype=param_dtype)"
        draft.landings["precision.compute"] = Landing("needs-value", target, "", action)
    elif mixed:
        dtype = DTYPES[precision.compute]
        draft.constants["PARAM_DTYPE"] = Constant(dtype, draft.labels["precision.compute"])
        target = f"MixedPrecisionPolicy(param_dtype={dtype}, cast_forward_inputs=False)"
        rounding = f" from weights rounded to {precision.compute}" if rounded else ""
        note = f"fp32 masters (.float()){rounding}"
        draft.landings["precision.compute"] = Landing("exact", target, note)
    else:
        target = "MixedPrecisionPolicy(reduce_dtype=torch.float32)"
        note = "nothing is cast: forward and backward run in the dtype that the model was loaded in"
        draft.landings["precision.compute"] = Landing("exact", target, note)
    _gradient_dtypes(draft)


def _gradient_dtypes(draft: Draft) -> None:
    precision = draft.plan.precision
    steps = draft.plan.batch.accumulation
    reduce = precision.reduce or precision.compute
    wide = precision.accumulate == "fp32"
    label = draft.labels["precision.reduce"]
    if draft.flags["REDUCED_LAST"] and wide and reduce != "fp32" and steps not in (1, 2):
        # Gradients are added up in the dtype in which they are reduced.
        reduce, label = "fp32", draft.labels["precision.accumulate"]
    if isinstance(reduce, Unresolved):
        draft.constants["REDUCE_DTYPE"] = Alias("PARAM_DTYPE")
        draft.landings["precision.reduce"] = Landing("exact", "reduce_dtype=param_dtype")
    else:
        draft.constants["REDUCE_DTYPE"] = Constant(DTYPES[reduce], label)
        draft.landings["precision.reduce"] = Landing("exact", f"reduce_dtype={DTYPES[reduce]}")
    draft.landings["precision.accumulate"] = _accumulation(draft, reduce)
    if reduce == "fp32" and precision.compute != "fp32" and not wide:
        note = f"without fp32 accumulation DeepSpeed rounds the reduced gradient back to {precision.compute}"
        draft.landings["precision.reduce"] = Landing("close", f"reduce_dtype={DTYPES['fp32']}", note)


def _accumulation(draft: Draft, reduce: str | Unresolved) -> Landing:
    precision = draft.plan.precision
    model = precision.compute if isinstance(precision.compute, str) else "the dtype of the model"
    wide = "fp32" in (precision.accumulate, precision.compute)
    if draft.plan.batch.accumulation == 1:
        return Landing("exact", "", "one micro batch: nothing is added up")
    if not draft.flags["REDUCED_LAST"]:
        if wide:
            return Landing("exact", "", _CLOSE_SUM)
        note = f"DeepSpeed adds up the gradients of the micro batches in {model}; FSDP2 does it in fp32"
        return Landing("close", "", note)
    if wide and reduce == "fp32" and "fp32" not in (precision.reduce, precision.compute):
        note = f"they are reduced in fp32, too; DeepSpeed rounds them to {model} before it reduces them"
        return Landing("close", "reduce_dtype=torch.float32", note)
    if not wide and reduce == "fp32":
        return Landing("close", "", f"in fp32, as they are reduced; DeepSpeed adds them up in {model}")
    return Landing("exact", "", "gradients are added up in the dtype in which they are reduced")


def write_scaling(draft: Draft) -> None:
    """Write the factor on the loss, fixed or with a LossScaler."""
    scaling = draft.plan.precision.scaling
    draft.flags.update(SCALED=scaling is not None, DYNAMIC=False, REFILLED=False)
    if scaling is None:
        return
    root = "precision.scaling"
    draft.flags.update(DYNAMIC=scaling.dynamic, REFILLED=bool(scaling.refill))
    draft.landings[root] = Landing("exact", "the loss is multiplied by it, the gradients are divided by it")
    if not scaling.dynamic:
        draft.constants["LOSS_SCALE"] = Constant(source_of(scaling.scale), draft.labels[root])
        return
    draft.landings[root] = Landing("exact", "LossScaler", "the scale adjusts itself")
    draft.landings[f"{root}.refill"] = Landing("exact", "LossScaler")
    for field, name in (
        ("scale", "LOSS_SCALE"),
        ("window", "SCALE_WINDOW"),
        ("hysteresis", "HYSTERESIS"),
        ("minimum", "MIN_LOSS_SCALE"),
    ):
        value = getattr(scaling, field)
        draft.constants[name] = Constant(source_of(value), draft.labels[f"{root}.{field}"])
        draft.landings[f"{root}.{field}"] = Landing("exact", f"LossScaler: {value:g}")
    note = "at the step where the scale doubles, DeepSpeed halves the gradients; the emitted code does not"
    target = f"LossScaler: {scaling.window}"
    draft.landings[f"{root}.window"] = Landing("approximate", target, note)
