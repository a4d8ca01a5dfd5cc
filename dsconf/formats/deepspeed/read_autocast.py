"""The section torch_autocast, with the gradient scaler that DeepSpeed makes for fp16."""

from __future__ import annotations

from dsconf.config.dtypes import short_name
from dsconf.formats.deepspeed.notes import Notes
from dsconf.formats.outcome import Item, Outcome
from dsconf.formats.reading import Remark
from dsconf.plan import Dtype, LossScaling, Precision

_SECTION = "torch_autocast."
_ENABLED, _DTYPE = f"{_SECTION}enabled", f"{_SECTION}dtype"
_MODULES = f"{_SECTION}lower_precision_safe_modules"
AUTOCAST_FIELDS = {_DTYPE: "precision.autocast"}
"""The field of the Plan that each key goes to."""

_REDUCE = "communication_data_type"
_OFF = f"--set {_ENABLED}=false"
GRAD_SCALER = LossScaling(scale=65536.0, window=2000, hysteresis=1, refill=False, minimum=1.0)
"""What torch.amp.GradScaler does by itself, but for the minimum, which it does not have."""


def read_autocast(notes: Notes, precision: Precision) -> Precision:
    """What autocast in the forward pass makes of the dtypes of a step; the same where it is off, or not translated."""
    compute = precision.compute
    on = notes.autocasts
    written = notes.config.value(_DTYPE) if on else None
    dtype = short_name(written) if isinstance(written, str) else None
    refusal = _refusal(notes, compute, dtype) if on else None
    if refusal is not None:
        key, *why = refusal
        notes.unsupported(key, *why)
    if not on or refusal is not None:
        notes.leave(_DTYPE)
        if on:
            for key in (_ENABLED, _DTYPE, _MODULES):
                if notes.config.present(key) and key not in {item.key for item in notes.items}:
                    note = "torch_autocast is left out"
                    notes.items.append(Item(key, notes.config.raw(key), "unsupported", note=note))
        return precision
    note = "around the model's forward pass, as in DeepSpeed not around the loss"
    notes.items.append(Item(_ENABLED, True, "exact", "torch.autocast", note))
    kind: Dtype = "fp16" if dtype == "fp16" else "bf16"
    if kind == "fp16":
        note = (
            "DeepSpeed scales the loss by a torch.amp.GradScaler. After an overflow its schedule moves on at stage 0, "
            "and its scale does not fall at stages 1 to 3, where grad_norm is that of the scaled gradient"
        )
        notes.remarks[_DTYPE] = Remark("approximate", note)
    changes = {
        "autocast": kind,
        "reduce": _reduction(notes, compute, kind) or precision.reduce,
        "scaling": GRAD_SCALER if kind == "fp16" else precision.scaling,
    }
    return precision.model_copy(update=changes)


def _refusal(notes: Notes, compute: object, dtype: str | None) -> tuple[str, str, str] | None:
    """The key that is not translated, why, and what to do."""
    bf16 = f"--set {_DTYPE}=bfloat16"
    if dtype is None:
        return _ENABLED, "without a dtype torch takes its own: fp16 on a GPU, with no gradient scaler", bf16
    if dtype not in ("bf16", "fp16"):
        return _DTYPE, f"torch has no autocast to {dtype}", f"{bf16}, or {_OFF}"
    if compute != "fp32" and (compute, dtype) != ("bf16", "bf16"):
        beside = f"the model itself in {compute}" if isinstance(compute, str) else "the precision left open"
        return _ENABLED, f"autocast to {dtype} beside {beside}", f"{_OFF}, or turn off bf16 and fp16"
    clips = notes.config.value("gradient_clipping")
    if dtype == "fp16" and notes.config.value("zero_optimization.stage") != 0 and clips != 0:
        note = "at ZeRO stages 1 to 3 DeepSpeed 0.19.8 clips the gradients while they are multiplied by the loss scale"
        return (
            _DTYPE,
            note,
            f"{bf16} needs no scale; --set gradient_clipping=0.0 translates fp16 without clipping",
        )
    return None


def _reduction(notes: Notes, compute: object, dtype: Dtype) -> Dtype | None:
    """The dtype in which most gradients are reduced; says what becomes of the keys that would decide it."""
    modules = notes.config.value(_MODULES)
    whole = notes.config.value("zero_optimization.stage") == 0 or notes.facts.value("bf16_optimizer") is True

    def say(key: str, outcome: Outcome, note: str) -> None:
        if notes.config.present(key):
            notes.items.append(Item(key, notes.config.raw(key), outcome, note=note))

    if whole or compute != "fp32":
        say(_MODULES, "no-effect", "all gradients are reduced in one dtype here")
        if whole:
            return None
    elif modules == []:
        say(_MODULES, "exact", "all gradients are reduced in fp32")
    else:
        say(
            _MODULES,
            "close",
            f"the modules whose gradients DeepSpeed reduces in {dtype}; FSDP2 reduces all alike",
        )
    say(_REDUCE, "no-effect", "DeepSpeed does not read it beside torch_autocast")
    notes.leave(_REDUCE)
    if compute != "fp32":
        return dtype
    return "fp32" if modules == [] else dtype
