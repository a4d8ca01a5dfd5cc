"""What the writers of a DeepSpeed config share: its keys, and what became of each field of the Plan."""

from __future__ import annotations

import json
from typing import Any

from dsconf.config.tables import spec_at
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.outcome import Landing, Outcome
from dsconf.plan import Plan, Unresolved

FILLED = 'transformers\' Trainer and Accelerate put their value there; DeepSpeed itself refuses "auto"'


class Draft:
    """A config in the making."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.config: dict[str, Any] = {}
        self.landings: dict[str, Landing] = {}

    def put(self, path: str, value: object) -> None:
        """Write a key by its dotted path."""
        *sections, name = path.split(".")
        section = self.config
        for each in sections:
            section = section.setdefault(each, {})
        section[name] = list(value) if isinstance(value, tuple) else value

    def set(self, path: str, field: str, value: object, note: str = "", outcome: Outcome = "exact") -> None:
        """Write a key, or "auto" where the value is open and somebody fills that in; the field lands."""
        if not isinstance(value, Unresolved):
            self.put(path, value)
            self.land(field, outcome, shown(path, value), note)
        elif is_filled(path):
            self.put(path, "auto")
            action = f"write a value for {path}, unless Trainer or Accelerate reads the file"
            self.land(field, "needs-value", path, "; ".join(filter(None, (note, FILLED))), action)
        else:
            self.land(field, "needs-value", path, note, f'write {path}: nobody fills in "auto" there')

    def land(
        self, field: str, outcome: Outcome, target: str = "", note: str = "", action: str | None = None
    ) -> None:
        """Say what became of a field."""
        self.landings[field] = Landing(outcome, target, note, action)

    @property
    def stage(self) -> int:
        """The ZeRO stage; 1 takes the place of stage 0 in 16 bits, which has faults that the Plan does not want."""
        sharding = self.plan.sharding
        if sharding.partition == "nothing" and self.narrow:
            wanted = self.plan.precision.steps_before and self.plan.precision.compute != "fp16"
            return 0 if wanted else 1
        if sharding.partition == "parameters" and sharding.reshard_after_forward is False:
            return 2
        return ("nothing", "optimizer", "gradients", "parameters").index(sharding.partition)

    @property
    def offloads_optimizer(self) -> bool:
        """Whether the optimizer's state rests in CPU memory."""
        return self.plan.offload.optimizer and self.stage > 0

    @property
    def narrow(self) -> bool:
        """Whether the model is cast to 16 bits, or may be."""
        return self.plan.precision.compute != "fp32"


def is_filled(path: str) -> bool:
    """Whether "auto" at `path` is replaced by somebody before DeepSpeed sees it."""
    return bool(spec_at(load_keys(), path)[1].get("filled_by"))


def shown(path: str, value: object) -> str:
    """A key and its value, as people write it."""
    return f"{path}: {json.dumps(value)}"
