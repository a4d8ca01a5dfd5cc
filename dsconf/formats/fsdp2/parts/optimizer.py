"""The optimizers of torch; the writer calls the one that it takes `build_optimizer`."""

from __future__ import annotations

import torch
from torch import nn

LR = 1e-3
BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.0
AMSGRAD = False
DECOUPLED_WEIGHT_DECAY = False
MAXIMIZE = False
FUSED = False
RHO = 0.9
LR_DECAY = 0.0
INITIAL_ACCUMULATOR_VALUE = 0.0
LAMBD = 1e-4
ALPHA = 0.75
T0 = 1e6
MOMENTUM_DECAY = 4e-3
MOMENTUM = 0.0
CENTERED = False
DAMPENING = 0.0
NESTEROV = False
FOREACH = False


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.AdamW(
        params,
        lr=LR,
        betas=BETAS,
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        amsgrad=AMSGRAD,
        maximize=MAXIMIZE,
        fused=FUSED,
        foreach=FOREACH,
    )


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.Adam(
        params,
        lr=LR,
        betas=BETAS,
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        amsgrad=AMSGRAD,
        maximize=MAXIMIZE,
        fused=FUSED,
        decoupled_weight_decay=DECOUPLED_WEIGHT_DECAY,
        foreach=FOREACH,
    )


def adadelta(model: nn.Module) -> torch.optim.Optimizer:
    """Adadelta over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.Adadelta(
        params, lr=LR, rho=RHO, eps=EPS, weight_decay=WEIGHT_DECAY, maximize=MAXIMIZE, foreach=FOREACH
    )


def adagrad(model: nn.Module) -> torch.optim.Optimizer:
    """Adagrad over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.Adagrad(
        params,
        lr=LR,
        lr_decay=LR_DECAY,
        weight_decay=WEIGHT_DECAY,
        initial_accumulator_value=INITIAL_ACCUMULATOR_VALUE,
        eps=EPS,
        maximize=MAXIMIZE,
        fused=FUSED,
        foreach=FOREACH,
    )


def adamax(model: nn.Module) -> torch.optim.Optimizer:
    """Adamax over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.Adamax(
        params, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, maximize=MAXIMIZE, foreach=FOREACH
    )


def asgd(model: nn.Module) -> torch.optim.Optimizer:
    """ASGD over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.ASGD(
        params,
        lr=LR,
        lambd=LAMBD,
        alpha=ALPHA,
        t0=T0,
        weight_decay=WEIGHT_DECAY,
        maximize=MAXIMIZE,
        foreach=FOREACH,
    )


def nadam(model: nn.Module) -> torch.optim.Optimizer:
    """NAdam over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.NAdam(
        params,
        lr=LR,
        betas=BETAS,
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        momentum_decay=MOMENTUM_DECAY,
        decoupled_weight_decay=DECOUPLED_WEIGHT_DECAY,
        maximize=MAXIMIZE,
        foreach=FOREACH,
    )


def radam(model: nn.Module) -> torch.optim.Optimizer:
    """RAdam over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.RAdam(
        params,
        lr=LR,
        betas=BETAS,
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        decoupled_weight_decay=DECOUPLED_WEIGHT_DECAY,
        maximize=MAXIMIZE,
        foreach=FOREACH,
    )


def rmsprop(model: nn.Module) -> torch.optim.Optimizer:
    """RMSprop over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.RMSprop(
        params,
        lr=LR,
        alpha=ALPHA,
        eps=EPS,
        weight_decay=WEIGHT_DECAY,
        momentum=MOMENTUM,
        centered=CENTERED,
        maximize=MAXIMIZE,
        foreach=FOREACH,
    )


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """SGD over the trainable parameters of a model that parallelize has sharded."""
    params = [param for param in model.parameters() if param.requires_grad]
    return torch.optim.SGD(
        params,
        lr=LR,
        momentum=MOMENTUM,
        dampening=DAMPENING,
        weight_decay=WEIGHT_DECAY,
        nesterov=NESTEROV,
        maximize=MAXIMIZE,
        fused=FUSED,
        foreach=FOREACH,
    )
