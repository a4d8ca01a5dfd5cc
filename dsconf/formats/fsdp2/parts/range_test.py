"""DeepSpeed's LRRangeTest."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dsconf.formats.fsdp2.parts.absolute_lr import AbsoluteLR

STAIRCASE = False

MIN_LR = 1e-3
INTERVAL = 2000
RATE = 1.0


def build_scheduler(optimizer: Optimizer) -> LRScheduler:
    """An lr that grows by RATE times the first one every INTERVAL steps, without end."""

    def lr_at(applied: int, first_lr: float) -> float:
        if STAIRCASE:
            return MIN_LR * (1 + RATE * math.floor(applied / INTERVAL))
        else:
            return MIN_LR * (1 + RATE * (applied / INTERVAL))

    return AbsoluteLR(optimizer, lr_at)
