"""Writes the dtypes of a step, and loss scaling."""

from __future__ import annotations

import math

from dsconf.formats.deepspeed.read_autocast import GRAD_SCALER
from dsconf.formats.deepspeed.write_draft import Draft, shown
from dsconf.formats.outcome import Outcome
from dsconf.plan import LossScaling, Unresolved

_ONE_OF_BOTH = (
    "write true for one of them and leave the other section out (as --set bf16.enabled=true does), unless Trainer or "
    "Accelerate reads the file"
)
_ROUNDED = (
    "DeepSpeed's masters start from weights rounded to {}: the same where the model was loaded in that dtype "
    "(else loss within 5e-3 over 8 steps of the test model)"
)
_HALVED = "at the step where the scale doubles, DeepSpeed halves the gradients"
_NARROW = "as torch's optimizers update them, but for the norm of the gradient, which DeepSpeed takes in fp32"
_NO_CAST = {
    "none": "DeepSpeed casts no inputs in bf16",
    "model": "DeepSpeed casts no inputs in bf16",
    "all": "DeepSpeed casts no inputs in bf16, neither the model's nor those of its blocks: masks, rotary tables",
}
_POSITIONAL = "DeepSpeed casts the positional inputs of the model's forward alone, none of its blocks'"
_IN_SCRIPT = "cast floating-point inputs in your script, as in images.to(torch.bfloat16)"


def write_precision(draft: Draft) -> None:
    """Write the section of the model's dtype, the dtypes of gradients, masters, inputs and buffers, and autocast."""
    _compute(draft)
    _masters(draft)
    _autocast(draft)
    _accumulation(draft)
    _reduction(draft)
    _inputs(draft)
    _buffers(draft)
    _scaling(draft)


def in_zero_bf16_optimizer(draft: Draft) -> bool:
    """Whether DeepSpeed takes its BF16_Optimizer: stage 1, bf16, gradients added up in fp32 and not offloaded."""
    precision = draft.plan.precision
    wide = precision.compute == "bf16" and precision.accumulate == "fp32"
    return draft.stage == 1 and wide and not draft.offloads_optimizer


def _compute(draft: Draft) -> None:
    compute = draft.plan.precision.compute
    field = "precision.compute"
    if isinstance(compute, Unresolved):
        both = compute.key != "fp16.enabled"
        if both:
            draft.set("bf16.enabled", field, compute)
        draft.set("fp16.enabled", field, compute)
        if both:
            target = "bf16.enabled, fp16.enabled"
            draft.landings[field] = draft.landings[field]._replace(target=target, action=_ONE_OF_BOTH)
    elif compute == "fp32":
        draft.land(field, "exact", "neither bf16 nor fp16", "nothing is cast")
    else:
        draft.set(f"{compute}.enabled", field, True)
    if _rounds_masters(draft):
        landing = draft.landings[field]
        notes = "; ".join(filter(None, (landing.note, _rounded(draft))))
        outcome: Outcome = "needs-value" if landing.outcome == "needs-value" else "approximate"
        draft.landings[field] = landing._replace(outcome=outcome, note=notes)


def _rounds_masters(draft: Draft) -> bool:
    """Whether DeepSpeed rounds the first weights, which the Plan does not."""
    precision = draft.plan.precision
    return draft.narrow and precision.masters == "fp32" and not precision.rounded_masters


def _rounded(draft: Draft) -> str:
    compute = draft.plan.precision.compute
    return _ROUNDED.format(compute if isinstance(compute, str) else "16 bits")


def _masters(draft: Draft) -> None:
    precision = draft.plan.precision
    field, moments = "precision.masters", precision.moments or precision.masters
    rounded = "precision.rounded_masters"
    if precision.masters == "fp32":
        draft.land(field, "exact", "", "DeepSpeed's optimizer updates fp32 weights")
        draft.land("precision.moments", "exact")
        if _rounds_masters(draft):
            draft.land(rounded, "approximate", "", _rounded(draft))
        else:
            draft.land(rounded, "exact")
        return
    draft.land(rounded, "exact")
    draft.land("precision.moments", "exact")
    problem = _why_no_narrow_masters(draft)
    if problem:
        draft.land(field, "unsupported", "", *problem)
        draft.land("precision.moments", "unsupported", "", *problem)
        return
    draft.set("bf16.bf16_master_weights_and_grads", field, True, _NARROW, "close")
    if moments == "bf16":
        draft.set("bf16.bf16_optimizer_states", "precision.moments", True)


