"""The dtypes of the Plan, and loss scaling."""

from __future__ import annotations

from typing import Any

from dsconf.config.dtypes import short_name
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.notes import BF16_MASTERS, NOT_FINITE, Notes
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Remark
from dsconf.plan import LossScaling, Plan, Precision, Unresolved

PRECISION_FIELDS = {
    "bf16.enabled": "precision.compute",
    "fp16.enabled": "precision.compute",
    "communication_data_type": "precision.reduce",
    "data_types.grad_accum_dtype": "precision.accumulate",
    "bf16.bf16_master_weights_and_grads": "precision.masters",
    "fp16.auto_cast": "precision.casts_inputs",
    "data_types.buffer_dtype": "precision.buffers",
    "data_types.keep_in_fp32_modules": "precision.fp32_buffers",
    "fp16.loss_scale": "precision.scaling",
    "fp16.initial_scale_power": "precision.scaling.scale",
    "fp16.loss_scale_window": "precision.scaling.window",
    "fp16.hysteresis": "precision.scaling.hysteresis",
    "fp16.consecutive_hysteresis": "precision.scaling.refill",
    "fp16.min_loss_scale": "precision.scaling.minimum",
}
"""The field of the Plan that each key goes to."""

_ADDS_UP_WIDE = "0.19.8"
_SCALING = tuple(key for key, field in PRECISION_FIELDS.items() if field.startswith("precision.scaling"))


def read_precision(notes: Notes) -> Precision:
    """Dtypes of parameters, gradients, buffers and inputs; in fp16 the loss scale, too."""
    compute: Any = notes.facts.value("precision")
    if compute is UNKNOWN:
        open_ = "bf16.enabled" if notes.config.raw("bf16.enabled") == "auto" else "fp16.enabled"
        compute = Unresolved(key=open_)
    if notes.config.present("fp16.enabled") and notes.config.value("fp16.enabled") is False:
        raw = notes.config.raw("fp16.enabled")
        notes.items.append(Item("fp16.enabled", raw, "no-effect", note="it is off"))
    if compute == "bf16":
        _overflow_check(notes)
    scaling = _scaling(notes) if compute == "fp16" else None
    if scaling is None:
        notes.leave(*_SCALING)
    if notes.config.present("bf16.enabled") and notes.config.value("bf16.enabled") is False:
        raw = notes.config.raw("bf16.enabled")
        notes.items.append(Item("bf16.enabled", raw, "no-effect", note="it is off"))
    accumulate = _dtype(notes, "data_types.grad_accum_dtype")
    buffers, fp32_buffers = _buffers(notes, compute)
    return Precision(
        compute=compute,
        reduce=_dtype(notes, "communication_data_type"),
        accumulate=None if _ignores_accumulation(notes) else accumulate,
        masters=_masters(notes, compute),
        moments=_moments(notes),
        casts_inputs=_casts_inputs(notes, compute),
        buffers=buffers,
        fp32_buffers=fp32_buffers,
        scaling=scaling,
        steps_before=compute not in ("fp32", "fp16") and notes.config.value("zero_optimization.stage") == 0,
    )


def _ignores_accumulation(notes: Notes) -> bool:
    """Whether DeepSpeed adds gradients up in the dtype of the model, whatever grad_accum_dtype is."""
    at_once = notes.config.value("zero_optimization.offload_optimizer.device") in (UNKNOWN, None, "none")
    in_shards = notes.config.value("zero_optimization.stage") == 2
    return in_shards and at_once and not notes.config.context.since(_ADDS_UP_WIDE)


def _overflow_check(notes: Notes) -> None:
    path = "bf16.check_grad_overflow"
    looks_anyway = notes.facts.value("zero_optimizer") in ("stage3", "bf16")
    if notes.config.present(path) and notes.config.value(path) is False and not looks_anyway:
        notes.items.append(Item(path, notes.config.raw(path), "approximate", note=NOT_FINITE))


def _scaling(notes: Notes) -> LossScaling | None:
    values: list[Any] = [notes.config.value(path) for path in _SCALING]
    static, *dynamic = values
    if UNKNOWN in values:
        notes.unsupported("fp16.enabled", "the loss scale is left open", "--set fp16.loss_scale=0")
        return None
    if static > 0:
        notes.leave(*_SCALING[1:])
        return LossScaling(scale=static)
    for path in _SCALING:
        if not notes.config.present(path):
            notes.in_force[path] = Default(notes.config.value(path), "DeepSpeed's default")
    power, window, hysteresis, refill, minimum = dynamic
    return LossScaling(scale=2.0**power, window=window, hysteresis=hysteresis, refill=refill, minimum=minimum)


