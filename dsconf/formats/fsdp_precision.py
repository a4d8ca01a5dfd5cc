"""What mixed_precision means under Accelerate, which Trainer runs on too, and the word that a Plan becomes."""

from __future__ import annotations

from typing import Literal

from dsconf.formats.outcome import Landing, Outcome
from dsconf.plan import LossScaling, Plan, Precision, Unresolved

Kind = Literal["fsdp1", "fsdp2", "ddp"]
Word = Literal["no", "bf16", "fp16"]
SCALING = LossScaling(scale=65536.0, window=2000, hysteresis=1, refill=False, minimum=0.0)
"""torch.amp.GradScaler as Accelerate makes it; its scale has no lower bound."""


def precision(word: Word, kind: Kind) -> Precision:
    """The dtypes of a step.

    FSDP casts parameters, gradients and inputs, beside autocast; trainable parameters become fp32 masters, from the
    weights as they were loaded. DDP has autocast alone.
    """
    if word == "no":
        return Precision()
    scaling = SCALING if word == "fp16" else None
    if kind == "ddp":
        return Precision(autocast=word, reduce="fp32", accumulate="fp32", scaling=scaling)
    return Precision(
        compute=word,
        reduce=word,
        autocast=word,
        casts_inputs=True,
        units_cast="all" if kind == "fsdp2" else "model",
        buffers=word if kind == "fsdp1" else None,
        scaling=scaling,
        rounded_masters=False,
    )


def word_for(wanted: Precision) -> Word | None:
    """The mixed_precision for a Plan; None where its compute dtype is left open."""
    if isinstance(wanted.compute, Unresolved):
        return None
    if wanted.masters != "fp32":
        return "no"
    word = wanted.compute if wanted.compute != "fp32" else wanted.autocast
    return word if word in ("bf16", "fp16") else "no"


def land_precision(plan: Plan, kind: Kind, setting: str) -> dict[str, Landing]:
    """What becomes of the dtypes of a Plan; `setting` is how `mixed_precision: {}` is said."""
    wanted, word = plan.precision, word_for(plan.precision)
    if isinstance(wanted.compute, Unresolved):
        return _open(wanted, setting, kind)
    assert word is not None
    got, target = precision(word, kind), setting.format(word)
    landings = {
        "precision.compute": _compute(wanted, got, target, kind),
        "precision.reduce": _reduce(wanted, got, target),
        "precision.accumulate": _accumulate(plan, got),
        "precision.autocast": _autocast(wanted, got, target),
        "precision.masters": _masters(wanted),
        "precision.moments": _moments(wanted),
        "precision.casts_inputs": _casts(wanted, got),
        "precision.units_cast": Landing("exact", "", _CAST if wanted.units_cast != got.units_cast else ""),
        "precision.steps_before": _first_step(wanted),
        "precision.buffers": _buffers(wanted, got),
        "precision.fp32_buffers": _kept(wanted),
        "precision.rounded_masters": _rounded(wanted, word),
    }
    return landings | _scaling(wanted, got, target)


_FOLLOWING = (
    "reduce", "accumulate", "autocast", "masters", "moments", "casts_inputs", "units_cast", "rounded_masters",
    "steps_before",
)  # fmt: skip


def _open(wanted: Precision, setting: str, kind: Kind) -> dict[str, Landing]:
    """The landings where the compute dtype is open: the other dtypes are those that follow from it."""
    assert isinstance(wanted.compute, Unresolved)
    action = (
        f"write {setting.format('bf16')} (or fp16, no), or translate with --set {wanted.compute.key}=true"
    )
    landing = Landing("needs-value", setting.format("..."), "", action)
    follows = "it follows from mixed_precision"
    landings = {f"precision.{field}": Landing("close", "", follows) for field in _FOLLOWING}
    got = precision("bf16", kind)
    landings |= {"precision.buffers": _buffers(wanted, got), "precision.fp32_buffers": _kept(wanted)}
    return landings | {"precision.compute": landing} | _scaling(wanted, got, setting.format("..."))


