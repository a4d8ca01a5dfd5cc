"""Optimizers and schedules that dsconf has emitted."""

from __future__ import annotations

from typing import Any

from dsconf.formats.fsdp2.read_constants import Emitted
from dsconf.formats.fsdp2.read_values import plain
from dsconf.plan import (
    OPTIMIZERS,
    Momentum,
    OneCycle,
    Optimizer,
    RangeTest,
    Schedule,
    TorchSchedule,
    TrainerSchedule,
    Warmup,
    WarmupCosine,
)

_SCHEDULES = {
    "warmup": {
        "WARMUP_MIN_LR": "min_lr",
        "WARMUP_MAX_LR": "max_lr",
        "WARMUP_STEPS": "warmup_steps",
        "TOTAL_STEPS": "total_steps",
    },
    "warmup_cosine": {
        "WARMUP_MIN_RATIO": "min_ratio",
        "COS_MIN_RATIO": "final_ratio",
        "WARMUP_STEPS": "warmup_steps",
        "TOTAL_STEPS": "total_steps",
    },
    "one_cycle": {
        "MIN_LR": "min_lr",
        "MAX_LR": "max_lr",
        "FIRST_STEPS": "first_steps",
        "SECOND_STEPS": "second_steps",
        "FIRST_STAIRS": "first_stairs",
        "SECOND_STAIRS": "second_stairs",
        "DECAY_STEPS": "decay_steps",
        "DECAY_RATE": "decay",
        "MIN_MOMENTUM": "momentum.low",
        "MAX_MOMENTUM": "momentum.high",
        "MOMENTUM_DECAY_RATE": "momentum.decay",
    },
    "range_test": {"MIN_LR": "min_lr", "INTERVAL": "interval", "RATE": "rate"},
    "trainer_schedule": {"WARMUP_STEPS": "warmup_steps", "TOTAL_STEPS": "total_steps"},
}
"""By part the field of the schedule that each constant goes to."""


def optimizer_of(emitted: Emitted) -> Optimizer | None:
    """The optimizer that a known build_optimizer makes."""
    part, _, function = emitted.part("build_optimizer").partition(".")
    names = {name.lower(): name for name in OPTIMIZERS}
    special = {"lion": "Lion", "muon": "Muon"}
    if part == "uncorrected_adam":
        name = "AdamW" if emitted.on("DECOUPLED") else "Adam"
    else:
        name = special.get(part) or names[function]
    arguments = {}
    for argument in OPTIMIZERS[name]:
        if name == "Muon" and argument in ("muon_lr", "adam_lr") and not emitted.takes(argument.upper()):
            continue
        if name == "Muon" and argument == "lr":
            if "LR" not in [emitted.known.state.constants.get(each, "") for each in ("MUON_LR", "ADAM_LR")]:
                continue
            arguments["lr"] = plain(emitted.notes.run.constant("LR"))
            emitted.notes.take("LR", "optimizer.lr", arguments["lr"])
            continue
        value = emitted.get(argument.upper(), f"optimizer.{argument}")
        if value is not None:
            arguments[argument] = value
    key = "UncorrectedAdam" if part == "uncorrected_adam" else "MuonAndAdam" if name == "Muon" else name
    emitted.notes.take(
        key, "optimizer.name", key if key in emitted.known.functions else f"torch.optim.{name}"
    )
    if part == "uncorrected_adam":
        emitted.notes.take("UncorrectedAdam (moments)", "optimizer.bias_correction", False)
    return Optimizer(
        name=name,
        arguments=arguments,
        bias_correction=part != "uncorrected_adam",
        decoupled=emitted.on("DECOUPLED") if name == "Muon" else True,
        sign_of_zero="negative" if name == "Lion" and not emitted.on("SIGN_BIT") else "bit",
    )


def schedule_of(emitted: Emitted) -> Schedule | None:
    """The schedule that a known build_scheduler makes; None for that of a source without one."""
    part = emitted.part("build_scheduler").partition(".")[0]
    if part == "no_scheduler":
        return None
    key = "build_scheduler"
    if part == "torch_scheduler":
        name = emitted.known.state.constants["StepLR"]
        arguments = plain(emitted.value("SCHEDULE"))
        emitted.notes.take(name, "schedule.name", f"torch.optim.lr_scheduler.{name}")
        known = arguments if isinstance(arguments, dict) else {}
        listed = {
            str(argument): list(value) if isinstance(value, tuple) else value
            for argument, value in known.items()
        }
        for argument, value in listed.items():
            emitted.notes.take(f"SCHEDULE.{argument}", f"schedule.{argument}", value)
        return TorchSchedule(name=name, arguments=listed)
    found = {
        field: emitted.get(constant, f"schedule.{field}")
        for constant, field in _SCHEDULES[part].items()
        if emitted.known.state.constants.get(constant)
    }
    shape = "linear" if emitted.on("LINEAR") else "log"
    match part:
        case "warmup":
            name = "WarmupDecayLR" if emitted.on("DECAYS") else "WarmupLR"
            emitted.notes.take(key, "schedule.name", name)
            return Warmup.model_validate({"max_lr": None, **found, "name": name, "warmup": shape})
        case "warmup_cosine":
            emitted.notes.take(key, "schedule.name", "WarmupCosineLR")
            return WarmupCosine.model_validate({**found, "warmup": shape})
        case "one_cycle":
            emitted.notes.take(key, "schedule.name", "OneCycle")
            moves = emitted.on("MOVES_MOMENTUM")
            low, high, decay = (found.pop(f"momentum.{each}", 0.0) for each in ("low", "high", "decay"))
            momentum = Momentum(low=low, high=high, decay=decay) if moves else None
            return OneCycle.model_validate({**found, "momentum": momentum})
        case "trainer_schedule":
            return _of_trainer(emitted, found)
        case _:
            emitted.notes.take(key, "schedule.name", "LRRangeTest")
            return RangeTest.model_validate({**found, "staircase": emitted.on("STAIRCASE")})


def _of_trainer(emitted: Emitted, found: dict[str, Any]) -> TrainerSchedule:
    name = "constant_with_warmup" if emitted.on("WARMED_UP") else "constant"
    if emitted.on("FALLS"):
        name = "cosine" if emitted.on("COSINE") else "linear"
    emitted.notes.take("build_scheduler", "schedule.name", name)
    return TrainerSchedule.model_validate({"warmup_steps": 0, **found, "name": name})
