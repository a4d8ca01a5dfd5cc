"""FSDP2 training as one would write it by hand: the other side of `step_time`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

LossFn = Callable[[nn.Module, Any], Tensor]


def parallelize(model: nn.Module, blocks: Sequence[nn.Module], *, reshard: bool, dtype: torch.dtype) -> None:
    """Shard each block, then the rest; in bf16 gradients are reduced in fp32, as PyTorch recommends."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in (*blocks, model):
        fully_shard(module, mp_policy=policy, reshard_after_forward=reshard)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: Sequence[Any], loss_fn: LossFn
) -> float:
    """One optimizer step; returns the mean loss."""
    total = 0.0
    for batch in micro_batches:
        loss = loss_fn(model, batch) / len(micro_batches)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total
