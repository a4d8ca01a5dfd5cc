"""A small Mixtral of transformers, whose experts lie together in one parameter, as a workload."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import MixtralConfig, MixtralForCausalLM

VOCAB = 67


def build_model() -> nn.Module:
    """Build the model from the current random state."""
    config = MixtralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=12,
        num_experts_per_tok=1,
        max_position_embeddings=32,
    )
    return MixtralForCausalLM(config)


def loss_fn(model: Any, batch: Tensor) -> Tensor:
    """Return the model's own loss."""
    loss: Tensor = model(input_ids=batch, labels=batch).loss
    return loss


def batches(step: int, rank: int, world: int, micro: int, accum: int) -> list[Tensor]:
    """Return this rank's micro batches of one optimizer step; too short for each of them to use every expert."""
    generator = torch.Generator().manual_seed(1000 + step)
    return list(torch.randint(0, VOCAB, (accum, world, micro, 5), generator=generator)[:, rank])
