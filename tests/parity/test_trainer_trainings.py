"""The real Trainer trains with what is written for it: with FSDP2, DDP and DeepSpeed alike, on two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.context import Context
from dsconf.translate.run import translate

from .bench import NEEDS_DEEPSPEED

pytestmark = NEEDS_DEEPSPEED

WORKER = Path(__file__).with_name("trainer_worker.py")
FIXTURES = Path(__file__).parents[2] / "fixtures" / "translate"
TARGETS = ("trainer-fsdp2", "trainer-deepspeed")
ROUNDING = 2e-6
BF16 = 1e-2
"""FSDP2 under Trainer rounds the loss itself to bf16."""
PLAIN: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.0, "torch_adam": True}},
}
LINEAR = {
    "warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 2, "total_num_steps": 4, "warmup_type": "linear",
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    **{f"stage {stage}": {**PLAIN, "zero_optimization": {"stage": stage}} for stage in range(4)},
    "bf16": {**PLAIN, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}},
    "warmup": {
        **PLAIN,
        "zero_optimization": {"stage": 3},
        "scheduler": {"type": "WarmupDecayLR", "params": LINEAR},
    },
}
ARGUMENTS = """\
fsdp: true
fsdp_config:
  activation_checkpointing: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
learning_rate: 1.0e-3
weight_decay: 0.1
lr_scheduler_type: cosine
warmup_steps: 1
max_steps: 4
"""
KINDS = {"trainer-fsdp2": "FSDP", "trainer-deepspeed": "DEEPSPEED"}

Runs = Mapping[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What each run showed, by source and target; the arguments themselves are one of the sources."""
    folder = tmp_path_factory.mktemp("trainings")
    sources = {name: folder / f"{name}.json" for name in CONFIGS}
    for name, path in sources.items():
        path.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    sources["arguments"] = folder / "arguments.yaml"
    sources["arguments"].write_text(ARGUMENTS, encoding="utf-8")
    sources |= {name: FIXTURES / name for name in ("axolotl.yaml", "trainer_zero2.yaml")}
    jobs = {"arguments": str(sources["arguments"])}
    for name, path in sources.items():
        for target in TARGETS:
            done = translate(str(path), target, Context(world_size=2), {}, ())
            written = folder / f"{name} {target}.yaml"
            written.write_text(done.text, encoding="utf-8")
            jobs[f"{name} {target}"] = str(written)
    return _launched(jobs, folder)


def _launched(jobs: Mapping[str, str], folder: Path) -> Runs:
    todo, results = folder / "jobs.json", folder / "results.json"
    todo.write_text(json.dumps(jobs), encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launcher, str(WORKER), str(todo), str(results)], capture_output=True, text=True, timeout=900
    )
    assert results.exists(), done.stderr[-4000:]
    found: Runs = json.loads(results.read_text(encoding="utf-8"))
    return found


def losses(runs: Runs, name: str) -> list[float]:
    run = runs[name]
    assert "error" not in run, (name, run)
    return [step["loss"] for step in run["steps"]]


def norms(runs: Runs, name: str) -> list[float]:
    return [step["grad_norm"] for step in runs[name]["steps"]]


def apart(runs: Runs, one: str, other: str) -> float:
    pairs = zip(losses(runs, one), losses(runs, other), strict=True)
    return max(abs(a - b) for a, b in pairs)


@pytest.mark.parametrize("source", [*CONFIGS, "arguments", "axolotl.yaml", "trainer_zero2.yaml"])
@pytest.mark.parametrize("target", TARGETS)
def test_it_trains_with_what_the_target_names(runs: Runs, source: str, target: str) -> None:
    name = f"{source} {target}"
    assert len(losses(runs, name)) == 4
    replicated = target == "trainer-fsdp2" and source == "stage 0"
    assert runs[name]["kind"] == ("MULTI_CPU" if replicated else KINDS[target])


@pytest.mark.parametrize("stage", range(4))
def test_in_fp32_fsdp2_and_ddp_train_as_deepspeed_does(runs: Runs, stage: int) -> None:
    assert apart(runs, f"stage {stage} trainer-fsdp2", f"stage {stage} trainer-deepspeed") < ROUNDING


def test_arguments_train_the_same_when_they_are_written_again_and_under_deepspeed(runs: Runs) -> None:
    for target in TARGETS:
        assert apart(runs, "arguments", f"arguments {target}") < ROUNDING


def test_in_bf16_gradients_are_those_of_deepspeed_within_rounding(runs: Runs) -> None:
    one, other = "bf16 trainer-fsdp2", "bf16 trainer-deepspeed"
    assert apart(runs, one, other) < BF16
    pairs = zip(norms(runs, one), norms(runs, other), strict=True)
    assert max(abs(a - b) / b for a, b in pairs) < 1e-3


def test_a_warm_up_of_deepspeed_is_only_approximated(runs: Runs) -> None:
    found = apart(runs, "warmup trainer-fsdp2", "warmup trainer-deepspeed")
    assert ROUNDING < found < 2e-3