def _why_no_narrow_masters(draft: Draft) -> tuple[str, str] | None:
    precision = draft.plan.precision
    wide = (
        "with fp32 masters it takes 8 bytes more per parameter, divided over the ranks: leave the masters out"
    )
    if (precision.masters, precision.compute) != ("bf16", "bf16"):
        return "DeepSpeed has masters of 16 bits in a bf16 model only", wide
    if draft.stage == 0:
        return (
            "without ZeRO the bf16 section keeps fp32 masters",
            "load the model in bf16, without a bf16 section",
        )
    if in_zero_bf16_optimizer(draft):
        return "with fp32 accumulation at stage 1 DeepSpeed keeps fp32 masters in any case", wide
    optimizer = draft.plan.optimizer
    if draft.offloads_optimizer and optimizer is not None and optimizer.name not in ("Adam", "AdamW"):
        return f"DeepSpeed offloads bf16 masters to its own Adam only, not to {optimizer.name}", wide
    if precision.moments == "fp32" and not draft.offloads_optimizer:
        return "bf16 masters beside fp32 moments need the optimizer offloaded to the CPU", wide
    return None


def _autocast(draft: Draft) -> None:
    precision = draft.plan.precision
    field = "precision.autocast"
    if precision.autocast is None:
        return
    if precision.autocast == "fp16" and draft.stage > 0 and draft.plan.clipping.max_norm is not None:
        note = "DeepSpeed 0.19.8 clips the gradients while they are multiplied by the loss scale at stages 1 to 3"
        draft.land(field, "unsupported", "", note, "autocast to bf16, which needs no scale")
        return
    if precision.compute not in ("fp32", precision.autocast):
        draft.land(field, "unsupported", "", f"autocast to {precision.autocast} beside {precision.compute}")
        return
    names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
    draft.put("torch_autocast.enabled", True)
    note = "around the model's forward pass, not around the loss"
    draft.set("torch_autocast.dtype", field, names[precision.autocast], note)


def _accumulation(draft: Draft) -> None:
    precision = draft.plan.precision
    path, field = "data_types.grad_accum_dtype", "precision.accumulate"
    if precision.accumulate is None:
        draft.land(field, "exact", "", "gradients are added up in the dtype of the model")
    elif draft.stage == 0 and precision.accumulate != precision.compute:
        if draft.plan.batch.accumulation == 1:
            draft.land(field, "no-effect", "", "one micro batch: nothing is added up")
        else:
            note = "without ZeRO DeepSpeed adds gradients up in the dtype of the model only"
            draft.land(field, "approximate", "", note)
    else:
        draft.set(path, field, precision.accumulate)


def _reduction(draft: Draft) -> None:
    precision = draft.plan.precision
    path, field = "communication_data_type", "precision.reduce"
    outcome: Outcome
    by_autocast = "torch_autocast" in draft.config and draft.stage > 0 and not in_zero_bf16_optimizer(draft)
    if by_autocast and precision.compute == "fp32":
        modules = "torch_autocast.lower_precision_safe_modules"
        if precision.reduce == precision.autocast:
            draft.land(field, "exact", "", "gradients of Linear and Conv; the others in fp32")
        else:
            draft.put(modules, [])
            outcome = "exact" if precision.reduce in (None, "fp32") else "approximate"
            draft.land(field, outcome, shown(modules, []), "gradients are reduced in fp32")
    elif by_autocast:
        outcome = "exact" if precision.reduce in (None, precision.autocast) else "approximate"
        draft.land(field, outcome, "", f"beside autocast DeepSpeed reduces in {precision.autocast}")
    elif precision.reduce is None:
        draft.land(field, "exact", "", "gradients are reduced in the dtype of the model")
    else:
        draft.set(path, field, precision.reduce)


