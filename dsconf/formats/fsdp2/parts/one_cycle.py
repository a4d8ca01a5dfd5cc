"""DeepSpeed's OneCycle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dsconf.formats.fsdp2.parts.absolute_lr import AbsoluteLR

STAIRS = False
LR_DECAYS = False
MOVES_MOMENTUM = True
MOMENTUM_DECAYS = False

MIN_LR = 1e-4
MAX_LR = 1e-3
FIRST_STEPS = 2000
SECOND_STEPS = 2000
FIRST_STAIRS = 0
SECOND_STAIRS = 0
DECAY_STEPS = 0
DECAY_RATE = 0.0
MIN_MOMENTUM = 0.8
MAX_MOMENTUM = 0.9
MOMENTUM_DECAY_RATE = 0.0


class CycledMomentum(AbsoluteLR):
    """Also sets the betas of every group, to momentum_at(applied steps) and 0.99."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_at: Callable[[int, float], float],
        momentum_at: Callable[[int], float],
    ) -> None:
        self.momentum_at = momentum_at
        super().__init__(optimizer, lr_at)

    def get_lr(self) -> list[Any]:
        """The lr of every group."""
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (self.momentum_at(self.last_epoch), 0.99)
        return super().get_lr()


def build_scheduler(optimizer: Optimizer) -> LRScheduler:
    """One triangle from MIN_LR to MAX_LR and back, as DeepSpeed computes it, then what is left of MIN_LR."""
    cycle = float(FIRST_STEPS + SECOND_STEPS)

    def height(applied: int) -> float:
        if STAIRS:
            step = applied % cycle
            rises = step <= FIRST_STEPS
            stairs = FIRST_STAIRS if rises else SECOND_STAIRS
            if stairs > 0:
                place = step * stairs / FIRST_STEPS if rises else (cycle - step) * stairs / SECOND_STEPS
                return math.floor(place) / stairs
        place, peak = (1.0 + applied / cycle) % 1.0, FIRST_STEPS / cycle
        return place / peak if place <= peak else (place - 1) / (peak - 1)

    def lr_at(applied: int, first_lr: float) -> float:
        if applied <= cycle:
            return MIN_LR + (MAX_LR - MIN_LR) * height(applied)
        if LR_DECAYS:
            return MIN_LR / (1 + DECAY_RATE * ((applied - cycle) / DECAY_STEPS))
        else:
            return MIN_LR

    if MOVES_MOMENTUM:

        def momentum_at(applied: int) -> float:
            if applied == 0:
                return MIN_MOMENTUM
            if applied <= cycle:
                return MAX_MOMENTUM - (MAX_MOMENTUM - MIN_MOMENTUM) * height(applied)
            if MOMENTUM_DECAYS:
                return MAX_MOMENTUM * (1 + MOMENTUM_DECAY_RATE * ((applied - cycle) / DECAY_STEPS))
            else:
                return MAX_MOMENTUM

        return CycledMomentum(optimizer, lr_at, momentum_at)
    else:
        return AbsoluteLR(optimizer, lr_at)
