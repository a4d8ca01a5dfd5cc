"""The course of the learning rate that Trainer follows: a function of transformers' get_scheduler."""

from __future__ import annotations

import math

from dsconf.document.node import UNKNOWN
from dsconf.formats.reading import Remark
from dsconf.formats.training.arguments import Given
from dsconf.plan import Length, TrainerSchedule, Unresolved

WITHOUT_END = ("constant", "constant_with_warmup", "inverse_sqrt")
"""Schedules that don't depend on the number of steps."""
WITH_END = (
    "linear", "cosine", "cosine_with_restarts", "polynomial", "cosine_with_min_lr", "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
)  # fmt: skip
"""Those that do."""
_BY_METRIC = ("reduce_lr_on_plateau", "greedy")


def read_schedule(given: Given) -> TrainerSchedule | None:
    """The schedule with its arguments; None where it depends on more than the number of steps."""
    name = given.text("lr_scheduler_type")
    if isinstance(name, Unresolved) or name not in (*WITHOUT_END, *WITH_END):
        _leave(given, name)
        return None
    given.place("lr_scheduler_type", "schedule.name", in_force=True)
    arguments = given.raw("lr_scheduler_kwargs") or {}
    if not isinstance(arguments, dict):
        given.unsupported("lr_scheduler_kwargs", "it is left open, or no mapping", "write it in the file")
        arguments = {}
    if arguments:
        given.place("lr_scheduler_kwargs", "schedule.arguments")
    elif given.has("lr_scheduler_kwargs") and isinstance(given.raw("lr_scheduler_kwargs"), dict):
        given.idle("nothing stands in it", "lr_scheduler_kwargs")
    total = _total(given, name)
    return TrainerSchedule(
        name=name, warmup_steps=_warmup(given, name, total), total_steps=total, arguments=arguments
    )


def _leave(given: Given, name: str | Unresolved) -> None:
    if isinstance(name, Unresolved):
        given.unsupported("lr_scheduler_type", "the schedule is left open", f"--set {name.key}=linear")
    elif name in _BY_METRIC:
        note = "it goes by what an evaluation finds, which is the script's"
        given.unsupported("lr_scheduler_type", note, "step such a scheduler in your script")
    else:
        given.unsupported("lr_scheduler_type", f"transformers has no schedule {name}")
    note = "it belongs to the schedule, which is not translated"
    given.idle(note, "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio")


def read_length(given: Given, schedule: TrainerSchedule | None) -> Length:
    """When training ends, which is where a `schedule` ends that has an end."""
    steps = given.whole("max_steps")
    ends = schedule is not None and schedule.total_steps is not None
    if isinstance(steps, int) and steps <= 0:
        if not ends:
            given.place("num_train_epochs", "length.epochs")
        given.idle("num_train_epochs counts instead", "max_steps")
        return Length(epochs=given.number("num_train_epochs"))
    if not ends:
        given.place("max_steps", "length.steps")
    given.idle("max_steps counts instead", "num_train_epochs")
    return Length(steps=steps)


def _total(given: Given, name: str) -> int | Unresolved | None:
    """The step at which the schedule ends, which is that of the run; None where it goes on without an end."""
    if name in WITHOUT_END:
        return None
    steps = given.whole("max_steps")
    if isinstance(steps, int) and steps <= 0:
        given.place("num_train_epochs", "schedule.total_steps", in_force=True)
        given.remark("num_train_epochs", Remark("exact", "the schedule ends with the last epoch"))
        return Unresolved(key=given.key("max_steps"))
    given.place("max_steps", "schedule.total_steps")
    return steps


def _warmup(given: Given, name: str, total: int | Unresolved | None) -> int | float | Unresolved:
    if name == "constant":
        given.idle("constant has no warm-up", "warmup_steps", "warmup_ratio")
        return 0
    argument = "warmup_steps"
    if given.has("warmup_ratio") and not (given.has(argument) and given.raw(argument) not in (0, UNKNOWN)):
        argument = "warmup_ratio"
        note = "transformers 5.24 has no such argument: warmup_steps below 1 says the same"
        given.remark(argument, Remark("exact", note))
        given.idle("warmup_ratio counts instead", "warmup_steps")
    else:
        given.idle("warmup_steps counts instead", "warmup_ratio")
    given.place(argument, "schedule.warmup_steps")
    return steps_of(given.number(argument), total)


def steps_of(warmup: float | Unresolved, total: int | Unresolved | None) -> int | float | Unresolved:
    """Steps of warm-up as Trainer counts them: below 1 it is a part of all, which may be open."""
    if isinstance(warmup, Unresolved):
        return warmup
    if warmup >= 1 or warmup == 0:
        return int(warmup)
    return math.ceil(total * warmup) if isinstance(total, int) else warmup
