"""Muon, with AdamW for what is no hidden matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

DECOUPLED = True

MUON_LR = 0.02
ADAM_LR = 3e-4
MOMENTUM = 0.95
BETAS = (0.9, 0.95)
EPS = 1e-10
WEIGHT_DECAY = 0.0


class MuonAndAdam(torch.optim.Optimizer):
    """Two optimizers of torch that share the parameter groups and the state of this one."""

    def __init__(self, muon: torch.optim.Optimizer, adam: torch.optim.Optimizer) -> None:
        super().__init__([*muon.param_groups, *adam.param_groups], {})
        self.halves = (muon, adam)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step of both; a closure is not called."""
        for half, group in zip(self.halves, self.param_groups, strict=True):
            half.param_groups, half.state = [group], self.state
            half.step()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Muon over the matrices inside the model, Adam over embeddings, the head and all that is no matrix."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, param in model.named_parameters():
        hidden = param.ndim >= 2 and "embed" not in name.lower() and "lm_head" not in name.lower()
        if param.requires_grad:
            (matrices if hidden else others).append(param)
    muon = torch.optim.Muon(matrices, lr=MUON_LR, weight_decay=WEIGHT_DECAY, momentum=MOMENTUM)
    if DECOUPLED:
        return MuonAndAdam(
            muon, torch.optim.AdamW(others, lr=ADAM_LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
        )
    else:
        return MuonAndAdam(
            muon, torch.optim.Adam(others, lr=ADAM_LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
        )
