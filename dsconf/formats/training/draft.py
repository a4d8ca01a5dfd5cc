"""What the writers of arguments share: the arguments, and what became of each field of the Plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsconf.document.yaml_style import flow
from dsconf.formats.outcome import Landing, Outcome
from dsconf.formats.training.defaults import DEFAULTS
from dsconf.plan import Plan, Unresolved, Warmup

_TELLING = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "optim", "lr_scheduler_type",
    "max_grad_norm",
)  # fmt: skip


class Setting(NamedTuple):
    """An argument that is written."""

    value: object
    field: str
    """The field of the Plan that it stands for."""


class Draft:
    """Arguments in the making."""

    def __init__(self, plan: Plan, labels: Mapping[str, str], names: Mapping[str, str] | None = None) -> None:
        """`labels` says by field where its value comes from.

        `names` are what the target calls arguments of Trainer, where that is something else.
        """
        self.plan = plan
        self.labels = labels
        self._names = names or {}
        self.settings: dict[str, Setting] = {}
        """By the name that the target has."""
        self.open: dict[str, str] = {}
        """By the name of an argument that is left to the user the key whose value the source leaves open."""
        self.landings: dict[str, Landing] = {}

    @property
    def said(self) -> set[str]:
        """The fields of which the source says something; without an optimizer, what has None was left to a script."""
        known = self.plan.optimizer is not None or self.plan.batch.micro is not None
        return {*self.labels, *(("clipping.max_norm",) if known else ())}

    @property
    def peak(self) -> Any:
        """The highest learning rate: that of the schedule where it has one of its own, else that of the optimizer."""
        schedule, optimizer = self.plan.schedule, self.plan.optimizer
        own = optimizer.arguments.get("lr") if optimizer is not None else None
        if isinstance(schedule, Warmup) and schedule.max_lr is not None:
            # Trainer itself puts the rate of the optimizer where that is open.
            return own if isinstance(schedule.max_lr, Unresolved) and own is not None else schedule.max_lr
        return own

    def name(self, argument: str) -> str:
        """What the target calls an argument of Trainer."""
        return self._names.get(argument, argument)

    def put(self, argument: str, value: object, field: str) -> str:
        """Write an argument, and return how it is written."""
        self.settings[self.name(argument)] = Setting(value, field)
        return f"{self.name(argument)}: {flow(value)}"

    @property
    def unsaid(self) -> list[str]:
        """What the target calls the arguments that change training, and of which the source says nothing."""
        names = [self.name(argument) for argument in _TELLING]
        return [name for name in names if name not in self.settings and name not in self.open]

    def set(
        self,
        argument: str,
        value: object,
        field: str,
        outcome: Outcome = "exact",
        note: str = "",
        action: str | None = None,
    ) -> None:
        """Write an argument that a field becomes; one without a value is left to the user."""
        if isinstance(value, Unresolved):
            self.leave_open(argument, value, field)
        else:
            self.landings[field] = Landing(outcome, self.put(argument, value, field), note, action)

    def leave_open(self, argument: str, value: Unresolved, field: str) -> None:
        """Write an argument as one that the user has to write."""
        name = self.name(argument)
        self.open[name] = value.key
        default = DEFAULTS.get(argument)
        note = "" if default is None else f"Trainer has {flow(default)} where nothing is written"
        action = f"write {name}, or translate with --set {value.key}=VALUE"
        self.landings[field] = Landing("needs-value", f"{name}: ...", note, action)
