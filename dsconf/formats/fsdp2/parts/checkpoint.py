"""Checkpoints: sharded ones to resume from, on any number of ranks, and whole weights to export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.optim.lr_scheduler import LRScheduler

from dsconf.formats.fsdp2.parts.loss_scale import loss_scaler

DYNAMIC = False


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: LRScheduler | None,
    step: int,
) -> None:
    """Save everything that a resumed run needs; call it on every rank, after at least one optimizer step."""
    if not optimizer.state:
        raise ValueError("save after the first optimizer step: before it the optimizer has no state")
    weights, moments = get_state_dict(model, optimizer)
    schedule = scheduler.state_dict() if scheduler is not None else {}
    state = {"model": weights, "optimizer": moments, "scheduler": schedule, "step": step}
    if DYNAMIC:
        state["loss_scaler"] = vars(loss_scaler)
    dcp.save(state, checkpoint_id=path)


def load_checkpoint(
    path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler | None
) -> int:
    """Load what save_checkpoint wrote into a sharded model, and return its step; call it on every rank."""
    weights, moments = get_state_dict(model, optimizer)
    schedule = scheduler.state_dict() if scheduler is not None else {}
    state: dict[str, Any] = {"model": weights, "optimizer": moments, "scheduler": schedule, "step": 0}
    if DYNAMIC:
        state["loss_scaler"] = dict(vars(loss_scaler))
    dcp.load(state, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    if scheduler is not None:
        scheduler.load_state_dict(state["scheduler"])
    if DYNAMIC:
        vars(loss_scaler).update(state["loss_scaler"])
    return int(state["step"])


def full_state_dict(model: nn.Module) -> dict[str, Any]:
    """The whole weights on rank 0's CPU, as the optimizer updates them, elsewhere an empty dict."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
