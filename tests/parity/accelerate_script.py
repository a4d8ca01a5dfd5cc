"""A script as `accelerate launch` starts it: a small model, on CPUs and gloo.

All is Accelerate's own but what it finds out about the machine: that each process has a GPU of its own. What the
file leaves to the script comes as JSON in $JOB; rank 0 writes the losses of each step to the path in it.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

accelerate: Any = importlib.import_module("accelerate")
state: Any = importlib.import_module("accelerate.state")
WORDS, WIDTH, BLOCKS, LENGTH = 64, 32, 3, 9


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        inner: torch.Tensor = self.down(nn.functional.gelu(self.up(self.norm(states))))
        return states + inner


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states = self.embedding(words)
        for block in self.blocks:
            states = block(states)
        logits: torch.Tensor = self.head(states)
        return logits


def on_cpu() -> None:
    """Make Accelerate take each process for one with a device of its own, which is the CPU."""
    kind = state.DistributedType

    def prepare_backend(self: Any, *_: object) -> tuple[str | None, object]:
        alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
        return (None, kind.NO) if alone else ("gloo", kind.MULTI_GPU)

    def set_device(self: Any) -> None:
        self.device = torch.device("cpu")

    state.PartialState._prepare_backend = prepare_backend
    state.PartialState.set_device = set_device
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"  # DDP would name a GPU
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        # The operator for ranks that share memory takes a minute to compile, and gloo does without.
        backend: Any = importlib.import_module("deepspeed.comm.torch")
        backend.build_shm_op = lambda: None


def main(job: dict[str, Any]) -> None:
    on_cpu()
    steps = job["accumulation"]
    each = accelerate.utils.GradientAccumulationPlugin(num_steps=steps, sync_each_batch=job["each"])
    accelerator = accelerate.Accelerator(gradient_accumulation_plugin=each)
    torch.manual_seed(0)
    model = Model().to(getattr(torch, job["loaded"]))
    if job["dummy"]:
        optimizer: Any = accelerate.utils.DummyOptim(model.parameters())
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    random = torch.Generator().manual_seed(100 + accelerator.process_index)
    words = torch.randint(0, WORDS, (job["steps"] * steps * 2, LENGTH), generator=random)
    if "DEEPSPEED" in str(accelerator.distributed_type):
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(words), batch_size=2)
        model, optimizer, _ = accelerator.prepare(model, optimizer, loader)
    else:
        model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for start in range(0, len(words), 2):
        batch = words[start : start + 2]
        with accelerator.accumulate(model):
            logits = model(batch[:, :-1]).float()
            loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))
            accelerator.backward(loss)
            if accelerator.sync_gradients and job["clip"] is not None:
                accelerator.clip_grad_norm_(model.parameters(), job["clip"])
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    if accelerator.is_main_process:
        kind = str(accelerator.distributed_type).rpartition(".")[2]
        told = {"losses": losses, "kind": kind, "class": type(model).__name__}
        Path(job["told"]).write_text(json.dumps(told), encoding="utf-8")
    accelerator.end_training()


if __name__ == "__main__":
    main(json.loads(os.environ["JOB"]))
