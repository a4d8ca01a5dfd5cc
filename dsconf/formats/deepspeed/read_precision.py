"""The dtypes of the Plan, and loss scaling."""

from __future__ import annotations

from typing import Any

from dsconf.config.dtypes import short_name
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.notes import NOT_FINITE, Notes
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Remark
from dsconf.plan import LossScaling, Plan, Precision, Unresolved

PRECISION_FIELDS = {
    "bf16.enabled": "precision.compute",
    "fp16.enabled": "precision.compute",
    "communication_data_type": "precision.reduce",
    "data_types.grad_accum_dtype": "precision.accumulate",
    "fp16.loss_scale": "precision.scaling",
    "fp16.initial_scale_power": "precision.scaling.scale",
    "fp16.loss_scale_window": "precision.scaling.window",
    "fp16.hysteresis": "precision.scaling.hysteresis",
    "fp16.consecutive_hysteresis": "precision.scaling.refill",
    "fp16.min_loss_scale": "precision.scaling.minimum",
}
"""The field of the Plan that each key goes to."""

_KEEPS_BUFFERS, _ADDS_UP_WIDE = "0.19.2", "0.19.8"
_CAST_BUFFERS = "DeepSpeed before 0.19.2 casts floating-point buffers as well: do it before parallelize()"
_SCALING = tuple(key for key, field in PRECISION_FIELDS.items() if field.startswith("precision.scaling"))


def read_precision(notes: Notes) -> Precision:
    """Dtypes of parameters and gradients; in fp16 the loss scale, too."""
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
    reduce = _dtype(notes, "communication_data_type", compute)
    accumulate = _dtype(notes, "data_types.grad_accum_dtype", compute)
    if _ignores_accumulation(notes):
        accumulate = None
    if isinstance(compute, str) and compute != "fp32" and not notes.config.context.since(_KEEPS_BUFFERS):
        notes.remarks[f"{compute}.enabled"] = Remark("close", _CAST_BUFFERS)
    return Precision(compute=compute, reduce=reduce, accumulate=accumulate, scaling=scaling)


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


def _dtype(notes: Notes, path: str, compute: object) -> Any:
    """A dtype of gradients: as the parameters, or fp32; None where it is not written."""
    value = notes.config.value(path)
    if not isinstance(value, str):
        return None
    value = short_name(value)
    if value == "fp32" or value == compute:
        return value
    notes.unsupported(path, f"{value} gradients of other than {value} parameters are not translated yet")
    return None


def remark_on_rounding(notes: Notes, plan: Plan) -> None:
    """Roundings that DeepSpeed has and no PyTorch code repeats; figures are bounds that the parity runs hold."""
    compute = plan.precision.compute if isinstance(plan.precision.compute, str) else "bf16"
    if compute == "fp32":
        return
    path = "zero_optimization.memory_efficient_linear"
    if plan.sharding.partition == "parameters" and notes.config.value(path) is not False:
        written = notes.config.present(path)
        note = f"DeepSpeed replaces F.linear by a version that rounds once more in {compute}"
        notes.items.append(Item(path, True, "close", note=note, written=written))
    path = "data_types.grad_accum_dtype"
    if plan.precision.accumulate is None and not notes.config.present(path):
        notes.in_force[path] = Default(None, "DeepSpeed's default is the dtype of the model")
