"""What a file of Accelerate leaves to the script: batch, accumulation, optimizer, schedule, clipping."""

from __future__ import annotations

from dsconf.formats.outcome import Landing, Outcome
from dsconf.plan import Momentum, Optimizer, Plan, Schedule, TorchSchedule, TrainerSchedule, Unresolved

_START = "in your script: "
_IN_SCRIPT = _START + "{}"
_ORDER = ("batch.", "precision.", "sharding.", "wrapping.", "clipping.", "optimizer.", "schedule.")
_ELSEWHERE = "as dsconf translate --to fsdp2 writes it"
_ALONE = (
    "keep it out of accelerator.prepare(), which steps a schedule once per rank, and step it once per step"
)


def land_script(plan: Plan) -> dict[str, Landing]:
    """The landings of all that is the script's, each with what to do there as its action."""
    landings = _batch(plan) | _clipping(plan)
    if plan.optimizer is not None:
        landings |= _optimizer(plan.optimizer)
    if plan.schedule is not None:
        landings |= _schedule(plan.schedule)
    return landings


def duties(landings: dict[str, Landing]) -> dict[str, str]:
    """By field what the script has to do, in the order of a step."""
    found = {
        field: landing.action.removeprefix(_START)
        for field, landing in landings.items()
        if landing.action is not None and landing.action.startswith(_START)
    }
    once = {what: field for field, what in reversed(found.items())}
    ordered = sorted(once.items(), key=lambda duty: _place(duty[1]))
    return {field: what for what, field in ordered}


def _place(field: str) -> int:
    return next((place for place, start in enumerate(_ORDER) if field.startswith(start)), len(_ORDER))


def _open(value: Unresolved, target: str) -> Landing:
    return Landing("needs-value", target, "", _IN_SCRIPT.format(f"{target}; choose the value there"))


def _batch(plan: Plan) -> dict[str, Landing]:
    batch = plan.batch
    loader = "DataLoader(batch_size={})"
    found: dict[str, Landing] = {}
    if isinstance(batch.micro, Unresolved):
        found["batch.micro"] = _open(batch.micro, loader.format("..."))
    elif batch.micro is not None:
        target = loader.format(batch.micro)
        found["batch.micro"] = Landing("exact", target, "per rank", _IN_SCRIPT.format(target))
    steps = (
        "Accelerator(gradient_accumulation_steps={}), and each micro batch in accelerator.accumulate(model)"
    )
    if isinstance(batch.accumulation, Unresolved):
        found["batch.accumulation"] = _open(batch.accumulation, steps.format("..."))
    elif batch.accumulation == 1:
        found["batch.accumulation"] = Landing("exact", "", "one micro batch per step")
    elif batch.accumulation is not None:
        target = steps.format(batch.accumulation)
        found["batch.accumulation"] = Landing("exact", target, "", _IN_SCRIPT.format(target))
    product = "micro batch x accumulation x ranks"
    open_ = isinstance(batch.total, Unresolved)
    found["batch.total"] = Landing("needs-value" if open_ else "exact", "", product)
    return found


def _clipping(plan: Plan) -> dict[str, Landing]:
    norm = plan.clipping.max_norm
    if norm is None:
        return {"clipping.max_norm": Landing("exact", "", "no clipping: leave it out")}
    call = "accelerator.clip_grad_norm_(model.parameters(), {}) where accelerator.sync_gradients"
    if isinstance(norm, Unresolved):
        return {"clipping.max_norm": _open(norm, call.format("..."))}
    target = call.format(norm)
    note = "where it acts, its factor rounds differently"
    return {"clipping.max_norm": Landing("close", target, note, _IN_SCRIPT.format(target))}


def _optimizer(optimizer: Optimizer) -> dict[str, Landing]:
    given = ", ".join(f"{name}={_shown(value)}" for name, value in optimizer.arguments.items())
    torchs = optimizer.name not in ("Lion", "Muon") and optimizer.bias_correction
    call = f"torch.optim.{optimizer.name}(model.parameters(), {given})"
    what = call if torchs else f"build_optimizer() {_ELSEWHERE}"
    outcome: Outcome = "approximate" if optimizer.name == "Muon" else "exact"
    found = {f"optimizer.{name}": _argument(name, value) for name, value in optimizer.arguments.items()}
    found["optimizer.name"] = Landing(outcome, what, "", _IN_SCRIPT.format(what))
    found["optimizer.bias_correction"] = Landing("exact", what)
    return found


def _schedule(schedule: Schedule) -> dict[str, Landing]:
    values = dict(schedule)
    arguments: dict[str, object] = values.pop("arguments", {})
    del values["name"]
    given = "".join(f", {name}={_shown(value)}" for name, value in arguments.items())
    if isinstance(schedule, TrainerSchedule):
        steps = f", num_warmup_steps={_shown(schedule.warmup_steps)}, num_training_steps=..."
        what = f"transformers.get_scheduler({schedule.name!r}, optimizer{steps}{given})"
    elif isinstance(schedule, TorchSchedule):
        what = f"torch.optim.lr_scheduler.{schedule.name}(optimizer{given})"
    else:
        what = f"build_scheduler() {_ELSEWHERE}"
    momentum = values.pop("momentum", None)
    values |= {f"momentum.{name}": getattr(momentum, name, None) for name in Momentum.model_fields}
    values |= arguments
    found = {f"schedule.{name}": _argument(name, value) for name, value in values.items()}
    found["schedule.momentum"] = Landing("exact", what)
    found["schedule.name"] = Landing("exact", what, "", _IN_SCRIPT.format(f"{what}; {_ALONE}"))
    return found


def _argument(name: str, value: object) -> Landing:
    shown = f"{name}={_shown(value)}"
    if isinstance(value, Unresolved):
        return Landing("needs-value", shown, "", "choose the value in your script")
    return Landing("exact", shown)


def _shown(value: object) -> str:
    return "..." if isinstance(value, Unresolved) else repr(value)
