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
    wide = precision.masters == "fp32"
    rounded = mixed and (precision.rounded_masters or not wide)
    draft.flags.update(MIXED_PRECISION=mixed, ANY_PRECISION=any_, ROUNDED_MASTERS=rounded, WIDE_MASTERS=wide)
    if isinstance(precision.compute, Unresolved):
        draft.constants["PARAM_DTYPE"] = Needed("torch.dtype")
        value = "true" if precision.compute.key.endswith(".enabled") else "bf16"
        action = (
            f"pass param_dtype (torch.float32 or torch.bfloat16), or --set {precision.compute.key}={value}"
        )
        target = "MixedPrecisionPolicy(param_dtype=param_dtype)"
        draft.landings["precision.compute"] = Landing("needs-value", target, "", action)
    elif mixed:
        dtype = DTYPES[precision.compute]
        draft.constants["PARAM_DTYPE"] = Constant(dtype, draft.labels["precision.compute"])
        casts = "" if precision.units_cast == "all" else ", cast_forward_inputs=False"
        target = f"MixedPrecisionPolicy(param_dtype={dtype}{casts})"
        rounding = f" from weights rounded to {precision.compute}" if rounded else ""
        note = f"fp32 masters (.float()){rounding}" if wide else ""
        draft.landings["precision.compute"] = Landing("exact", target, note)
    else:
        target = "MixedPrecisionPolicy(reduce_dtype=torch.float32)"
        note = "nothing is cast: forward and backward run in the dtype that the model was loaded in"
        draft.landings["precision.compute"] = Landing("exact", target, note)
    _gradient_dtypes(draft)
    _masters(draft)
    _autocast(draft)
    _casts(draft)


def _masters(draft: Draft) -> None:
    masters = draft.plan.precision.masters
    if masters != "fp32":
        target = f"parameters stay in {masters}: the optimizer updates them, and its state is in {masters}"
        draft.landings["precision.masters"] = Landing("exact", target)


def _autocast(draft: Draft) -> None:
    precision = draft.plan.precision
    draft.flags["AUTOCAST"] = precision.autocast is not None
    if precision.autocast is None:
        return
    field, dtype = "precision.autocast", DTYPES[precision.autocast]
    draft.constants["AUTOCAST_DTYPE"] = Constant(dtype, draft.labels[field])
    target = f"torch.autocast(device.type, dtype={dtype})"
    reduced = precision.reduce if precision.compute == "fp32" else None
    if draft.plan.sharding.partition == "parameters" and precision.compute == "fp32":
        note = (
            f"blocks are gathered in fp32, and their {precision.autocast} copies are kept for the backward pass: "
            "2 bytes per parameter on each GPU that DeepSpeed does not need"
        )
        action = (
            "recompute each block with torch.utils.checkpoint, so that its copies are freed after its forward"
        )
        draft.landings[field] = Landing("approximate", target, note, action)
    elif reduced not in (None, "fp32"):
        note = (
            "DeepSpeed reduces the gradients of Linear and Conv in {} and the others in fp32, FSDP2 all alike"
        )
        draft.landings[field] = Landing("close", target, note.format(precision.autocast))
    else:
        draft.landings[field] = Landing("exact", target)


def _casts(draft: Draft) -> None:
    """Inputs and buffers."""
    precision = draft.plan.precision
    kept, mixed = bool(precision.fp32_buffers), draft.flags["MIXED_PRECISION"]
    units_cast = mixed and precision.units_cast != "none"
    draft.flags.update(
        INPUTS_CAST=precision.casts_inputs and not units_cast,
        BUFFERS_CAST=precision.buffers is not None and not kept,
        BUFFERS_KEPT=kept,
    )
    draft.flags.update(
        UNITS_CAST=mixed and precision.units_cast == "all",
        ROOT_CASTS=mixed and precision.units_cast == "model",
    )
    units = {"none": "no unit casts", "model": "the root unit casts", "all": "each unit casts"}
    draft.landings["precision.units_cast"] = Landing(
        "exact",
        f"cast_forward_inputs={precision.units_cast != 'none'}",
        f"{units[precision.units_cast]} its inputs",
    )
    how = "the root unit" if units_cast else "a hook that casts the model's positional inputs"
    draft.landings["precision.casts_inputs"] = Landing("exact", how)
    field = "precision.buffers"
    if isinstance(precision.buffers, Unresolved):
        draft.constants["BUFFER_DTYPE"] = Alias("PARAM_DTYPE")
        draft.landings[field] = Landing("exact", "floating-point buffers are cast: .to(param_dtype)")
    elif precision.buffers is not None:
        dtype = DTYPES[precision.buffers]
        draft.constants["BUFFER_DTYPE"] = Constant(dtype, draft.labels[field])
        draft.landings[field] = Landing("exact", f"floating-point buffers are cast: .to({dtype})")
    if kept:
        draft.constants.setdefault("BUFFER_DTYPE", Alias("buffer.dtype"))
        pattern = "|".join(sorted({name.replace("*", ".*") for name in precision.fp32_buffers}))
        draft.constants["FP32_BUFFERS"] = Constant(repr(pattern), draft.labels["precision.fp32_buffers"])
        target = f"buffers whose name has {pattern!r} are fp32"
        draft.landings["precision.fp32_buffers"] = Landing("exact", target)