def _compute(wanted: Precision, got: Precision, target: str, kind: Kind) -> Landing:
    compute = wanted.compute
    if wanted.masters != "fp32":
        note = f"nothing is cast: all is in the dtype that the model was loaded in, which has to be {wanted.masters}"
        return Landing("close", target, note, f"load the model in {wanted.masters}")
    if compute == "fp32":
        if got.compute == "fp32":
            note = (
                "" if wanted.autocast else "nothing is cast: the model keeps the dtype that it was loaded in"
            )
            return Landing("exact", target, note)
        note = f"weights and gradients are {got.compute}, too; the source has them in fp32 and autocast alone"
        return Landing("approximate", target, note)
    if kind == "ddp":
        note = f"the weights stay in fp32, and autocast casts them to {compute} for each layer that computes in it"
        return Landing("close", target, note)
    if wanted.autocast is None:
        note = "the forward pass is under autocast as well: norms, softmax and losses are computed in fp32"
        return Landing("close", target, f"{note} (loss within 5e-3 over 8 steps of a small model)")
    return Landing("exact", target, "fp32 masters, from the weights as they were loaded")


_POLICY = (
    'Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(mixed_precision_policy={{"param_dtype": {0}, '
    '"reduce_dtype": {1}, "output_dtype": {0}}})): the rest comes from this file'
)
_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}


def _reduce(wanted: Precision, got: Precision, target: str) -> Landing:
    want, have = wanted.reduce or wanted.compute, got.reduce or got.compute
    if wanted.masters != "fp32":
        have = wanted.masters
    assert isinstance(have, str)
    if want == have:
        return Landing("exact", target)
    if have == "fp32":
        return Landing("close", target, f"gradients are reduced in fp32, not in {want}")
    note = f"gradients are reduced in {have}: the file can't say another dtype than that of the parameters"
    assert isinstance(want, str)
    action = f"in your script: {_POLICY.format(_DTYPES[str(got.compute)], _DTYPES[want])}"
    return Landing("approximate", target, note, action)


def sums_shards(plan: Plan) -> bool:
    """Whether gradients have to be reduced on each micro batch: only so does a rank keep no more than its part."""
    return plan.sharding.partition in ("gradients", "parameters") and plan.batch.accumulation not in (1, None)


def _accumulate(plan: Plan, got: Precision) -> Landing:
    wanted, steps = plan.precision, plan.batch.accumulation
    want = wanted.accumulate or wanted.compute
    have = got.accumulate or got.compute
    if steps == 1:
        return Landing("exact", "", "one micro batch: nothing is added up")
    if wanted.masters != "fp32" or sums_shards(plan):
        have = wanted.masters
    if want == have:
        return Landing("exact", "", f"gradients are added up in {want}")
    outcome: Outcome = "close" if have == "fp32" else "approximate"
    return Landing(outcome, "", f"gradients are added up in {have}, not in {want}")


_CAST = "autocast casts the inputs of each layer that computes in the dtype"


def _moments(wanted: Precision) -> Landing:
    want = wanted.moments or wanted.masters
    if want == wanted.masters:
        return Landing("exact", "", f"the optimizer's state is in {want}")
    outcome: Outcome = "close" if wanted.masters == "fp32" else "approximate"
    return Landing(
        outcome, "", f"the optimizer's state has the dtype of the parameters, {wanted.masters}, not {want}"
    )


def _first_step(wanted: Precision) -> Landing:
    if not wanted.steps_before:
        return Landing("exact")
    return Landing("approximate", "", "there is no step with zero gradients before the first one")


def _autocast(wanted: Precision, got: Precision, target: str) -> Landing:
    if wanted.autocast == got.autocast:
        return Landing("exact", target if got.autocast else "")
    if wanted.autocast is None:
        return Landing("close", target, f"the forward pass is under autocast to {got.autocast}")
    return Landing(
        "approximate", target, f"there is no autocast to {wanted.autocast} beside this mixed_precision"
    )


