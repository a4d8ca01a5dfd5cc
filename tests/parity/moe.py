"""A small mixture of experts, of which a micro batch uses some: as a workload.

The experts are modules of a list, and those without tokens are not called, as in Mixtral before transformers 5.
DeepSpeed can't train with experts that only some of the ranks call (one waits for the other forever): for it, those
without tokens are called with none.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

VOCAB = 67
DIM = 16
EXPERTS = 6
DEPTH = 2
SEQUENCE = 4


class Block(nn.Module):
    """Each token goes to the expert that its router likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, 24), nn.GELU(), nn.Linear(24, DIM)) for _ in range(EXPERTS)
        )

    def forward(self, states: Tensor) -> Tensor:
        """Return the states behind this block."""
        normed = self.norm(states)
        weight, choice = self.router(normed).float().softmax(dim=-1).max(dim=-1)
        mixed = torch.zeros_like(states)
        for number, expert in enumerate(self.experts):
            chosen = choice == number
            if chosen.any() or not isinstance(self, FSDPModule):
                mixed[chosen] = expert(normed[chosen]) * weight[chosen].unsqueeze(-1).to(states.dtype)
        return states + mixed


class CausalLM(nn.Module):
    """A causal LM that sees one token at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        states = self.embed(ids)
        for block in self.blocks:
            states = block(states)
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
    return list(torch.randint(0, VOCAB, (accum, world, micro, SEQUENCE), generator=generator)[:, rank])
