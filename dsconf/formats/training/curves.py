"""Learning rates by step, as parts of their peak: those of DeepSpeed's schedules, and those of Trainer's."""

from __future__ import annotations

import math
from collections.abc import Callable

from dsconf.plan import TrainerSchedule, Warmup, WarmupCosine

Curve = Callable[[int], float]
"""The part of the peak at a step, which are counted from 0."""

_LONGEST = 100_000
"""Steps that are compared at most; curves as long as that are smooth."""


def warmup(schedule: Warmup, peak: float) -> Curve:
    """WarmupLR and WarmupDecayLR: both of the first two steps have the lowest rate."""
    steps = _steps(schedule.warmup_steps)
    low = _number(schedule.min_lr) / peak if peak else 0.0
    rise = _rise(schedule.warmup == "linear", steps)
    total = schedule.total_steps if isinstance(schedule.total_steps, int) else None

    def curve(step: int) -> float:
        done = step - 1
        if done < steps:
            return low + (1 - low) * rise(done) if step else low
        if total is None:
            return 1.0
        return low + (1 - low) * max(0.0, (total - done) / max(1, total - steps))

    return curve


def cosine(schedule: WarmupCosine) -> Curve:
    """WarmupCosineLR: the first step has the rate 0."""
    steps, total = _steps(schedule.warmup_steps), _number(schedule.total_steps)
    low, last = _number(schedule.min_ratio), _number(schedule.final_ratio)
    rise = _rise(schedule.warmup == "linear", steps)

    def curve(step: int) -> float:
        done = step - 1
        if step == 0:
            return 0.0
        if done < steps:
            return low + (1 - low) * rise(done)
        part = min(1.0, (done - steps + 1) / max(1, total - steps))
        return max(0.0, last + (1 - last) * (1 + math.cos(math.pi * part)) / 2)

    return curve


def trainer(schedule: TrainerSchedule) -> Curve:
    """Those of Trainer's schedules that stand for one of DeepSpeed's, all of straight lines or half a cosine.

    Raises KeyError for another one.
    """
    steps = int(_number(schedule.warmup_steps))
    total = int(_number(schedule.total_steps or 0))
    low = float(schedule.arguments.get("min_lr_rate", schedule.arguments.get("min_lr_ratio", 0.0)))
    start = low if schedule.name == "warmup_stable_decay" else 0.0
    decay = int(schedule.arguments.get("num_decay_steps", 0))
    after: dict[str, Curve] = {
        "constant": lambda step: 1.0,
        "constant_with_warmup": lambda step: 1.0,
        "warmup_stable_decay": lambda step: (
            low + (1 - low) * max(0.0, 1 - (step - steps) / decay) if decay else 1.0
        ),
        "linear": lambda step: max(0.0, (total - step) / max(1, total - steps)),
        "cosine": lambda step: _half_cosine((step - steps) / max(1, total - steps), low),
        "cosine_with_min_lr": lambda step: _half_cosine((step - steps) / max(1, total - steps), low),
    }
    rest = after[schedule.name]
    return lambda step: start + (1 - start) * step / steps if step < steps else rest(step)


def apart(one: Curve, other: Curve, steps: int) -> float:
    """How far two curves are from each other at most over so many steps."""
    return max(abs(one(step) - other(step)) for step in range(max(1, min(steps, _LONGEST))))


def _steps(given: object) -> int:
    """DeepSpeed warms up for two steps at least."""
    return max(2, int(_number(given)))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _rise(linear: bool, steps: int) -> Curve:
    return (lambda done: done / steps) if linear else (lambda done: math.log(done + 1) / math.log(steps))


def _half_cosine(part: float, low: float) -> float:
    return max(0.0, (1 + math.cos(math.pi * part)) / 2 * (1 - low) + low)
