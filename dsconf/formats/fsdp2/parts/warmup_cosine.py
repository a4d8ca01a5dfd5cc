"""DeepSpeed's WarmupCosineLR."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dsconf.formats.fsdp2.parts.absolute_lr import AbsoluteLR

LINEAR = False

WARMUP_MIN_RATIO = 0.0
COS_MIN_RATIO = 1e-4
WARMUP_STEPS = 1000
TOTAL_STEPS = 10000


def build_scheduler(optimizer: Optimizer) -> LRScheduler:
    """Parts of each group's lr: a warm-up, then half a cosine. As in DeepSpeed the very first step runs at lr 0."""
    warmup = max(2, WARMUP_STEPS)

    def ratio(step: int) -> float:
        if step < 0:
            return 0.0
        if step < warmup:
            if LINEAR:
                return WARMUP_MIN_RATIO + step / warmup * (1.0 - WARMUP_MIN_RATIO)
            else:
                grown = 1.0 / math.log(warmup) * math.log(step + 1)
                return WARMUP_MIN_RATIO + grown * (1.0 - WARMUP_MIN_RATIO)
        progress = min(1.0, (step - warmup + 1) / max(1, TOTAL_STEPS - warmup))
        return max(0.0, COS_MIN_RATIO + (1.0 - COS_MIN_RATIO) * ((1 + math.cos(math.pi * progress)) / 2))

    return AbsoluteLR(optimizer, lambda applied, first_lr: first_lr * ratio(applied - 1))
