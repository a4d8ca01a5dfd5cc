"""What the readers of a DeepSpeed Config share: values, and the places where they note what became of a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsconf.config.effective import Config, Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Remark
from dsconf.plan import Unresolved

NOT_FINITE = (
    "a step whose norm is not finite is left out, where DeepSpeed would take it and have NaN for its weights"
)

UNSCALED = "0.18.9"
"""Since then DeepSpeed does not scale the loss of fp16 at stage 0."""
NO_SCALE = (
    f"DeepSpeed does not scale the loss at stage 0 since {UNSCALED}, but divides the gradients by the scale: SGD "
    "trains at a fraction of its lr, AdamW hides most of it (loss within 0.05 over 8 steps of the test model)"
)
STEP_BEFORE = (
    "DeepSpeed's optimizer takes a step with zero gradients before the first one: weights decay once, and "
    "Adam's bias correction is a step ahead (loss within 0.25 over 8 steps of the test model)"
)
LOOKS_AT_NORM = "0.19.8"
"""The first version that leaves such a step out in every precision, if it has ZeRO."""

BF16_MASTERS = "bf16.bf16_master_weights_and_grads"


class Notes:
    """A Config, and what is said of its keys while it is read."""

    def __init__(self, config: Config, facts: Facts, fields: Mapping[str, str]) -> None:
        """`fields` are the fields of the Plan that keys go to."""
        self.config = config
        self.facts = facts
        self.fields = dict(fields)
        self.items: list[Item] = []
        self.remarks: dict[str, Remark] = {}
        self.in_force: dict[str, Default] = {}
        self.labels: dict[str, str] = {}

    def value(self, path: str) -> Any:
        """The effective value; Unresolved where it is left open ("auto", or missing without a default).

        Of a key that is not declared, such as an argument of a class of torch, it is what is written.
        """
        value = self.config.value(path) if self.config.knows(path) else self.config.raw(path)
        return Unresolved(key=path) if value is UNKNOWN or value == "auto" else value

    @property
    def autocasts(self) -> bool:
        """Whether torch.autocast is on in the forward pass."""
        path = "torch_autocast.enabled"
        return self.config.knows(path) and self.config.value(path) is True

    @property
    def bf16_masters(self) -> bool:
        """Whether the optimizer updates weights in bf16."""
        on = self.facts.value("precision") == "bf16" and self.config.value(BF16_MASTERS) is True
        # The optimizer that DeepSpeed takes for fp32 accumulation at stage 1 has fp32 masters in any case.
        return on and self.facts.value("bf16_optimizer") is not True

    def or_default(self, path: str, default: object) -> Any:
        """The value, or a default that changes training and depends on other keys."""
        if self.config.present(path) or default is UNKNOWN:
            return self.value(path)
        self.in_force[path] = Default(default, "DeepSpeed's default")
        return default

    def leave(self, *paths: str) -> None:
        """Keys that do not act beside the others: they go to no field."""
        for path in paths:
            self.fields.pop(path, None)

    def unsupported(self, path: str, note: str, action: str | None = None) -> None:
        """Say that the setting has no counterpart."""
        written = self.config.present(path)
        value = self.config.raw(path) if written else self.config.value(path)
        value = None if value is UNKNOWN else value
        self.items.append(Item(path, value, "unsupported", note=note, action=action, written=written))