def _gradient_dtypes(draft: Draft) -> None:
    precision = draft.plan.precision
    reduce, label = precision.reduce or precision.compute, _label(draft, "precision.reduce")
    if precision.autocast == "fp16" and precision.reduce == "fp16":
        # Gradients of other weights than Linear's may be too large for it.
        reduce = "fp32"
    wide = (precision.accumulate or precision.compute) == "fp32"
    # Rounding two gradients and their sum is rounding their sum, if they are of that dtype.
    few = (1, 2) if precision.compute == reduce else (1,)
    if draft.flags["REDUCED_LAST"] and wide and reduce != "fp32" and draft.plan.batch.accumulation not in few:
        # Gradients are added up in the dtype in which they are reduced.
        reduce, label = "fp32", draft.labels["precision.accumulate"]
    if isinstance(reduce, Unresolved):
        draft.constants["REDUCE_DTYPE"] = Alias("PARAM_DTYPE")
        target = "reduce_dtype=param_dtype"
    else:
        draft.constants["REDUCE_DTYPE"] = Constant(DTYPES[reduce], label)
        if reduce == precision.compute == "fp32":
            draft.constants["REDUCE_DTYPE"] = Alias(DTYPES["fp32"])
        target = f"reduce_dtype={DTYPES[reduce]}"
    draft.landings["precision.reduce"] = _reduction(draft, reduce, wide, target)
    draft.landings["precision.accumulate"] = _accumulation(draft, reduce, wide)


def _reduction(draft: Draft, reduce: str | Unresolved, wide: bool, target: str) -> Landing:
    precision = draft.plan.precision
    if reduce == "fp32" and precision.compute != "fp32" and not wide:
        narrow = precision.accumulate or precision.compute
        note = f"without fp32 accumulation DeepSpeed rounds the reduced gradient back to {narrow}"
        return Landing("close", target, note)
    if reduce == "fp32" and precision.reduce not in (None, "fp32"):
        return Landing(
            "close", target, f"in fp32, in which they are added up, where DeepSpeed has {precision.reduce}"
        )
    if reduce == "fp16" and precision.compute != "fp16":
        return Landing("close", target, "FSDP2 divides at another place to keep fp16 from overflowing")
    if reduce not in ("fp32", precision.compute):
        return Landing("close", target, "")
    return Landing("exact", target)


def _accumulation(draft: Draft, reduce: str | Unresolved, wide: bool) -> Landing:
    precision = draft.plan.precision
    dtype = precision.accumulate or precision.compute
    model: str = dtype if isinstance(dtype, str) else "the dtype of the model"
    last = draft.flags["REDUCED_LAST"]
    narrow = precision.masters != "fp32"
    if precision.accumulate not in (None, "fp32", precision.compute):
        note = f"DeepSpeed adds up the gradients of the micro batches in {model}; FSDP2 does it in {{}}"
        return Landing(
            "close", "", note.format(reduce if last and isinstance(reduce, str) else precision.masters)
        )
    if draft.plan.batch.accumulation == 1:
        return Landing("exact", "", "one micro batch: nothing is added up")
    if not last and narrow:
        where = f"FSDP2 adds up sharded gradients in {precision.masters}"
        return (
            Landing("exact", "", where) if not wide else Landing("close", "", f"{where}, DeepSpeed in fp32")
        )
    if not last:
        if wide:
            return Landing("exact", "", _CLOSE_SUM)
        note = f"DeepSpeed adds up the gradients of the micro batches in {model}; FSDP2 does it in fp32"
        return Landing("close", "", note)
    if wide and reduce == "fp32" and "fp32" not in (precision.reduce, precision.compute):
        note = f"they are reduced in fp32, too; DeepSpeed rounds them to {precision.compute} before it reduces them"
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
        draft.constants["LOSS_SCALE"] = Constant(source_of(scaling.scale), _label(draft, root))
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
        draft.constants[name] = Constant(source_of(value), _label(draft, f"{root}.{field}"))
        draft.landings[f"{root}.{field}"] = Landing("exact", f"LossScaler: {value:g}")
    note = "at the step where the scale doubles, DeepSpeed halves the gradients; the emitted code does not"
    target = f"LossScaler: {scaling.window}"
    draft.landings[f"{root}.window"] = Landing("approximate", target, note)


def _label(draft: Draft, field: str) -> str:
    """Where a dtype or a setting of the scale comes from: its own key, or autocast, which decides it."""
    return draft.labels.get(field) or draft.labels["precision.autocast"]
