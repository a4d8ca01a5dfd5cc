"""Adam without bias correction: torch has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

DECOUPLED = True

LR = 1e-3
BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.0


class UncorrectedAdam(torch.optim.Optimizer):
    """Adam whose moments are taken as they are in the first steps, too: bias_correction false."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

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
                    state["exp_avg_sq"] = torch.zeros_like(param)
                grad = param.grad
                if DECOUPLED:
                    param.mul_(1 - lr * group["weight_decay"])
                else:
                    grad = grad + group["weight_decay"] * param
                first = state["exp_avg"].lerp_(grad, 1 - beta1)
                second = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                param.addcdiv_(first, second.sqrt().add_(group["eps"]), value=-lr)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam without bias correction over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return UncorrectedAdam(params, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)
