"""DeepSpeed's warm-up schedules."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dsconf.formats.fsdp2.parts.absolute_lr import AbsoluteLR

DECAYS = True
LINEAR = False
OWN_MAX_LR = True

WARMUP_MIN_LR = 0.0
WARMUP_MAX_LR = 1e-3
WARMUP_STEPS = 1000
TOTAL_STEPS = 10000


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
