"""Writes the schedule of the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

from dsconf.formats.deepspeed.read_schedule import has_betas
from dsconf.formats.deepspeed.write_draft import Draft
from dsconf.formats.outcome import Outcome
from dsconf.plan import (
    OneCycle,
    RangeTest,
    TorchSchedule,
    TrainerSchedule,
    Warmup,
    WarmupCosine,
)

_PREFIX = "scheduler.params."
_OF_GROUP = "the lr of each parameter group"
_STAY = "the betas stay as they are"
_CALLABLE = "the argument lr_scheduler of deepspeed.initialize"
_STEPPED = "no scheduler of DeepSpeed has this curve; deepspeed.initialize takes any: engine.step() steps it"


def write_schedule(draft: Draft) -> None:
    """Write the section; nothing where the Plan has no schedule, or one that DeepSpeed takes from the script only."""
    schedule = draft.plan.schedule
    match schedule:
        case Warmup():
            _warmup(draft, schedule)
        case WarmupCosine():
            _named(draft, schedule.name)
            _set(draft, "warmup_min_ratio", "min_ratio", schedule.min_ratio)
            _set(draft, "warmup_num_steps", "warmup_steps", schedule.warmup_steps)
            _set(draft, "warmup_type", "warmup", schedule.warmup)
            _set(draft, "total_num_steps", "total_steps", schedule.total_steps)
            _set(draft, "cos_min_ratio", "final_ratio", schedule.final_ratio)
        case OneCycle():
            _one_cycle(draft, schedule)
        case RangeTest():
            _named(draft, schedule.name)
            for argument, name in (
                ("min_lr", "min_lr"), ("step_size", "interval"), ("step_rate", "rate"), ("staircase", "staircase"),
            ):  # fmt: skip
                _set(draft, f"lr_range_test_{argument}", name, getattr(schedule, name))
        case TorchSchedule():
            _torch(draft, schedule)
        case TrainerSchedule():
            build = f'lambda optimizer: transformers.get_scheduler("{schedule.name}", optimizer, ...)'
            fields = {"warmup_steps": schedule.warmup_steps, "total_steps": schedule.total_steps}
            _by_script(draft, {**fields, "arguments": schedule.arguments, **schedule.arguments}, build)


def _named(draft: Draft, name: str) -> None:
    draft.set("scheduler.type", "schedule.name", name, "stepped once per applied optimizer step")


def _set(draft: Draft, argument: str, name: str, value: object, note: str = "") -> None:
    draft.set(_PREFIX + argument, f"schedule.{name}", value, note)


def _warmup(draft: Draft, schedule: Warmup) -> None:
    decays = schedule.name == "WarmupDecayLR"
    _named(draft, schedule.name)
    _set(draft, "warmup_min_lr", "min_lr", schedule.min_lr)
    if schedule.max_lr is None and not decays:
        draft.land("schedule.max_lr", "exact", "", _OF_GROUP)
    else:
        # Without the key WarmupDecayLR has 0.001, whatever the lr of the optimizer.
        _set(draft, "warmup_max_lr", "max_lr", schedule.max_lr, _OF_GROUP if schedule.max_lr is None else "")
    _set(draft, "warmup_num_steps", "warmup_steps", schedule.warmup_steps)
    _set(draft, "warmup_type", "warmup", schedule.warmup)
    if decays:
        _set(draft, "total_num_steps", "total_steps", schedule.total_steps)


def _one_cycle(draft: Draft, schedule: OneCycle) -> None:
    _named(draft, schedule.name)
    _set(draft, "cycle_min_lr", "min_lr", schedule.min_lr)
    _set(draft, "cycle_max_lr", "max_lr", schedule.max_lr)
    _set(draft, "cycle_first_step_size", "first_steps", schedule.first_steps)
    _set(draft, "cycle_second_step_size", "second_steps", schedule.second_steps)
    optional = {
        "cycle_first_stair_count": ("first_stairs", schedule.first_stairs),
        "cycle_second_stair_count": ("second_stairs", schedule.second_stairs),
        "decay_step_size": ("decay_steps", schedule.decay_steps),
        "decay_lr_rate": ("decay", schedule.decay),
    }
    for argument, (name, value) in optional.items():
        # The second half has as many stairs as the first one, if nothing is written.
        if value == 0 and not (name == "second_stairs" and schedule.first_stairs != 0):
            draft.land(f"schedule.{name}", "exact", "", "none")
        else:
            _set(draft, argument, name, value)
    momentum, optimizer = schedule.momentum, draft.plan.optimizer
    idle = optimizer is not None and not has_betas(optimizer)
    if momentum is None or idle:
        draft.put(f"{_PREFIX}cycle_momentum", False)
        outcome: Outcome = "exact" if momentum is None else "no-effect"
        draft.land("schedule.momentum", outcome, "", "the optimizer has no betas" if idle else _STAY)
        for name in ("low", "high", "decay"):
            draft.land(f"schedule.momentum.{name}", "no-effect", "", "the momentum does not move")
        return
    _set(draft, "cycle_momentum", "momentum", True)
    _set(draft, "cycle_min_mom", "momentum.low", momentum.low)
    _set(draft, "cycle_max_mom", "momentum.high", momentum.high)
    _set(draft, "decay_mom_rate", "momentum.decay", momentum.decay)


def _torch(draft: Draft, schedule: TorchSchedule) -> None:
    if draft.stage == 0 and not draft.narrow:
        _named(draft, schedule.name)
        for argument, value in schedule.arguments.items():
            _set(draft, argument, argument, value)
        return
    build = f"lambda optimizer: torch.optim.lr_scheduler.{schedule.name}(optimizer, ...)"
    _by_script(draft, schedule.arguments, build)


def _by_script(draft: Draft, arguments: Mapping[str, object], build: str) -> None:
    """A schedule that a script makes itself: DeepSpeed calls what it is given with the optimizer that it built."""
    action = f"deepspeed.initialize(..., lr_scheduler={build})"
    draft.land("schedule.name", "exact", _CALLABLE, _STEPPED, action)
    for argument in arguments:
        draft.land(f"schedule.{argument}", "exact", _CALLABLE)
