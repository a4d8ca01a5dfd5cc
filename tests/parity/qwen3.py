"""A small Qwen3 of transformers, with norms over the heads that tensor parallelism divides, as a workload."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB = 68


def build_model() -> nn.Module:
    """Build the model from the current random state."""
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        head_dim=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    return Qwen3ForCausalLM(config)


def loss_fn(model: Any, batch: Tensor) -> Tensor:
    """Return the model's own loss."""
    loss: Tensor = model(input_ids=batch, labels=batch).loss
    return loss


def batches(step: int, rank: int, world: int, micro: int, accum: int) -> list[Tensor]:
    """Return this rank's micro batches of one optimizer step."""
    generator = torch.Generator().manual_seed(1000 + step)
    return list(torch.randint(0, VOCAB, (accum, world, micro, 12), generator=generator)[:, rank])
