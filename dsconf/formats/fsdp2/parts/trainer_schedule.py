"""The schedules of transformers that most runs have."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

WARMED_UP = True
FALLS = True
COSINE = False

WARMUP_STEPS = 100
TOTAL_STEPS = 1000


def build_scheduler(optimizer: Optimizer) -> LRScheduler:
    """Parts of each group's lr, as get_scheduler of transformers has them."""

    def factor(step: int) -> float:
        if WARMED_UP:
            if step < WARMUP_STEPS:
                return step / max(1, WARMUP_STEPS)
        if FALLS:
            if COSINE:
                progress = (step - WARMUP_STEPS) / max(1, TOTAL_STEPS - WARMUP_STEPS)
                return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))
            else:
                return max(0.0, (TOTAL_STEPS - step) / max(1, TOTAL_STEPS - WARMUP_STEPS))
        else:
            return 1.0

    return LambdaLR(optimizer, factor)