def _inputs(draft: Draft) -> None:
    precision = draft.plan.precision
    units = precision.units_cast
    for field in ("precision.casts_inputs", "precision.units_cast"):
        if not precision.casts_inputs and units == "none":
            draft.land(field, "exact", "", "DeepSpeed casts no inputs")
        elif precision.compute == "fp32":
            draft.land(field, "no-effect", "", "nothing is cast in fp32")
        elif precision.compute == "fp16":
            draft.set("fp16.auto_cast", field, True, _POSITIONAL, "approximate")
        else:
            draft.land(field, "approximate", "", _NO_CAST[units], _IN_SCRIPT)


def _buffers(draft: Draft) -> None:
    precision = draft.plan.precision
    for name, path in (
        ("buffers", "data_types.buffer_dtype"),
        ("fp32_buffers", "data_types.keep_in_fp32_modules"),
    ):
        field, value = f"precision.{name}", getattr(precision, name)
        if not value:
            draft.land(field, "exact", "", "floating-point buffers stay as they were loaded")
        elif not draft.narrow:
            draft.land(field, "no-effect", "", "DeepSpeed casts buffers in bf16 and fp16 only")
        elif isinstance(value, Unresolved):
            action = f"write {path}, as bf16 or fp16"
            draft.land(field, "needs-value", path, "it follows the dtype of the model", action)
        else:
            draft.set(path, field, value)


_MINIMUM = "precision.scaling.minimum"


def _scaling(draft: Draft) -> None:
    precision = draft.plan.precision
    scaling, root = precision.scaling, "precision.scaling"
    if scaling is None:
        if precision.compute == "fp16":
            draft.set("fp16.loss_scale", root, 1.0, "the loss is not scaled")
        return
    if precision.compute != "fp16":
        _scaling_of_autocast(draft, scaling)
        return
    if not scaling.dynamic:
        draft.set("fp16.loss_scale", root, scaling.scale, "fixed")
        return
    draft.land(root, "exact", "", "fp16.loss_scale is 0, DeepSpeed's default: the scale adjusts itself")
    power = math.log2(scaling.scale)
    near = "" if power == int(power) else f"the nearest power of 2 to {scaling.scale:g}"
    outcome: Outcome = "approximate" if near else "exact"
    draft.set("fp16.initial_scale_power", f"{root}.scale", round(power), near, outcome)
    draft.set("fp16.loss_scale_window", f"{root}.window", scaling.window, _HALVED, "approximate")
    for name, path, default in (
        ("hysteresis", "hysteresis", 1),
        ("refill", "consecutive_hysteresis", False),
        ("minimum", "min_loss_scale", 1.0),
    ):
        value = getattr(scaling, name)
        draft.set(f"fp16.{path}", f"{root}.{name}", default if value is None else value)
    if scaling.minimum is None or scaling.minimum < 1:
        note = "an overflow at this scale ends the run"
        draft.put("fp16.min_loss_scale", 1)
        draft.land(_MINIMUM, "approximate", shown("fp16.min_loss_scale", 1), note)


def _scaling_of_autocast(draft: Draft, scaling: LossScaling) -> None:
    """DeepSpeed makes a torch.amp.GradScaler for autocast to fp16, whose settings no key changes."""
    root = "precision.scaling"
    fields = [root, *(f"{root}.{name}" for name in ("scale", "window", "hysteresis", "refill", "minimum"))]
    if draft.plan.precision.autocast != "fp16":
        for field in fields:
            draft.land(
                field, "approximate", "", "DeepSpeed scales the loss in fp16 only; no other dtype needs it"
            )
        return
    same = scaling == GRAD_SCALER
    note = "" if same else "it has torch's defaults: from 65536, doubled after 2000 steps"
    for field in fields:
        draft.land(field, "exact" if same else "approximate", "DeepSpeed's own torch.amp.GradScaler", note)
