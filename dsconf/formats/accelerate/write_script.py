"""What a file of Accelerate leaves to the script: batch, accumulation, optimizer, schedule, clipping."""

from __future__ import annotations

from collections.abc import Mapping

from dsconf.formats.fsdp_precision import sums_shards
from dsconf.formats.outcome import Landing, Outcome
from dsconf.formats.writing import UP_TO_SCRIPT
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
    landings = _batch(plan) | _clipping(plan) | UP_TO_SCRIPT
    if plan.optimizer is not None:
        landings |= _optimizer(plan.optimizer)
    if plan.schedule is not None:
        landings |= _schedule(plan.schedule)
    return landings


def duties(landings: Mapping[str, Landing], labels: Mapping[str, str]) -> dict[str, str]:
    """What the script has to do, by the key that it is for, or by the field where there is none; as a step goes on."""
    found = {
        field: landing.action.removeprefix(_START)
        for field, landing in landings.items()
        if landing.action is not None and landing.action.startswith(_START)
    }
    once = {what: field for field, what in reversed(found.items())}
    ordered = sorted(once.items(), key=lambda duty: _place(duty[1]))
    return {labels.get(field, field.replace(".", " ").replace("_", " ")): what for what, field in ordered}


def _place(field: str) -> int:
    return next((place for place, start in enumerate(_ORDER) if field.startswith(start)), len(_ORDER))


def _open(target: str) -> Landing:
    return Landing("needs-value", target, "", _IN_SCRIPT.format(f"{target}; choose the value there"))


def _batch(plan: Plan) -> dict[str, Landing]:
    batch = plan.batch
    loader = "DataLoader(batch_size={})"
    found: dict[str, Landing] = {}
    if isinstance(batch.micro, Unresolved):
        found["batch.micro"] = _open(loader.format("..."))
    elif batch.micro is not None:
        target = loader.format(batch.micro)
        found["batch.micro"] = Landing("exact", target, "per rank", _IN_SCRIPT.format(target))
    if batch.accumulation is not None:
        found["batch.accumulation"] = _accumulation(plan)
    product = "micro batch x accumulation x ranks"
    open_ = isinstance(batch.total, Unresolved)
    found["batch.total"] = Landing("needs-value" if open_ else "exact", "", product)
    return found


def _accumulation(plan: Plan) -> Landing:
    """Micro batches per step; where gradients are divided, each is reduced at once."""
    number = plan.batch.accumulation
    if number == 1:
        return Landing("exact", "", "one micro batch per step")
    each = sums_shards(plan)
    call = "gradient_accumulation_steps={}"
    if each:
        call = "gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps={}, sync_each_batch=True)"
    target = f"Accelerator({call.format(_shown(number))})"
    do = f"{target}, and each micro batch in accelerator.accumulate(model)"
    if isinstance(number, Unresolved):
        return _open(do)
    note = "gradients are reduced on each micro batch, so that a rank keeps its part of them alone" * each
    return Landing("exact", target, note, _IN_SCRIPT.format(do))


def _clipping(plan: Plan) -> dict[str, Landing]:
    norm = plan.clipping.max_norm
    call = f"accelerator.clip_grad_norm_(model.parameters(), {_shown(norm)}) where accelerator.sync_gradients"
    if norm is None:
        landing = Landing("exact", "", "no clipping: leave it out")
    elif isinstance(norm, Unresolved):
        landing = _open(call)
    else:
        landing = Landing("exact", call, "", _IN_SCRIPT.format(call))
    found = {"clipping.max_norm": landing}
    if plan.clipping.skips_not_finite:
        leave = "leave out optimizer.step() and scheduler.step() where the norm of the gradient is not finite"
        found["clipping.skips_not_finite"] = Landing("exact", "", "", _IN_SCRIPT.format(leave))
    else:
        found["clipping.skips_not_finite"] = Landing("exact")
    return found


def _optimizer(optimizer: Optimizer) -> dict[str, Landing]:
    given = ", ".join(f"{name}={_shown(value)}" for name, value in optimizer.arguments.items())
    torchs = optimizer.name not in ("Lion", "Muon") and optimizer.bias_correction
    call = f"torch.optim.{optimizer.name}(model.parameters(), {given})"
    what = call if torchs else f"build_optimizer() {_ELSEWHERE}"
    outcome: Outcome = "approximate" if optimizer.name == "Muon" else "exact"
    found = {f"optimizer.{name}": _argument(name, value) for name, value in optimizer.arguments.items()}
    found["optimizer.name"] = Landing(outcome, what, "", _IN_SCRIPT.format(what))
    for field in ("bias_correction", "own_kernel", "spares_norms"):
        found[f"optimizer.{field}"] = Landing("exact", what)
    if optimizer.spares_norms:
        groups = "leave biases and weights of norms out of weight decay, in a parameter group with weight_decay=0.0"
        found["optimizer.spares_norms"] = Landing("exact", "", "", _IN_SCRIPT.format(groups))
        decay = found.get("optimizer.weight_decay")
        if decay is not None and decay.outcome == "exact" and optimizer.arguments["weight_decay"] != 0:
            found["optimizer.weight_decay"] = decay._replace(action=_IN_SCRIPT.format(groups))
    if optimizer.own_kernel:
        found["optimizer.own_kernel"] = Landing(
            "close", what, "torch's optimizer rounds differently from DeepSpeed's"
        )
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
