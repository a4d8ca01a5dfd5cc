"""The schedule of the Plan."""

from __future__ import annotations

from typing import Any

from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.arguments import SCHEDULER_ARGUMENTS, TORCH_SCHEDULERS
from dsconf.formats.deepspeed.notes import Notes
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default
from dsconf.plan import (
    OPTIMIZERS,
    Momentum,
    OneCycle,
    Optimizer,
    RangeTest,
    Schedule,
    TorchSchedule,
    Unresolved,
    Warmup,
    WarmupCosine,
)

_PREFIX = "scheduler.params."
_FIELDS = {
    "warmup_min_lr": "min_lr",
    "warmup_max_lr": "max_lr",
    "warmup_num_steps": "warmup_steps",
    "warmup_type": "warmup",
    "total_num_steps": "total_steps",
    "warmup_min_ratio": "min_ratio",
    "cos_min_ratio": "final_ratio",
    "cycle_min_lr": "min_lr",
    "cycle_max_lr": "max_lr",
    "cycle_first_step_size": "first_steps",
    "cycle_second_step_size": "second_steps",
    "cycle_first_stair_count": "first_stairs",
    "cycle_second_stair_count": "second_stairs",
    "decay_step_size": "decay_steps",
    "decay_lr_rate": "decay",
    "cycle_momentum": "momentum",
    "cycle_min_mom": "momentum.low",
    "cycle_max_mom": "momentum.high",
    "decay_mom_rate": "momentum.decay",
    "lr_range_test_min_lr": "min_lr",
    "lr_range_test_step_size": "interval",
    "lr_range_test_step_rate": "rate",
    "lr_range_test_staircase": "staircase",
}
"""The field of the schedule that each argument goes to."""

_NEED_CODE = {
    "ReduceLROnPlateau": "it is stepped with a metric, which the config does not name",
    "LambdaLR": "it takes a function, which JSON can't hold",
    "MultiplicativeLR": "it takes a function, which JSON can't hold",
    "SequentialLR": "it takes other schedulers, which JSON can't hold",
    "ChainedScheduler": "it takes other schedulers, which JSON can't hold",
}
_YOURS = "build it in your script"


def has_betas(optimizer: Optimizer) -> bool:
    """Whether OneCycle finds betas that it can move: those of Muon's Adam are none of the whole optimizer's."""
    return "betas" in OPTIMIZERS[optimizer.name] and optimizer.name != "Muon"


def read_schedule(notes: Notes, optimizer: Optimizer | None) -> Schedule | None:
    """The schedule with the values in force; None where there is none, or none that is translated."""
    name = notes.config.value("scheduler.type")
    if name is UNKNOWN or name is None:
        return None
    if name in _NEED_CODE:
        notes.unsupported("scheduler.type", _NEED_CODE[name], _YOURS)
        return None
    if name in TORCH_SCHEDULERS:
        return _torch(notes, name)
    if name not in SCHEDULER_ARGUMENTS:
        notes.unsupported("scheduler.type", f"{name} is not translated")
        return None
    return _Schedule(notes, name, optimizer).read()


def _torch(notes: Notes, name: str) -> TorchSchedule:
    arguments = {}
    for argument in " ".join(TORCH_SCHEDULERS[name]).split():
        path = f"{_PREFIX}{argument}"
        if notes.config.present(path):
            notes.fields[path] = f"schedule.{argument}"
            arguments[argument] = notes.value(path)
    return TorchSchedule(name=name, arguments=arguments)


