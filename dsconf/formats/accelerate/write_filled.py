"""What Accelerate fills of a DeepSpeed config, and what a script has to give it for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsconf.formats.outcome import Landing
from dsconf.plan import Optimizer, Plan, Schedule, Unresolved

_START = "in your script: "
_FROM = {
    "batch.micro": "the batch_size of the DataLoader",
    "batch.accumulation": "Accelerator(gradient_accumulation_steps=...)",
    "batch.total": "micro batch x accumulation x ranks",
}
_CLIPPING = 1.0
_OPTIMIZER = ("lr", "weight_decay")
"""The arguments that a DummyOptim gives."""
_PUT = {"min_lr": "0", "max_lr": "the lr of the optimizer"}
"""What it puts for fields of a schedule whatever the script says."""
_STEPS = {"warmup_steps": "warmup_num_steps", "total_steps": "total_num_steps"}
"""By field of a schedule the argument of a DummyScheduler that gives it."""


def land_filled(
    plan: Plan, landings: dict[str, Landing], settings: Mapping[str, Any], path: str | None
) -> None:
    """Settle what is "auto" in `settings`, and what the script does; `path` is their JSON, where there is one."""
    for field, source in _FROM.items():
        value = getattr(plan.batch, field.partition(".")[2])
        if isinstance(value, Unresolved) or (value is None and field != "batch.total"):
            landings[field] = Landing("exact", "auto", f"Accelerate fills it from the script: {source}")
    if isinstance(plan.batch.micro, int):
        _act(landings, "batch.micro", f"DataLoader(batch_size={plan.batch.micro})")
    if plan.batch.accumulation != 1 and path is None:
        _act(landings, "batch.accumulation", "each micro batch in accelerator.accumulate(model)")
    _clipping(plan, landings)
    if plan.optimizer is not None and "optimizer" in settings:
        _optimizer(plan.optimizer, landings, path)
    if plan.schedule is not None and "scheduler" in settings:
        _schedule(plan.schedule, landings, path)
    elif plan.schedule is not None and "optimizer" in settings:
        what = "accelerate.utils.DummyScheduler(optimizer, lr_scheduler_callable=...) with a function that makes it"
        landings["schedule.name"] = landings["schedule.name"]._replace(
            target="DummyScheduler", action=_START + what
        )


def _act(landings: dict[str, Landing], field: str, what: str) -> None:
    if field in landings and landings[field].action is None:
        landings[field] = landings[field]._replace(action=_START + what)


def _given(call: str) -> Landing:
    return Landing("needs-value", "auto", "", f"give it with {call}")


def _clipping(plan: Plan, landings: dict[str, Landing]) -> None:
    norm, field = plan.clipping.max_norm, "clipping.max_norm"
    if isinstance(norm, Unresolved):
        landings[field] = Landing("exact", "auto", f"Accelerate puts {_CLIPPING} there")
    elif norm is None and plan.batch.micro is None:
        # Only then the loop may be the script's, and clip there.
        what = "write gradient_clipping where it clips: accelerator.clip_grad_norm_() does nothing under DeepSpeed"
        landings[field] = Landing("exact", "", "", _START + what)


def _optimizer(optimizer: Optimizer, landings: dict[str, Landing], path: str | None) -> None:
    open_ = [name for name, value in optimizer.arguments.items() if isinstance(value, Unresolved)]
    for name in open_:
        if name in _OPTIMIZER:
            landings[f"optimizer.{name}"] = _given(f"DummyOptim({name}=...)")
        else:
            action = (
                f"write it in {path}: Accelerate fills {' and '.join(_OPTIMIZER)} alone, and stops at others"
            )
            landings[f"optimizer.{name}"] = Landing("needs-value", "auto", "", action)
    given = "".join(f", {name}=..." for name in _OPTIMIZER if name in open_)
    what = f"accelerate.utils.DummyOptim(model.parameters(){given}) in place of an optimizer"
    _act(landings, "optimizer.name", what)


def _schedule(schedule: Schedule, landings: dict[str, Landing], path: str | None) -> None:
    open_ = [name for name, value in schedule if isinstance(value, Unresolved)]
    for name in open_:
        field = f"schedule.{name}"
        if name in _PUT:
            landings[field] = Landing("exact", "auto", f"Accelerate puts {_PUT[name]} there")
        elif name in _STEPS:
            landings[field] = _given(f"DummyScheduler({_STEPS[name]}=...)")
        else:
            action = f"write it in {path}: Accelerate has no value for it, and stops"
            landings[field] = Landing("needs-value", "auto", "", action)
    given = "".join(f", {argument}=..." for name, argument in _STEPS.items() if name in open_)
    _act(
        landings, "schedule.name", f"accelerate.utils.DummyScheduler(optimizer{given}) in place of a schedule"
    )
