"""DeepSpeed's warm-up schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

DECAYS = True
LINEAR = False
OWN_MAX_LR = True

WARMUP_MIN_LR = 0.0
WARMUP_MAX_LR = 1e-3
WARMUP_STEPS = 1000
TOTAL_STEPS = 10000


class AbsoluteLR(LRScheduler):
    """Sets the lr of every group to lr_at(applied steps, the group's first lr); LambdaLR can only multiply."""

    def __init__(self, optimizer: Optimizer, lr_at: Callable[[int, float], float]) -> None:
        self.lr_at = lr_at
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """The lr of every group."""
        return [self.lr_at(self.last_epoch, float(lr)) for lr in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Without the function, which the script builds again."""
        return {name: value for name, value in super().state_dict().items() if name != "lr_at"}


def build_scheduler(optimizer: Optimizer) -> LRScheduler:
    """Warm-up as DeepSpeed counts it: the first two steps both run at the minimum, then the curve begins."""
    warmup = max(2, WARMUP_STEPS)

    def factor(step: int) -> float:
        if step < 0:
            return 0.0
        if step < warmup:
            if LINEAR:
                return step / warmup
            else:
                return 1.0 / math.log(warmup) * math.log(step + 1)
        if DECAYS:
            return max(0.0, (TOTAL_STEPS - step) / max(1.0, TOTAL_STEPS - warmup))
        else:
            return 1.0

    def lr_at(applied: int, first_lr: float) -> float:
        if OWN_MAX_LR:
            return WARMUP_MIN_LR + (WARMUP_MAX_LR - WARMUP_MIN_LR) * factor(applied - 1)
        else:
            return WARMUP_MIN_LR + (first_lr - WARMUP_MIN_LR) * factor(applied - 1)

    return AbsoluteLR(optimizer, lr_at)
