"""For sources without a scheduler."""

from __future__ import annotations

from torch.optim import Optimizer


def build_scheduler(optimizer: Optimizer) -> None:
    """The config has no scheduler: the lr stays as the optimizer has it, or your script changes it."""
