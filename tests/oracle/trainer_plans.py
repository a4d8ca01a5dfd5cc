"""What a Plan has to become under Trainer, beside what the real Trainer makes of the arguments written for it."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from dsconf.formats.outcome import Landing
from dsconf.plan import Plan, TrainerSchedule, Unresolved, Warmup, WarmupCosine

from .accelerate_plans import expected as expected_plugin
from .accelerate_plans import found as plugin_of
from .arguing import Outcome

DEFAULTS: dict[str, object] = {"micro": 8, "accumulation": 1, "max_norm": 1.0}
"""Trainer's own, where the Plan leaves something open."""
_STEPS = 40
"""Of a schedule that ends with the run, where the Plan leaves that open."""
_TORCH: dict[str, dict[str, object]] = {
    "AdamW": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "SGD": {"lr": 1e-3, "weight_decay": 0.0},
    "Adagrad": {"lr": 1e-2, "weight_decay": 0.0},
    "RMSprop": {"lr": 1e-2, "weight_decay": 0.0},
}


def expected(plan: Plan, landings: Mapping[str, Landing]) -> dict[str, object]:
    """What training goes by: batch, clipping, precision, the plugin, and the optimizer that is built."""
    batch = plan.batch
    precision = plan.precision
    word = precision.compute if precision.compute != "fp32" else precision.autocast or "fp32"
    if isinstance(word, Unresolved) or precision.masters != "fp32":
        word = "fp32"
    clipped = plan.clipping.max_norm
    open_ = landings["clipping.max_norm"].target == "" or isinstance(clipped, Unresolved)
    told: dict[str, object] = {
        "micro": batch.micro,
        "accumulation": batch.accumulation,
        "max_norm": None if open_ else clipped or 0.0,
        "precision": {"fp32": "no"}.get(word, word),
        "each": _reduces_each(plan),
        "length": _length(plan),
    }
    told = {
        name: DEFAULTS[name]
        if name in DEFAULTS and (value is None or isinstance(value, Unresolved))
        else value
        for name, value in told.items()
    }
    plugin = expected_plugin(plan)
    if plugin is not None:
        plugin = plugin | {
            "cpu_ram_efficient_loading": plan.checkpoint.loads_on_rank_0 is True,
            "state_dict_type": f"{_WEIGHTS[plan.checkpoint.weights]}_STATE_DICT",
        }
    return told | {"plugin": plugin, "optimizer": _optimizer(plan, landings)}


_WEIGHTS = {None: "FULL", "full": "FULL", "sharded": "SHARDED", "local": "SHARDED"}


def _length(plan: Plan) -> tuple[str, object]:
    """When training ends: with a schedule that has an end, else as the Plan says, else on Trainer's default."""
    total = getattr(plan.schedule, "total_steps", None)
    steps = total if isinstance(total, int) else plan.length.steps
    return ("epochs", plan.length.epochs or 3.0) if steps is None else ("steps", steps)


def _reduces_each(plan: Plan) -> bool:
    """Where shards of gradients are kept, or added up in fp32."""
    precision = plan.precision
    narrow = precision.compute != "fp32" and precision.accumulate == "fp32"
    kept = plan.sharding.partition in ("gradients", "parameters")
    if plan.sharding.partition == "nothing" or plan.batch.accumulation in (1, None):
        return False
    return kept or narrow


def _optimizer(plan: Plan, landings: Mapping[str, Landing]) -> dict[str, object] | None:
    """The class, and its arguments in the group that decays; None where Trainer's own or the script's decides."""
    optimizer = plan.optimizer
    if optimizer is None or landings["optimizer.name"].outcome == "unsupported":
        return None
    known = {**_TORCH.get(optimizer.name, {}), **optimizer.arguments}
    schedule = plan.schedule
    peak = schedule.max_lr if isinstance(schedule, Warmup) and schedule.max_lr is not None else known["lr"]
    if isinstance(schedule, Warmup) and isinstance(schedule.max_lr, Unresolved):
        peak = known["lr"]
    known["lr"] = peak
    name = "AdamW" if optimizer.name == "Adam" else optimizer.name
    known.pop("decoupled_weight_decay", None)
    known["fused"] = (name == "AdamW" and known.get("fused")) or None
    return {
        "class": name,
        **{key: value for key, value in known.items() if not isinstance(value, Unresolved)},
    }


