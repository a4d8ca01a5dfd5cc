"""A script for torchrun that trains the model of `accelerate_script` with a module as dsconf emits it, on gloo.

$JOB says as JSON where the module is, and where rank 0 writes the losses.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

script: Any = importlib.import_module("accelerate_script")


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch[:, :-1]).float()
    return nn.functional.cross_entropy(logits.reshape(-1, script.WORDS), batch[:, 1:].reshape(-1))


def main(job: dict[str, Any]) -> None:
    spec = importlib.util.spec_from_file_location("emitted", job["module"])
    assert spec is not None
    assert spec.loader is not None
    emitted: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emitted)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = emitted.parallelize(script.Model(), torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    random = torch.Generator().manual_seed(100 + dist.get_rank())
    steps = job["accumulation"]
    words: Any = torch.randint(0, script.WORDS, (job["steps"] * steps * 2, script.LENGTH), generator=random)
    losses: list[float] = []
    for batches in words.split(2 * steps):
        told = emitted.train_step(
            model, optimizer, None, batches.split(2), loss_of, gradient_accumulation_steps=steps
        )
        losses += [loss.item() for loss in told["losses"]]
    if dist.get_rank() == 0:
        kind = type(model).__name__
        wrapped = sum("CheckpointWrapper" in type(module).__name__ for module in model.modules())
        text = json.dumps({"losses": losses, "kind": str(wrapped), "class": kind})
        Path(job["told"]).write_text(text, encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(os.environ["JOB"]))