def _masters(wanted: Precision) -> Landing:
    if wanted.masters == "fp32":
        return Landing("exact", "", "trainable parameters become fp32")
    note = f"the optimizer updates the parameters as they were loaded, in {wanted.masters}"
    return Landing("close", "", note, f"load the model in {wanted.masters}")


def _casts(wanted: Precision, got: Precision) -> Landing:
    if wanted.casts_inputs == got.casts_inputs:
        return Landing("exact")
    if got.casts_inputs:
        return Landing(
            "exact", "", f"floating-point inputs are cast to {got.compute}, which autocast does anyway"
        )
    action = f"cast floating-point inputs to {wanted.compute} in your script"
    return Landing("approximate", "", "inputs are not cast", action)


def _buffers(wanted: Precision, got: Precision) -> Landing:
    if wanted.buffers == got.buffers:
        return Landing("exact", "", "buffers stay as they were loaded" * (got.buffers is None))
    if isinstance(wanted.buffers, Unresolved):
        dtype = "the dtype of the parameters"
    elif wanted.buffers is None:
        return Landing("close", "", f"floating-point buffers are cast to {got.buffers}")
    else:
        dtype = wanted.buffers
    action = f"cast floating-point buffers to {dtype} before prepare()"
    return Landing("approximate", "", "buffers stay as they were loaded", action)


def _kept(wanted: Precision) -> Landing:
    if not wanted.fp32_buffers:
        return Landing("exact")
    action = f"cast buffers whose name has {' or '.join(wanted.fp32_buffers)} to fp32 before prepare()"
    return Landing("approximate", "", "buffers stay as they were loaded", action)


def _rounded(wanted: Precision, word: Word) -> Landing:
    if word == "no" or not wanted.rounded_masters or wanted.compute == "fp32":
        return Landing("exact")
    note = f"fp32 masters start from the weights as they were loaded, not from weights rounded to {wanted.compute}"
    return Landing("close", "", note, f"load the model in {wanted.compute} to have them rounded")


def _scaling(wanted: Precision, got: Precision, target: str) -> dict[str, Landing]:
    root, want, have = "precision.scaling", wanted.scaling, got.scaling
    if want is None or have is None:
        same = want is None and have is None
        note = (
            ""
            if same
            else "the loss is not scaled"
            if have is None
            else "torch.amp.GradScaler scales the loss"
        )
        return {root: Landing("exact" if same else "approximate", target * (not same), note)}
    if not want.dynamic:
        note = "the factor adjusts itself, where it is fixed in the source"
        return {root: Landing("approximate", target, note, _scaler(f"init_scale={want.scale}"))}
    landings = {root: Landing("exact", f"{target}: torch.amp.GradScaler")}
    for field, argument in (("scale", "init_scale"), ("window", "growth_interval")):
        asked, given = getattr(want, field), getattr(have, field)
        landings[f"{root}.{field}"] = (
            Landing("exact", f"torch.amp.GradScaler: {given}")
            if asked == given
            else Landing("approximate", "", f"it is {given:g}, not {asked:g}", _scaler(f"{argument}={asked}"))
        )
    one = want.hysteresis == 1
    patient = f"the factor is halved at each overflow: its hysteresis is 1, not {want.hysteresis}"
    landings[f"{root}.hysteresis"] = Landing("exact" if one else "approximate", "", "" if one else patient)
    landings[f"{root}.refill"] = Landing("exact" if one else "approximate", "", "" if one else patient)
    free = not want.minimum
    endless = "the factor has no lower bound: overflow after overflow, the run does not end"
    landings[f"{root}.minimum"] = Landing("exact" if free else "approximate", "", "" if free else endless)
    return landings


def _scaler(argument: str) -> str:
    return f"in your script: Accelerator(kwargs_handlers=[GradScalerKwargs({argument})])"
