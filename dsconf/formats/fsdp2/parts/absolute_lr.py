"""A scheduler that says the lr itself: those of torch can only multiply it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


class AbsoluteLR(LRScheduler):
    """Sets the lr of every group to lr_at(applied steps, the group's first lr); LambdaLR can only multiply."""

    def __init__(self, optimizer: Optimizer, lr_at: Callable[[int, float], float]) -> None:
        self.lr_at = lr_at
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """The lr of every group."""
        return [self.lr_at(self.last_epoch, float(lr)) for lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Without functions, which build_scheduler gives again."""
        return {name: value for name, value in super().state_dict().items() if not callable(value)}
