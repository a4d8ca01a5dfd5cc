"""A model of floating-point inputs, as a workload: fp32 vectors, whatever dtype the model has."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIM = 23


class Regression(nn.Module):
    """Two blocks over vectors, which may come in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(2))

    def forward(self, inputs: list[Tensor]) -> Tensor:
        """Return one vector per input vector."""
        states, shift = inputs
        for block in self.blocks:
            states = F.gelu(block(states)) + shift
        return states


def build_model() -> nn.Module:
    """Build the model from the current random state."""
    return Regression()


def loss_fn(model: Any, batch: Tensor) -> Tensor:
    """Return the distance to the reversed input."""
    outputs: Tensor = model([batch, batch.mean(dim=0)])
    return F.mse_loss(outputs.float(), batch.flip(-1))


def batches(step: int, rank: int, world: int, micro: int, accum: int) -> list[Tensor]:
    """Return this rank's micro batches of one optimizer step."""
    generator = torch.Generator().manual_seed(1000 + step)
    return list(torch.randn(accum, world, micro, DIM, generator=generator)[:, rank])
