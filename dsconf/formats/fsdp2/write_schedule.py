"""The schedule of a module."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import Draft
from dsconf.formats.fsdp2.emit import Alias, Constant
from dsconf.formats.outcome import Landing
from dsconf.plan import (
    OneCycle,
    RangeTest,
    Schedule,
    TorchSchedule,
    TrainerSchedule,
    Unresolved,
    Warmup,
    WarmupCosine,
)

Functions = list[tuple[str, list[str]]]
_STEPPED = "stepped once per applied optimizer step"
_ABSOLUTE = ("absolute_lr", ["AbsoluteLR"])
_BUILD = ["build_scheduler"]

SCHEDULE_CONSTANTS = (
    "WARMUP_MIN_LR",
    "WARMUP_MAX_LR",
    "WARMUP_STEPS",
    "TOTAL_STEPS",
    "WARMUP_MIN_RATIO",
    "COS_MIN_RATIO",
    "MIN_LR",
    "MAX_LR",
    "FIRST_STEPS",
    "SECOND_STEPS",
    "FIRST_STAIRS",
    "SECOND_STAIRS",
    "DECAY_STEPS",
    "DECAY_RATE",
    "MIN_MOMENTUM",
    "MAX_MOMENTUM",
    "MOMENTUM_DECAY_RATE",
    "INTERVAL",
    "RATE",
)
"""What may become a parameter of build_scheduler."""


def write_schedule(draft: Draft, schedule: Schedule | None) -> Functions:
    """Settle the constants and landings of the schedule, and return the functions to take, by part."""
    if schedule is None:
        return [("no_scheduler", _BUILD)]
    draft.landings["schedule.name"] = Landing("exact", "build_scheduler()", _STEPPED)
    match schedule:
        case Warmup():
            return _warmup(draft, schedule)
        case WarmupCosine():
            return _cosine(draft, schedule)
        case OneCycle():
            return _one_cycle(draft, schedule)
        case RangeTest():
            return _range_test(draft, schedule)
        case TorchSchedule():
            return _torch(draft, schedule)
        case TrainerSchedule():
            return _of_trainer(draft, schedule)


def _of_trainer(draft: Draft, schedule: TrainerSchedule) -> Functions:
    kinds = ("constant", "constant_with_warmup", "linear", "cosine")
    steps, total = schedule.warmup_steps, schedule.total_steps
    note = ""
    if schedule.name not in kinds or schedule.arguments:
        note = f"{schedule.name} of transformers has a curve that is not written here"
    elif isinstance(steps, float) and 0 < steps < 1:
        note = f"a warm-up of {steps:g} of all steps, whose number is not known"
    if note:
        action = "build it in your script with transformers.get_scheduler, and give it to train_step"
        draft.landings["schedule.name"] = Landing("unsupported", "", note, action)
        return [("no_scheduler", _BUILD)]
    warms, falls = schedule.name != "constant", schedule.name in ("linear", "cosine")
    draft.flags.update(WARMED_UP=warms, FALLS=falls, COSINE=schedule.name == "cosine")
    draft.landings["schedule.name"] = Landing("exact", "build_scheduler()", _STEPPED)
    if warms:
        draft.set("WARMUP_STEPS", "schedule.warmup_steps", steps, "int", "over {} steps")
    else:
        draft.landings["schedule.warmup_steps"] = Landing("no-effect", "", "a constant lr has no warm-up")
    if falls:
        total = Unresolved(key="max_steps") if total is None else total
        draft.set("TOTAL_STEPS", "schedule.total_steps", total, "int", "to 0 at step {}")
    else:
        draft.landings["schedule.total_steps"] = Landing("no-effect", "", "the lr does not fall")
    return [("trainer_schedule", _BUILD)]


def _warmup(draft: Draft, schedule: Warmup) -> Functions:
    decays = schedule.name == "WarmupDecayLR"
    draft.flags.update(
        DECAYS=decays, LINEAR=schedule.warmup == "linear", OWN_MAX_LR=schedule.max_lr is not None
    )
    draft.landings["schedule.warmup"] = Landing("exact", f"{schedule.warmup} warm-up")
    draft.set("WARMUP_MIN_LR", "schedule.min_lr", schedule.min_lr, "float", "from {}")
    if schedule.max_lr is None:
        draft.landings["schedule.max_lr"] = Landing("exact", "the lr of each parameter group")
    else:
        draft.set("WARMUP_MAX_LR", "schedule.max_lr", schedule.max_lr, "float", "to {}")
    draft.set("WARMUP_STEPS", "schedule.warmup_steps", schedule.warmup_steps, "int", "over {} steps")
    if decays:
        draft.set("TOTAL_STEPS", "schedule.total_steps", schedule.total_steps, "int", "to 0 at step {}")
    return [_ABSOLUTE, ("warmup", _BUILD)]


def _cosine(draft: Draft, schedule: WarmupCosine) -> Functions:
    draft.flags["LINEAR"] = schedule.warmup == "linear"
    draft.landings["schedule.warmup"] = Landing("exact", f"{schedule.warmup} warm-up")
    draft.set("WARMUP_MIN_RATIO", "schedule.min_ratio", schedule.min_ratio, "float", "from {} of the lr")
    draft.set("WARMUP_STEPS", "schedule.warmup_steps", schedule.warmup_steps, "int", "over {} steps")
    draft.set("COS_MIN_RATIO", "schedule.final_ratio", schedule.final_ratio, "float", "to {} of the lr")
    draft.set("TOTAL_STEPS", "schedule.total_steps", schedule.total_steps, "int", "at step {}")
    return [_ABSOLUTE, ("warmup_cosine", _BUILD)]


def _one_cycle(draft: Draft, schedule: OneCycle) -> Functions:
    stairs = schedule.first_stairs != 0 or schedule.second_stairs != 0
    decays = schedule.decay_steps != 0
    lr_decays = decays and schedule.decay != 0
    draft.flags.update(STAIRS=stairs, LR_DECAYS=lr_decays)
    draft.set("MIN_LR", "schedule.min_lr", schedule.min_lr, "float", "from {}")
    draft.set("MAX_LR", "schedule.max_lr", schedule.max_lr, "float", "to {}")
    draft.set("FIRST_STEPS", "schedule.first_steps", schedule.first_steps, "float", "over {} steps")
    draft.set("SECOND_STEPS", "schedule.second_steps", schedule.second_steps, "float", "back over {} steps")
    if stairs:
        draft.set("FIRST_STAIRS", "schedule.first_stairs", schedule.first_stairs, "int", "in {} stairs")
        draft.set("SECOND_STAIRS", "schedule.second_stairs", schedule.second_stairs, "int", "in {} stairs")
    else:
        smooth = Landing("exact", "evenly, not in stairs")
        draft.landings.update({"schedule.first_stairs": smooth, "schedule.second_stairs": smooth})
    momentum = schedule.momentum
    momentum_decays = decays and momentum is not None and momentum.decay != 0
    draft.flags.update(MOVES_MOMENTUM=momentum is not None, MOMENTUM_DECAYS=momentum_decays)
    constant = Landing("no-effect", "", "without both a size and a rate of decay nothing decays")
    if lr_decays or momentum_decays:
        draft.set("DECAY_STEPS", "schedule.decay_steps", schedule.decay_steps, "int", "decay by {} steps")
    else:
        draft.landings["schedule.decay_steps"] = constant
    if lr_decays:
        draft.set("DECAY_RATE", "schedule.decay", schedule.decay, "float", "divided by 1 + {} x decays")
    else:
        draft.landings["schedule.decay"] = constant
    for field in ("momentum.low", "momentum.high", "momentum.decay"):
        draft.landings[f"schedule.{field}"] = Landing("no-effect", "", "the momentum does not move")
    if momentum is None:
        draft.landings["schedule.momentum"] = Landing("exact", "the betas stay as they are")
        return [_ABSOLUTE, ("one_cycle", _BUILD)]
    target, note = "betas[0] moves against the lr", "betas[1] is 0.99 then, whatever the optimizer has"
    draft.landings["schedule.momentum"] = Landing("exact", target, note)
    draft.set("MIN_MOMENTUM", "schedule.momentum.low", momentum.low, "float", "betas[0] down to {}")
    draft.set("MAX_MOMENTUM", "schedule.momentum.high", momentum.high, "float", "betas[0] from {}")
    if momentum_decays:
        draft.set(
            "MOMENTUM_DECAY_RATE", "schedule.momentum.decay", momentum.decay, "float", "times 1 + {} x decays"
        )
    else:
        draft.landings["schedule.momentum.decay"] = constant
    return [_ABSOLUTE, ("one_cycle", ["CycledMomentum", *_BUILD])]


def _range_test(draft: Draft, schedule: RangeTest) -> Functions:
    draft.flags["STAIRCASE"] = schedule.staircase is True
    shape = "in stairs" if schedule.staircase is True else "evenly"
    draft.landings["schedule.staircase"] = Landing("exact", shape)
    draft.set("MIN_LR", "schedule.min_lr", schedule.min_lr, "float", "from {}")
    draft.set("INTERVAL", "schedule.interval", schedule.interval, "int", "every {} steps")
    draft.set("RATE", "schedule.rate", schedule.rate, "float", "by {} of the first lr")
    return [_ABSOLUTE, ("range_test", _BUILD)]


def _torch(draft: Draft, schedule: TorchSchedule) -> Functions:
    target = f"torch.optim.lr_scheduler.{schedule.name}"
    draft.landings["schedule.name"] = Landing("exact", target, _STEPPED)
    for argument, value in schedule.arguments.items():
        field = f"schedule.{argument}"
        if isinstance(value, Unresolved):
            draft.landings[field] = Landing(
                "unsupported", "", "its value is open", f"--set {value.key}=VALUE"
            )
        else:
            draft.landings[field] = Landing("exact", f"{argument}={value!r}")
    known = {key: value for key, value in schedule.arguments.items() if not isinstance(value, Unresolved)}
    draft.constants["SCHEDULE"] = Constant(repr(known), "scheduler.params")
    draft.constants["StepLR"] = Alias(schedule.name)
    return [("torch_scheduler", _BUILD)]
