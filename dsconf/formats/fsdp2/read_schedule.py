"""The learning rate schedule that a file builds."""

from __future__ import annotations

from math import isfinite
from typing import Any

from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_scopes import Event
from dsconf.formats.fsdp2.read_values import UNKNOWN, Attr, Made, Ref, Seq, Value, called, plain
from dsconf.plan import Schedule, TorchSchedule, TrainerSchedule, Unresolved

ARGUMENTS = {
    "StepLR": "step_size gamma",
    "MultiStepLR": "milestones gamma",
    "ConstantLR": "factor total_iters",
    "LinearLR": "start_factor end_factor total_iters",
    "ExponentialLR": "gamma",
    "PolynomialLR": "total_iters power",
    "CosineAnnealingLR": "T_max eta_min",
    "CosineAnnealingWarmRestarts": "T_0 T_mult eta_min",
    "CyclicLR": "base_lr max_lr step_size_up step_size_down mode gamma scale_fn scale_mode cycle_momentum "
    "base_momentum max_momentum",
    "OneCycleLR": "max_lr total_steps epochs steps_per_epoch pct_start anneal_strategy cycle_momentum base_momentum "
    "max_momentum div_factor final_div_factor three_phase",
}
"""The arguments of the schedulers of torch after the optimizer, in order."""
CODE = {
    "LambdaLR": "its curve is a function",
    "MultiplicativeLR": "its curve is a function",
    "ReduceLROnPlateau": "it follows a metric",
    "SequentialLR": "it joins other schedulers",
    "ChainedScheduler": "it joins other schedulers",
}
"""What no config can hold, and why."""
_BY_FUNCTION = {
    "get_constant_schedule": ("constant", ""),
    "get_constant_schedule_with_warmup": ("constant_with_warmup", "num_warmup_steps"),
    "get_linear_schedule_with_warmup": ("linear", "num_warmup_steps num_training_steps"),
    "get_cosine_schedule_with_warmup": ("cosine", "num_warmup_steps num_training_steps num_cycles"),
    "get_cosine_with_hard_restarts_schedule_with_warmup": (
        "cosine_with_restarts",
        "num_warmup_steps num_training_steps num_cycles",
    ),
    "get_polynomial_decay_schedule_with_warmup": (
        "polynomial",
        "num_warmup_steps num_training_steps lr_end power",
    ),
    "get_inverse_sqrt_schedule": ("inverse_sqrt", "num_warmup_steps timescale"),
}
"""The functions of transformers, by name: what get_scheduler calls them, and their arguments after the optimizer."""
_KEEP = "keep it in your script"


def read_schedule(notes: Notes, steps: list[Event]) -> Schedule | None:
    """The schedule; None where there is none, or none that a config can hold. `steps` are the optimizer's."""
    found = [event for event in notes.run.events if _kind(event.made)]
    inner = {id(part) for event in found for part in _parts(event.made)}
    outer = [event for event in found if id(event.made) not in inner]
    if not outer:
        return None
    first = outer[0].made
    if len(outer) > 1:
        places = ", ".join(f"{called(each.made)} at {notes.place(each.made.node)}" for each in outer)
        note = f"several schedulers are built: {places}"
        notes.say("lr_scheduler", notes.text(first), "needs-value", note, action="leave one of them")
        return None
    _stepping(notes, first, steps)
    name = called(first)
    if name in CODE:
        notes.say(name, first, "needs-value", CODE[name], node=first.node, action=_KEEP)
        return None
    notes.conditional(name, outer[0], "it is built", steps)
    if first.open is not None:
        note = f"more arguments, `{notes.text(first.open)}`, are known in a run only, and left out"
        notes.say(f"{name} (arguments)", first.open, "needs-value", note, node=first.node)
    if name == "get_scheduler":
        return _by_name(notes, first)
    if name in _BY_FUNCTION:
        kind, arguments = _BY_FUNCTION[name]
        notes.take(name, "schedule.name", kind)
        return _of_trainer(notes, first, name, kind, arguments.split(), 1)
    if name not in ARGUMENTS:
        notes.say(name, first, "unsupported", "it is not translated", node=first.node, action=_KEEP)
        return None
    return _of_torch(notes, first, name)


