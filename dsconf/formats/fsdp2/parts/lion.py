"""Lion as DeepSpeed's kernels compute it: torch has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

SIGN_BIT = False

LR = 1e-3
BETAS = (0.9, 0.999)
WEIGHT_DECAY = 0.0


class Lion(torch.optim.Optimizer):
    """The sign of an average of momentum and gradient, times lr, with decoupled weight decay."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step; a closure is not called."""
        for group in self.param_groups:
            lr, (beta1, beta2) = float(group["lr"]), group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state: dict[str, Any] = self.state[param]
                if not state:
                    state["exp_avg"] = torch.zeros_like(param)
                momentum = state["exp_avg"]
                update = momentum * beta1 + param.grad * (1 - beta1)
                param.mul_(1 - lr * group["weight_decay"])
                if SIGN_BIT:
                    # As DeepSpeed's CPU kernel: 0 counts by its sign bit, so that weights without gradient move, too.
                    param.sub_(torch.copysign(torch.full_like(update, lr), update))
                else:
                    # As DeepSpeed's GPU kernel: 0 counts as negative, so that weights without gradient move, too.
                    param.add_(torch.where(update > 0, -lr, lr))
                momentum.mul_(beta2).add_(param.grad, alpha=1 - beta2)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Lion over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return Lion(params, lr=LR, betas=BETAS, weight_decay=WEIGHT_DECAY)
