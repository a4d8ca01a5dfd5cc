"""The schedulers of torch."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer, lr_scheduler

SCHEDULE: dict[str, Any] = {"step_size": 30}


def build_scheduler(optimizer: Optimizer) -> lr_scheduler.LRScheduler:
    """The scheduler that the config names, stepped once per applied optimizer step."""
    return lr_scheduler.StepLR(optimizer, **SCHEDULE)