class _Schedule:
    def __init__(self, notes: Notes, name: str, optimizer: Optimizer | None) -> None:
        self.notes = notes
        self.name = name
        self.optimizer = optimizer
        self.taken = " ".join(SCHEDULER_ARGUMENTS[name]).split()
        self.lists: list[str] = []

    def read(self) -> Schedule | None:
        for argument in self.taken:
            if argument in _FIELDS:
                self.notes.fields[_PREFIX + argument] = f"schedule.{_FIELDS[argument]}"
        read = {
            "WarmupLR": self._warmup,
            "WarmupDecayLR": self._warmup,
            "WarmupCosineLR": self._cosine,
            "OneCycle": self._one_cycle,
            "LRRangeTest": self._range_test,
        }
        self._leave_out_foreign_total()
        schedule = read[self.name]()
        for path in self.lists:
            note = "the optimizer has one parameter group, and this has one value for each of several"
            action = "write one number, or build the scheduler in your script"
            self.notes.unsupported(path, note, action)
        return None if self.lists else schedule

    def _value(self, argument: str) -> Any:
        """The value; of a list with one value for the one parameter group, that."""
        path = _PREFIX + argument
        value = self.notes.value(path)
        if isinstance(value, list) and len(value) == 1:
            return value[0]
        if isinstance(value, list):
            self.lists.append(path)
            return Unresolved(key=path)
        return value

    def _steps(self, argument: str) -> Any:
        """A number of steps, which is whole where the emitted schedules count them."""
        value = self._value(argument)
        if not isinstance(value, float) or value.is_integer():
            return value
        path = _PREFIX + argument
        self.notes.unsupported(path, f"{value:g} is no number of steps", f"--set {path}=N")
        return Unresolved(key=path)

    def _shape(self) -> Any:
        # Any other text counts as "log".
        return "linear" if self.notes.config.raw(f"{_PREFIX}warmup_type") == "linear" else "log"

    def _warmup(self) -> Schedule:
        decays = self.name == "WarmupDecayLR"
        path = f"{_PREFIX}warmup_max_lr"
        peak = self._value("warmup_max_lr")
        if not self.notes.config.present(path) and (decays or peak is not None):
            peak = 0.001
            note = f"{self.name}'s default, whatever the lr of the optimizer"
            self.notes.in_force[path] = Default(peak, note)
        return Warmup.model_validate(
            {
                "name": self.name,
                "min_lr": self._value("warmup_min_lr"),
                "max_lr": peak,
                "warmup_steps": self._steps("warmup_num_steps"),
                "warmup": self._shape(),
                "total_steps": self._total_steps() if decays else None,
            }
        )

    def _cosine(self) -> Schedule:
        return WarmupCosine(
            min_ratio=self._value("warmup_min_ratio"),
            final_ratio=self._value("cos_min_ratio"),
            warmup_steps=self._steps("warmup_num_steps"),
            warmup=self._shape(),
            total_steps=self._total_steps(),
        )

    def _total_steps(self) -> Any:
        path = f"{_PREFIX}total_num_steps"
        value = self._steps("total_num_steps")
        if not self.notes.config.present(path):
            self.notes.in_force[path] = Default(None, f"missing: {self.name} can't be built without it")
        return Unresolved(key=path) if value is None else value

    def _leave_out_foreign_total(self) -> None:
        path = f"{_PREFIX}total_num_steps"
        if self.notes.config.present(path) and "total_num_steps" not in self.taken:
            note = f"{self.name} does not take it: deepspeed.initialize raises TypeError"
            raw = self.notes.config.raw(path)
            self.notes.items.append(Item(path, raw, "rejected-by-source", note=note, action="remove it"))

    def _one_cycle(self) -> Schedule:
        first, stairs = self._value("cycle_first_step_size"), self._value("cycle_first_stair_count")
        second, second_stairs = self._value("cycle_second_step_size"), self._value("cycle_second_stair_count")
        return OneCycle(
            min_lr=self._value("cycle_min_lr"),
            max_lr=self._value("cycle_max_lr"),
            first_steps=first,
            second_steps=first if second is None else second,
            first_stairs=stairs,
            second_stairs=stairs if second_stairs is None else second_stairs,
            decay_steps=self._steps("decay_step_size"),
            decay=self._value("decay_lr_rate"),
            momentum=self._momentum(),
        )

    def _momentum(self) -> Momentum | None:
        path = f"{_PREFIX}cycle_momentum"
        written = self.notes.config.present(path)
        if self.notes.value(path) is False:
            return None
        if self.optimizer is not None and not has_betas(self.optimizer):
            if written:
                note = f"{self.optimizer.name} has no betas: DeepSpeed leaves its momentum alone"
                self.notes.items.append(Item(path, self.notes.config.raw(path), "no-effect", note=note))
            return None
        if not written:
            note = "OneCycle's default: it overwrites the betas of the optimizer"
            self.notes.in_force[path] = Default(True, note)
        return Momentum(
            low=self._value("cycle_min_mom"),
            high=self._value("cycle_max_mom"),
            decay=self._value("decay_mom_rate"),
        )

    def _range_test(self) -> Schedule:
        return RangeTest(
            min_lr=self._value("lr_range_test_min_lr"),
            interval=self._value("lr_range_test_step_size"),
            rate=self._value("lr_range_test_step_rate"),
            staircase=self._value("lr_range_test_staircase"),
        )
