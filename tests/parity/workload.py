"""The model and the data that both sides of a parity run train on.

A job may name another file of the same shape: `build_model`, `loss_fn` and `batches`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 67  # odd, so that two ranks hold shards of different sizes
DIM = 32
HIDDEN = 97
HEADS = 4
DEPTH = 2
SEQUENCE = 12


def rotate(states: Tensor, table: Tensor) -> Tensor:
    """Rotate pairs of channels by the fp32 angles of `table`, and return to the dtype of `states`."""
    first, second = states.chunk(2, dim=-1)
    cos, sin = table.cos(), table.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(states.dtype)


class Block(nn.Module):
    """Pre-norm attention and MLP.

    The key projection has no bias: its gradient would be zero but for rounding, and Adam turns the
    sign of such noise into full steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(DIM)
        self.query = nn.Linear(DIM, DIM)
        self.key = nn.Linear(DIM, DIM, bias=False)
        self.value = nn.Linear(DIM, DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.mlp_norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        """Return the states behind this block."""
        batch, length, _ = states.shape
        normed = self.attention_norm(states)
        query, key, value = (
            layer(normed).view(batch, length, HEADS, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        query, key = rotate(query, table), rotate(key, table)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.proj(mixed.transpose(1, 2).reshape(batch, length, DIM))
        hidden: Tensor = self.down(F.gelu(self.up(self.mlp_norm(states))))
        return states + hidden


class CausalLM(nn.Module):
    """A causal LM whose blocks take a float buffer as an argument, as rotary models do."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        half = DIM // HEADS // 2
        angles = torch.outer(torch.arange(SEQUENCE).float(), 10.0 ** -torch.arange(half).float())
        self.register_buffer("table", angles, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        states = self.embed(ids)
        for block in self.blocks:
            states = block(states, self.table[: ids.shape[1]])
        logits: Tensor = self.head(self.norm(states))
        return logits


def build_model() -> nn.Module:
    """Build the model from the current random state."""
    return CausalLM()


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the next-token loss."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


def batches(step: int, rank: int, world: int, micro: int, accum: int) -> list[Tensor]:
    """Return this rank's micro batches of one optimizer step."""
    generator = torch.Generator().manual_seed(1000 + step)
    ids = torch.randint(0, VOCAB, (accum, world, micro, SEQUENCE), generator=generator)
    return list(ids[:, rank])