def _kind(made: Made) -> bool:
    """Whether a call builds a scheduler."""
    if not isinstance(made.function, Ref):
        return False
    full = made.function.name
    if full.startswith("torch.optim.lr_scheduler."):
        return True
    return full.split(".")[0] in ("transformers", "diffusers") and (
        called(made) == "get_scheduler" or called(made) in _BY_FUNCTION
    )


def _parts(made: Made) -> list[Value]:
    found: list[Value] = []
    for value in (*made.args, *made.keywords.values()):
        found += value.items if isinstance(value, Seq) else [value]
    return found


def _of_torch(notes: Notes, made: Made, name: str) -> Schedule:
    notes.take(name, "schedule.name", f"torch.optim.lr_scheduler.{name}")
    arguments: dict[str, Any] = {}
    for place, argument in enumerate(ARGUMENTS[name].split()):
        value = made.argument(argument, place + 1)
        if value is None:
            continue
        key, field, constant = f"{name}.{argument}", f"schedule.{argument}", plain(value)
        if constant is UNKNOWN:
            arguments[argument] = notes.open(key, field, value, made.node)
        else:
            notes.take(key, field, value)
            arguments[argument] = list(constant) if isinstance(constant, tuple) else constant
    return TorchSchedule(name=name, arguments=arguments)


def _by_name(notes: Notes, made: Made) -> Schedule | None:
    kind = made.argument("name", 0)
    name = plain(kind)
    if isinstance(kind, Ref) and ".SchedulerType." in kind.name:
        name = kind.name.rpartition(".")[2].lower()
    if not isinstance(name, str):
        note = f"get_scheduler({notes.text(kind)}): which one is known in a run only"
        notes.say("get_scheduler", made, "needs-value", note, node=made.node)
        return None
    notes.take("get_scheduler", "schedule.name", name)
    of_diffusers = isinstance(made.function, Ref) and made.function.name.startswith("diffusers.")
    first = 3 if of_diffusers else 2  # its step_rules stand before them
    arguments = ["num_warmup_steps", "num_training_steps"]
    return _of_trainer(notes, made, "get_scheduler", name, arguments, first)


def _of_trainer(
    notes: Notes, made: Made, function: str, name: str, arguments: list[str], first: int
) -> Schedule:
    fields = {"num_warmup_steps": "warmup_steps", "num_training_steps": "total_steps"}
    found: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for place, argument in enumerate(arguments):
        value = made.argument(argument, place + first)
        if value is None or plain(value) is None:
            continue
        key = f"{function}.{argument}"
        field = fields.get(argument, argument)
        constant: Any = notes.number(key, f"schedule.{field}", value, made.node)
        if not isinstance(constant, Unresolved):
            constant = int(constant) if argument in fields and isfinite(constant) else constant
        (found if argument in fields else more)[field] = constant
    given = made.argument("scheduler_specific_kwargs")
    special = plain(given)
    if isinstance(special, dict):
        for argument, constant in special.items():
            notes.take(f"{function}.{argument}", f"schedule.{argument}", constant)
            more[str(argument)] = constant
    elif given is not None and special is not None:
        note = f"`{notes.text(given)}` is known in a run only, and left out"
        notes.say(f"{function}.scheduler_specific_kwargs", given, "needs-value", note, node=made.node)
    return TrainerSchedule(
        name=name,
        warmup_steps=found.get("warmup_steps", 0),
        total_steps=found.get("total_steps"),
        arguments=more,
    )


def _stepping(notes: Notes, made: Made, steps: list[Event]) -> None:
    """Say where a schedule does not move once per optimizer step."""
    calls = [
        event
        for event in notes.methods("step")
        if isinstance(event.made.function, Attr) and event.made.function.base is made
    ]
    if calls and steps and len(calls[0].loops) < len(steps[0].loops):
        note = (
            "it moves once per epoch, where the target moves it with each optimizer step: count its steps so"
        )
        notes.say("lr_scheduler.step", True, "approximate", note, node=calls[0].made.node)
