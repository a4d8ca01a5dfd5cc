"""What a training step costs: emitted modules against DeepSpeed and against FSDP2 written by hand.

    ./dev bench --steps             train 20 million parameters on two CPU ranks, and print ratios
    ./dev bench --steps --write     write them into docs/step_time.md

The three sides take turns, each in the same two processes, so that whatever else the machine does meets all of them
alike. Only ratios within a round are kept: seconds would say more of the machine than of the code.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.handwritten import parallelize, train_step
from dsconf.config.context import Context
from dsconf.translate.run import translate

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "step_time.md"
TABLE = "| config | emitted / DeepSpeed | emitted / hand-written |"
RANKS, WARMUP, ROUNDS = 2, 2, 15
VOCAB, DIM, HEADS, DEPTH, LENGTH = 8000, 384, 6, 8, 64
MICRO, STEPS = 2, 2
SIDES = ("emitted", "DeepSpeed", "hand-written")
CPU = torch.device("cpu")

Step = Callable[[list[Tensor]], Any]


def config(stage: int, precision: str) -> dict[str, Any]:
    """A usual config; fp32 where the precision is not bf16."""
    return {
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_accumulation_steps": STEPS,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": precision == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
        "zero_optimization": {"stage": stage},
    }


CONFIGS = {
    f"ZeRO-{stage}, {precision}": config(stage, precision)
    for stage, precision in ((2, "fp32"), (3, "fp32"), (3, "bf16"))
}


class Model(nn.Module):
    """A causal LM of 20 million parameters."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.places = nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, 0.0, batch_first=True, norm_first=True)
            for _ in range(DEPTH)
        )
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).triu(1).bool(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        length = ids.shape[1]
        states = self.tokens(ids) + self.places(torch.arange(length))
        for block in self.blocks:
            states = block(states, src_mask=self.mask[:length, :length])
        logits: Tensor = self.head(states)
        return logits


def loss_fn(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the next-token loss."""
    return F.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())


def build_model() -> Model:
    """The same model for every side."""
    torch.manual_seed(0)
    return Model()


# ---- the sides -----------------------------------------------------------------------------------


def emitted(run: dict[str, Any], folder: Path) -> Step:
    """The module that dsconf writes."""
    source, code = folder / "ds_config.json", folder / "shard.py"
    source.write_text(json.dumps(run), encoding="utf-8")
    code.write_text(translate(str(source), "fsdp2", Context(), {}, ()).text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shard", code)
    assert spec is not None
    assert spec.loader is not None
    shard = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shard)
    model = shard.parallelize(build_model(), CPU)
    optimizer = shard.build_optimizer(model)
    return lambda batches: shard.train_step(model, optimizer, None, batches, loss_fn)


def deepspeed_side(run: dict[str, Any]) -> Step:
    """The real DeepSpeed, with its own F.linear at ZeRO-3, which it puts in place for the whole process."""
    import deepspeed

    linear = F.linear
    model = build_model()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=run)
    own, F.linear = F.linear, linear

    def step(batches: list[Tensor]) -> None:
        F.linear = own
        for batch in batches:
            engine.backward(loss_fn(engine, batch))
            engine.step()
        F.linear = linear

    return step


def by_hand(run: dict[str, Any]) -> Step:
    """`handwritten`."""
    model = build_model()
    dtype = torch.bfloat16 if run["bf16"]["enabled"] else torch.float32
    parallelize(model, list(model.blocks), reshard=run["zero_optimization"]["stage"] == 3, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    return lambda batches: train_step(model, optimizer, batches, loss_fn)


# ---- measuring -----------------------------------------------------------------------------------


def seconds(step: Step, batches: list[Tensor]) -> float:
    """Until the last rank is done."""
    dist.barrier()
    start = time.perf_counter()
    step(batches)
    dist.barrier()
    return time.perf_counter() - start


def work(name: str, output: Path) -> None:
    """Measure one config, on each rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = CONFIGS[name]
    with tempfile.TemporaryDirectory() as folder:
        sides = [emitted(run, Path(folder)), deepspeed_side(run), by_hand(run)]
    generator = torch.Generator().manual_seed(dist.get_rank())
    rounds = []
    for number in range(WARMUP + ROUNDS):
        batches = [torch.randint(VOCAB, (MICRO, LENGTH), generator=generator) for _ in range(STEPS)]
        took = {}
        for turn in range(len(sides)):
            side = (turn + number) % len(sides)  # nobody is always the first
            took[SIDES[side]] = seconds(sides[side], batches)
        rounds.append(took)
    if dist.get_rank() == 0:
        output.write_text(json.dumps(rounds[WARMUP:]), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def measured(name: str) -> list[dict[str, float]]:
    """The seconds of each side, by round."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rounds.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [
            "--nproc-per-node",
            str(RANKS),
            "--module",
            "benchmarks.step_time",
            "--work",
            name,
            str(output),
        ]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-4000:])
        rounds: list[dict[str, float]] = json.loads(output.read_text(encoding="utf-8"))
        return rounds


def ratio(rounds: list[dict[str, float]], other: str) -> str:
    """The median of the ratios within a round, and their quartiles."""
    low, middle, high = statistics.quantiles([each["emitted"] / each[other] for each in rounds], n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description="Measure training steps of emitted modules.")
    parser.add_argument("--write", action="store_true", help=f"write the table into docs/{PAGE.name}")
    parser.add_argument("--work", nargs=2, metavar=("CONFIG", "OUTPUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], Path(options.work[1]))
        return
    lines = [TABLE, "| --- | ---: | ---: |"]
    for name in CONFIGS:
        rounds = measured(name)
        lines.append(f"| {name} | {ratio(rounds, 'DeepSpeed')} | {ratio(rounds, 'hand-written')} |")
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(TABLE)] + table, encoding="utf-8")


if __name__ == "__main__":
    main()
