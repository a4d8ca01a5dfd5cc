"""One optimizer step, and evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler

from dsconf.formats.fsdp2.parts.loss_scale import loss_scaler
from dsconf.formats.fsdp2.parts.tensor_parallel import gradient_norm

CLIPPED = True
COUNTED = False
REDUCED_LAST = False
SCALED = False
DYNAMIC = False
LEFT_GATHERED = False
TENSOR_PARALLEL = False
SKIPS = True

GRADIENT_ACCUMULATION_STEPS = 1
CLIP_NORM = 1.0
LOSS_SCALE = 1.0


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler | None,
    micro_batches: Iterable[Any],
    loss_fn: Callable[[nn.Module, Any], torch.Tensor],
) -> dict[str, Any]:
    """One optimizer step over this rank's micro batches; loss_fn(model, batch) is the mean loss of one.

    Returns the losses (one per micro batch), grad_norm (of the whole model, before clipping), lr (the one used), and
    skipped (the step was left out, because the norm was not finite).
    """
    lr = optimizer.param_groups[0]["lr"]
    losses: list[torch.Tensor] = []
    if COUNTED:
        micro_batches = list(micro_batches)
        count = len(micro_batches)
    if SCALED:
        if DYNAMIC:  # noqa: SIM108 (the emitter keeps one branch)
            scale = loss_scaler.scale
        else:
            scale = LOSS_SCALE
    for batch in micro_batches:
        if COUNTED:
            assert isinstance(model, FSDPModule)  # parallelize has sharded it
            is_last = len(losses) + 1 == count
            model.set_reshard_after_backward(is_last)
            if REDUCED_LAST:
                model.set_requires_gradient_sync(is_last)
        loss = loss_fn(model, batch)
        if SCALED:
            ((loss / GRADIENT_ACCUMULATION_STEPS).float() * scale).backward()
        else:
            (loss / GRADIENT_ACCUMULATION_STEPS).backward()
        losses.append(loss.detach())
    if SCALED:
        for param in model.parameters():
            if param.grad is not None:
                param.grad.mul_(1 / scale)
    if TENSOR_PARALLEL:
        norm = gradient_norm(model)
        if CLIPPED:
            torch.nn.utils.clip_grads_with_norm_(model.parameters(), CLIP_NORM, norm, foreach=False)
    else:
        if CLIPPED:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    grad_norm = (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()
    if SKIPS:  # noqa: SIM108 (the emitter keeps one branch)
        skipped = not math.isfinite(grad_norm)
    else:
        skipped = False
    if DYNAMIC:
        loss_scaler.update(skipped)
    if SKIPS:
        if not skipped:
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
    else:
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    optimizer.zero_grad()
    if SCALED:
        return {"losses": losses, "grad_norm": grad_norm, "lr": lr, "skipped": skipped, "loss_scale": scale}
    else:
        return {"losses": losses, "grad_norm": grad_norm, "lr": lr, "skipped": skipped}


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Any], loss_fn: Callable[[nn.Module, Any], torch.Tensor]
) -> list[torch.Tensor]:
    """The loss of each batch, without gradients; every rank has to see the same number of batches."""
    model.eval()
    losses = [loss_fn(model, batch) for batch in batches]
    if LEFT_GATHERED:
        for module in model.modules():  # without a backward pass the weights stay gathered, and grow stale
            if isinstance(module, FSDPModule):
                module.reshard()
    model.train()
    return losses