def found(built: Outcome, told: Mapping[str, object]) -> dict[str, object]:
    """The same of the real Trainer; of the optimizer what is asked for."""
    arguments, trainer = built.arguments, built.trainer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.create_optimizer()
    each = (arguments.accelerator_config.gradient_accumulation_kwargs or {}).get("sync_each_batch", False)
    real: dict[str, object] = {
        "micro": arguments.per_device_train_batch_size,
        "accumulation": arguments.gradient_accumulation_steps,
        "max_norm": arguments.max_grad_norm,
        "precision": arguments.mixed_precision,
        "each": each,
        "length": ("steps", arguments.max_steps)
        if arguments.max_steps > 0
        else ("epochs", arguments.num_train_epochs),
        "plugin": plugin_of(built.plugin),
        "optimizer": None,
    }
    asked = told["optimizer"]
    if isinstance(asked, Mapping):
        group = trainer.optimizer.param_groups[0]
        values = {name: group.get(name) for name in asked if name != "class"}
        real["optimizer"] = {"class": type(trainer.optimizer).__name__, **values}
    return real


def differences(
    plan: Plan, landings: Mapping[str, Landing], built: Outcome
) -> dict[str, tuple[object, object]]:
    """What of a Plan and of the real Trainer is not the same, as pairs; an error, too."""
    if built.error is not None:
        return {"error": (None, repr(built.error))}
    told = expected(plan, landings)
    real = found(built, told)
    return {name: (told[name], real[name]) for name in told if told[name] != real[name]}


def rates(plan: Plan, built: Outcome) -> tuple[list[float], list[float], float] | None:
    """The learning rates of the Plan's schedule and of the real Trainer's, by step, and their peak.

    None where the Plan has none, or leaves some of it open.
    """
    schedule, peak = plan.schedule, _peak(plan)
    if isinstance(schedule, TrainerSchedule):
        total = schedule.total_steps if isinstance(schedule.total_steps, int) else _STEPS
    elif isinstance(schedule, Warmup | WarmupCosine):
        if isinstance(schedule.warmup_steps, Unresolved):
            return None
        total = schedule.total_steps or schedule.warmup_steps + 5  # type: ignore[assignment]
    else:
        return None
    values = [*dict(schedule).values(), peak]
    if any(isinstance(value, Unresolved) for value in values) or not isinstance(peak, int | float):
        return None
    trainer = built.trainer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.create_optimizer()
        trainer.create_scheduler(num_training_steps=total)
        real = _course(trainer.lr_scheduler, trainer.optimizer, total)
        return _wanted(schedule, peak, total), real, float(peak)


def _peak(plan: Plan) -> object:
    schedule, optimizer = plan.schedule, plan.optimizer
    if isinstance(schedule, Warmup) and schedule.max_lr is not None:
        return schedule.max_lr
    return None if optimizer is None else optimizer.arguments.get("lr", 1e-3)


def _wanted(schedule: Any, peak: Any, total: int) -> list[float]:
    """The rates of the framework that the schedule is of."""
    torch = importlib.import_module("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    if isinstance(schedule, TrainerSchedule):
        get_scheduler = importlib.import_module("transformers").get_scheduler
        warmup = schedule.warmup_steps if isinstance(schedule.warmup_steps, int | float) else 0
        scheduler = get_scheduler(
            schedule.name,
            optimizer,
            num_warmup_steps=int(warmup) if warmup >= 1 else -int(-total * warmup // 1),
            num_training_steps=total,
            scheduler_specific_kwargs=dict(schedule.arguments),
        )
        return _course(scheduler, optimizer, total)
    schedules = importlib.import_module("deepspeed.runtime.lr_schedules")
    settings: dict[str, Any] = {
        "warmup_num_steps": schedule.warmup_steps,
        "warmup_type": schedule.warmup,
    }
    if isinstance(schedule, Warmup):
        settings |= {"warmup_min_lr": schedule.min_lr, "warmup_max_lr": peak}
    else:
        settings |= {"warmup_min_ratio": schedule.min_ratio, "cos_min_ratio": schedule.final_ratio}
    if schedule.total_steps is not None:
        settings["total_num_steps"] = schedule.total_steps
    scheduler = getattr(schedules, schedule.name)(optimizer, **settings)
    return _course(scheduler, optimizer, total)


def _course(scheduler: Any, optimizer: Any, total: int) -> list[float]:
    course = []
    for _ in range(total):
        course.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return course


def said(landing: Landing) -> float:
    """How far the rate is off at most, as a landing says: a part of the peak."""
    match = re.search(r"off by ([\d.e+-]+)% of its peak", landing.note)
    assert match is not None, landing
    return float(match[1]) / 100


def apart(course: tuple[Sequence[float], Sequence[float], float]) -> float:
    """How far two courses are from each other at most, as a part of the peak."""
    one, other, peak = course
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) / peak