def _dtype(notes: Notes, path: str) -> Any:
    """A dtype of gradients; None where it is not written."""
    value = notes.config.value(path)
    if not isinstance(value, str):
        return None
    value = short_name(value)
    if value in ("fp32", "bf16", "fp16"):
        return value
    notes.unsupported(path, f"gradients in {value}", f"--set {path}=fp32")
    return None


def _masters(notes: Notes, compute: object) -> Any:
    """The dtype of the weights that the optimizer updates."""
    path, states, fp16 = BF16_MASTERS, "bf16.bf16_optimizer_states", "fp16.fp16_master_weights_and_grads"
    if compute == "fp16" and notes.config.value(fp16) is True:
        note = (
            "torch's optimizers keep their moments in the dtype of the weights, and fp16 loses the small ones"
        )
        notes.unsupported(fp16, note, f"--set {fp16}=false keeps weights, gradients and moments in fp32")
    if not notes.bf16_masters:
        notes.leave(path)
        if compute == "bf16" and notes.config.value(path) is True:
            for key in (path, states):
                if notes.config.present(key):
                    note = "with fp32 accumulation at stage 1 DeepSpeed keeps fp32 masters in any case"
                    notes.items.append(Item(key, notes.config.raw(key), "no-effect", note=note))
        return "fp32"
    rounds = "DeepSpeed does not round grad_norm to the dtype of the gradients"
    if notes.config.value(states) is True:
        notes.remarks[path] = Remark("close", rounds)
        note = "they have the dtype of the weights"
        notes.items.append(Item(states, notes.config.raw(states), "exact", note=note))
    else:
        note = (
            "DeepSpeed's CPU Adam keeps its moments in fp32; torch keeps them in the dtype of the weights, which "
            "loses small changes of the second one"
        )
        notes.remarks[path] = Remark("approximate", f"{note}; {rounds}")
    return "bf16"


def _moments(notes: Notes) -> Any:
    """The dtype of the optimizer's state, where it is another one than that of the weights."""
    wide = notes.bf16_masters and notes.config.value("bf16.bf16_optimizer_states") is not True
    return "fp32" if wide else None


def _casts_inputs(notes: Notes, compute: object) -> bool:
    path = "fp16.auto_cast"
    casts = notes.config.value(path) is True
    if casts and compute != "fp16":
        note = "with fp16 off it would cast floating-point inputs to fp16, which the model's first layer then refuses"
        notes.items.append(Item(path, notes.config.raw(path), "no-effect", note=note, action="remove it"))
    if not casts or compute != "fp16":
        notes.leave(path)
        return False
    return True


def _buffers(notes: Notes, compute: object) -> tuple[Any, tuple[str, ...]]:
    """The dtype of floating-point buffers, and parts of the names of those that are fp32 all the same."""
    path, kept = "data_types.buffer_dtype", "data_types.keep_in_fp32_modules"
    dtype, names = notes.config.value(path), notes.config.value(kept)
    if compute == "fp32":
        for key in (path, kept):
            if notes.config.present(key):
                note = "it acts in bf16 and fp16 only"
                notes.items.append(Item(key, notes.config.raw(key), "no-effect", note=note))
        dtype, names = None, None
    elif not notes.config.knows(path):  # before 0.19.2
        notes.in_force[path] = Default(compute, "this DeepSpeed casts buffers with the parameters")
        return compute, ()
    value = short_name(dtype) if isinstance(dtype, str) else None
    if value not in ("fp32", "bf16", "fp16", None):
        notes.unsupported(path, f"buffers in {value}", f"--set {path}=fp32")
        value = None
    patterns = tuple(names) if isinstance(names, list) else ()
    if value is None:
        notes.leave(path)
    elif not patterns:
        note = "buffers that a transformers model itself wants in fp32 stay so in DeepSpeed"
        notes.remarks[path] = Remark("exact", note)
    if not patterns:
        notes.leave(kept)
    return value, patterns


def remark_on_rounding(notes: Notes, plan: Plan) -> None:
    """Roundings that DeepSpeed has and no PyTorch code repeats; figures are bounds that the parity runs hold."""
    compute = plan.precision.compute if isinstance(plan.precision.compute, str) else "bf16"
    if compute == "fp32":
        compute = plan.precision.autocast or "fp32"
    if compute == "fp32":
        return
    path = "zero_optimization.memory_efficient_linear"
    if plan.sharding.partition == "parameters" and notes.config.value(path) is not False:
        written = notes.config.present(path)
        note = f"DeepSpeed replaces F.linear by a version that rounds once more in {compute}"
        notes.items.append(Item(path, True, "close", note=note, written=written))
    path = "data_types.grad_accum_dtype"
    if plan.precision.compute == "fp32":
        return
    if plan.precision.accumulate is None and not notes.config.present(path):
        notes.in_force[path] = Default(None, "DeepSpeed's default is the dtype of the model")
