"""The schedule of Trainer that the schedule of a Plan becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dsconf.formats.outcome import Landing, Outcome
from dsconf.formats.training import curves
from dsconf.formats.training.curves import Curve
from dsconf.formats.training.draft import Draft
from dsconf.plan import TrainerSchedule, Unresolved, Warmup, WarmupCosine

_SCRIPT = "build it in your script: a class of Trainer's own with create_scheduler() says it"
_FIRST = "DeepSpeed's first two steps both have the lowest rate"
_UNTIL = "the end of the schedule: training ends there, too"


def write_schedule(draft: Draft) -> None:
    """Settle the arguments and landings of the schedule; an optimizer without one has a constant rate."""
    schedule = draft.plan.schedule
    match schedule:
        case TrainerSchedule():
            _same(draft, schedule)
        case Warmup():
            _warmup(draft, schedule)
        case WarmupCosine():
            _cosine(draft, schedule)
        case None:
            if draft.plan.optimizer is not None:
                target = draft.put("lr_scheduler_type", "constant", "schedule.name")
                draft.landings["schedule.name"] = Landing("exact", target)
        case _:
            note = f"transformers has no {schedule.name}, and no argument says another class"
            draft.landings["schedule.name"] = Landing("unsupported", "", note, _SCRIPT)


def _same(draft: Draft, schedule: TrainerSchedule) -> None:
    draft.set("lr_scheduler_type", schedule.name, "schedule.name")
    if schedule.arguments:
        draft.set("lr_scheduler_kwargs", schedule.arguments, "schedule.arguments")
    if schedule.name != "constant":
        draft.set("warmup_steps", schedule.warmup_steps, "schedule.warmup_steps")
    if schedule.total_steps is not None:
        write_end(draft, schedule.total_steps)


class _Choice(NamedTuple):
    """A schedule of Trainer, and how far its curve is from the one that is wanted."""

    schedule: TrainerSchedule
    figure: float | None
    """None: values are open."""


def _warmup(draft: Draft, schedule: Warmup) -> None:
    peak = draft.peak
    low, lowest = schedule.min_lr, schedule.min_lr
    if isinstance(low, Unresolved):
        low = 0.0
        note = "Trainer puts 0 there"
        draft.landings["schedule.min_lr"] = Landing("exact", "", note)
    known = isinstance(peak, int | float) and peak > 0
    ratio = low / peak if known else None
    decays = schedule.name == "WarmupDecayLR"
    if ratio == 1.0:
        target = draft.put("lr_scheduler_type", "constant", "schedule.name")
        note = "its lowest rate is its highest rate"
        for field in ("name", "warmup", "min_lr", "max_lr", "warmup_steps", *(("total_steps",) * decays)):
            draft.landings[f"schedule.{field}"] = Landing("exact", target, note)
        return
    found = _nearest_warmup(schedule, peak if known else None, ratio or 0.0)
    log = schedule.warmup != "linear"
    notes = [
        "the warm-up is linear: no schedule of transformers has a logarithmic one" if log else "",
        _FIRST,
    ]
    _land(draft, found, notes)
    draft.landings["schedule.warmup"] = draft.landings["schedule.name"]._replace(target="a linear warm-up")
    if not isinstance(lowest, Unresolved):
        _land_min(draft, found.schedule, low, ratio, decays=decays)
    if schedule.max_lr is not None:
        target = f"{draft.name('learning_rate')} is the highest rate"
        draft.landings["schedule.max_lr"] = Landing("exact", target)
        if isinstance(peak, Unresolved):
            draft.leave_open("learning_rate", peak, "schedule.max_lr")
        elif draft.plan.optimizer is None:
            draft.put("learning_rate", peak, "schedule.max_lr")
    _steps(draft, found, schedule.warmup_steps, schedule.total_steps if decays else None)


def _nearest_warmup(schedule: Warmup, peak: float | None, ratio: float) -> _Choice:
    decays, total = schedule.name == "WarmupDecayLR", schedule.total_steps
    wanted = curves.warmup(schedule, peak or 1.0)
    open_ = isinstance(schedule.warmup_steps, Unresolved) or isinstance(total, Unresolved)
    found = None if open_ or peak is None else wanted

    def arguments(length: int) -> dict[str, Any]:
        if not decays:
            return {"num_decay_steps": 0, "min_lr_ratio": ratio}
        assert isinstance(total, int)
        decay = max(0, total - length)
        return {"num_decay_steps": decay, "min_lr_ratio": ratio, "decay_type": "linear"}

    if ratio > 0 and not (decays and open_):
        return _nearest("warmup_stable_decay", arguments, schedule, found)
    return _nearest("linear" if decays else "constant_with_warmup", lambda _: {}, schedule, found)


def _nearest(
    name: str,
    arguments: Callable[[int], dict[str, Any]],
    schedule: Warmup | WarmupCosine,
    wanted: Curve | None,
) -> _Choice:
    """The warm-up of the same length or one step longer, which ends where DeepSpeed's ends: what is nearer.

    `arguments` are those of the schedule, by the length of the warm-up.
    """
    steps, total = schedule.warmup_steps, schedule.total_steps
    if isinstance(steps, Unresolved) or wanted is None:
        return _Choice(
            TrainerSchedule(name=name, warmup_steps=steps, total_steps=total, arguments=arguments(0)), None
        )
    until = total if isinstance(total, int) else max(2, int(steps)) + 2
    found = []
    for length in (max(2, int(steps)), max(2, int(steps)) + 1):
        candidate = TrainerSchedule(
            name=name, warmup_steps=length, total_steps=total, arguments=arguments(length)
        )
        found.append(_Choice(candidate, curves.apart(wanted, curves.trainer(candidate), until)))
    return min(found, key=lambda choice: choice.figure or 0.0)


def _cosine(draft: Draft, schedule: WarmupCosine) -> None:
    final = schedule.final_ratio
    arguments = {"min_lr_rate": final} if isinstance(final, int | float) and final > 0 else {}
    name = "cosine_with_min_lr" if arguments else "cosine"
    values = (schedule.warmup_steps, schedule.total_steps, schedule.min_ratio, final)
    open_ = any(isinstance(value, Unresolved) for value in values)
    found = _nearest(name, lambda _: arguments, schedule, None if open_ else curves.cosine(schedule))
    log = schedule.warmup != "linear"
    notes = [
        "the warm-up is linear: no schedule of transformers has a logarithmic one" if log else "",
        _FIRST,
    ]
    _land(draft, found, notes)
    landing = draft.landings["schedule.name"]
    draft.landings["schedule.warmup"] = landing._replace(target="a linear warm-up")
    draft.landings["schedule.min_ratio"] = landing._replace(target="the warm-up begins with 0")
    if isinstance(final, Unresolved):
        draft.leave_open("lr_scheduler_kwargs", final, "schedule.final_ratio")
    else:
        target = (
            f"{draft.name('lr_scheduler_kwargs')}: {{min_lr_rate: {final}}}"
            if arguments
            else "it ends with 0"
        )
        draft.landings["schedule.final_ratio"] = Landing("exact", target)
    _steps(draft, found, schedule.warmup_steps, schedule.total_steps)


def _land(draft: Draft, found: _Choice, notes: list[str]) -> None:
    """Write the name of a schedule and its own arguments, with what it is worth."""
    schedule, figure = found
    outcome: Outcome = "exact" if figure is not None and figure < 1e-12 else "approximate"
    if outcome == "exact":
        notes = []
    elif figure is not None:
        notes = [*notes, f"the rate is off by {_percent(figure)} of its peak at most"]
    target = draft.put("lr_scheduler_type", schedule.name, "schedule.name")
    if schedule.arguments:
        draft.put("lr_scheduler_kwargs", schedule.arguments, "schedule.name")
    draft.landings["schedule.name"] = Landing(outcome, target, "; ".join(note for note in notes if note))


def _land_min(
    draft: Draft, schedule: TrainerSchedule, low: float, ratio: float | None, *, decays: bool
) -> None:
    """The rate that the warm-up begins with, and where it `decays` the one that it ends with."""
    field = "schedule.min_lr"
    begins = "the warm-up begins, and the decay ends," if decays else "the warm-up begins"
    if schedule.name == "warmup_stable_decay":
        draft.landings[field] = Landing("exact", f"min_lr_ratio: {ratio}", f"{begins} with it")
    elif low == 0:
        draft.landings[field] = Landing("exact", f"{begins} with 0")
    else:
        part = "" if ratio is None else f", which is {_percent(ratio)} of the peak"
        note = f"{begins} with 0, not with {low:g}{part}"
        draft.landings[field] = Landing("approximate", "", note)


def _steps(draft: Draft, found: _Choice, warmup: Any, total: Any) -> None:
    """The lengths."""
    written, field = found.schedule.warmup_steps, "schedule.warmup_steps"
    if isinstance(warmup, Unresolved):
        draft.leave_open("warmup_steps", warmup, field)
    else:
        longer = written != warmup
        note = "the warm-up ends at the same step" if longer else ""
        draft.set("warmup_steps", written, field, note=note)
    if total is not None:
        write_end(draft, total, _UNTIL)


def write_end(draft: Draft, total: int | float | Unresolved, note: str = "") -> None:
    """Settle where the schedule ends, which is where training ends; where that is open, the length may say it."""
    field = "schedule.total_steps"
    end = _end(draft)
    if isinstance(total, Unresolved) and end is not None and not isinstance(end.value, Unresolved):
        target = draft.put(end.argument, end.value, end.field if end.field in draft.labels else field)
        draft.landings[field] = Landing("exact", target)
    else:
        draft.set("max_steps", total, field, note="" if isinstance(total, Unresolved) else note)


def write_length(draft: Draft) -> None:
    """Settle when training ends, where the schedule has not said it."""
    draft.landings |= dict.fromkeys(("length.steps", "length.epochs"), Landing("exact"))
    end = _end(draft)
    if end is None:
        return
    written = {draft.name(name) for name in ("max_steps", "num_train_epochs")}
    if written & (draft.settings.keys() | draft.open.keys()):
        draft.landings[end.field] = draft.landings["schedule.total_steps"]
    else:
        draft.set(*end)


class _End(NamedTuple):
    """The argument for the length of the Plan."""

    argument: str
    value: int | float | Unresolved
    field: str


def _end(draft: Draft) -> _End | None:
    length = draft.plan.length
    if length.steps is not None:
        return _End("max_steps", length.steps, "length.steps")
    return None if length.epochs is None else _End("num_train_epochs", length.epochs, "length.epochs")


def _percent(part: float) -> str:
    return f"{100 * part:.2g}%"
