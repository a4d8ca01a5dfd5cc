"""The optimizer."""

from __future__ import annotations

import torch
from torch import nn

LR = 1e-3
BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.0


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.AdamW(params, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
