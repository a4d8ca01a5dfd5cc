"""FSDP2 modules as PyTorch code has them, against the real DeepSpeed with the config that is written for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dsconf.formats.deepspeed.write import drafted
from dsconf.formats.fsdp2.write import write
from dsconf.formats.outcome import Outcome, worst
from dsconf.formats.writing import Request
from dsconf.plan import (
    Batch,
    Clipping,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Schedule,
    Sharding,
    TorchSchedule,
    WarmupCosine,
)

from .bench import NEEDS_DEEPSPEED
from .compare import EXACT, Crash, Parity, Record, Tolerance, Verdict, judge
from .matrix import TIERS
from .run import Cell, run_cells

STEPS = 8
UNROUNDED = Tolerance(loss=5e-3, update=0.25, norm=2e-3)
"""What a landing says of masters that DeepSpeed rounds: weights that start elsewhere end elsewhere by that much."""
ARGUMENTS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
FP32 = Precision()
BF16 = Precision(compute="bf16", reduce="fp32", accumulate="fp32", rounded_masters=False)
"""As MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) has it."""
STAIRS = TorchSchedule(name="StepLR", arguments={"step_size": 2, "gamma": 0.7})
COSINE = WarmupCosine(min_ratio=0.1, final_ratio=0.05, warmup_steps=3, warmup="linear", total_steps=7)
WHOLE = Tolerance(moments=float("inf"))
"""Moments may be divided where the module has copies of them."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A module by its Plan, and how close DeepSpeed has to come."""

    partition: Any
    precision: Precision
    accumulation: int
    optimizer: str = "AdamW"
    clip: float | None = None
    offload: bool = False
    schedule: Schedule = STAIRS
    loaded: Any = "float32"
    tolerance: Tolerance = EXACT

    @property
    def plan(self) -> Plan:
        """The Plan of the module."""
        kind = self.optimizer
        arguments = {"lr": 1e-2, "momentum": 0.9} if kind == "SGD" else ARGUMENTS
        return Plan(
            batch=Batch(micro=2, accumulation=self.accumulation),
            precision=self.precision,
            sharding=Sharding(partition=self.partition, reshard_after_forward=self.partition == "parameters"),
            offload=Offload(parameters=self.offload, optimizer=self.offload),
            optimizer=Optimizer(name=kind, arguments=dict(arguments)),
            schedule=self.schedule,
            clipping=Clipping(max_norm=self.clip, skips_not_finite=True),
        )


TRIALS = {
    "fp32 copies": Trial(partition="nothing", precision=FP32, accumulation=3),
    "fp32 zero1 adam clipped": Trial(
        partition="optimizer",
        precision=FP32,
        accumulation=1,
        optimizer="Adam",
        clip=0.1,
        tolerance=TIERS["clipped"],
    ),
    "fp32 zero2 clipped": Trial(
        partition="gradients",
        precision=FP32,
        accumulation=3,
        clip=0.1,
        schedule=COSINE,
        tolerance=TIERS["clipped"],
    ),
    "fp32 zero3 adam": Trial(partition="parameters", precision=FP32, accumulation=3, optimizer="Adam"),
    "fp32 zero3 offloaded": Trial(partition="parameters", precision=FP32, accumulation=1, offload=True),
    "fp32 zero2 sgd": Trial(
        partition="gradients", precision=FP32, accumulation=3, optimizer="SGD", schedule=COSINE
    ),
    "bf16 copies": Trial(
        partition="nothing", precision=BF16, accumulation=3, loaded="bfloat16", tolerance=WHOLE
    ),
    "bf16 zero1": Trial(partition="optimizer", precision=BF16, accumulation=3, tolerance=UNROUNDED),
    "bf16 zero1 adam loaded": Trial(
        partition="optimizer", precision=BF16, accumulation=3, optimizer="Adam", loaded="bfloat16"
    ),
    "bf16 zero2 loaded": Trial(
        partition="gradients", precision=BF16, accumulation=1, loaded="bfloat16", schedule=COSINE
    ),
    "bf16 zero2 offloaded clipped": Trial(
        partition="gradients", precision=BF16, accumulation=3, clip=0.1, offload=True, tolerance=UNROUNDED
    ),
    "bf16 zero3": Trial(partition="parameters", precision=BF16, accumulation=3, tolerance=UNROUNDED),
    "bf16 zero3 adam offloaded clipped": Trial(
        partition="parameters",
        precision=BF16,
        accumulation=1,
        optimizer="Adam",
        clip=0.1,
        offload=True,
        loaded="bfloat16",
        tolerance=TIERS["as-is"],
    ),
    "bf16 zero3 casting": Trial(
        partition="parameters",
        precision=BF16.model_copy(update={"units_cast": "all"}),
        accumulation=3,
        loaded="bfloat16",
        tolerance=TIERS["as-is"],
    ),
    "bf16 masters zero2": Trial(
        partition="gradients",
        precision=Precision(compute="bf16", masters="bf16"),
        accumulation=3,
        loaded="bfloat16",
        tolerance=Tolerance(norm=5e-3),  # torch rounds it to bf16
    ),
    "autocast zero2": Trial(
        partition="gradients",
        precision=Precision(autocast="bf16", reduce="fp32"),
        accumulation=3,
        tolerance=TIERS["as-is"],
    ),
}


def claim(plan: Plan) -> Outcome:
    """What is said of the whole."""
    return worst([landing.outcome for landing in drafted(plan)[1].values()])


def cell(name: str, role: Any, folder: Path) -> Cell:
    trial = TRIALS[name]
    labels: Mapping[str, str] = defaultdict(str)
    module = folder / f"{name.replace(' ', '_')}.py"
    module.write_text(write(trial.plan, Request("", labels)).text, encoding="utf-8")
    config = drafted(trial.plan)[0]
    return Cell(
        id=f"{name} {role}", role=role, config=config, module=module, steps=STEPS, load_dtype=trial.loaded
    )


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """DeepSpeed compared with the module, which is the reference here."""
    folder = tmp_path_factory.mktemp("modules")
    records = run_cells(cell(name, role, folder) for name in TRIALS for role in ("module", "deepspeed"))
    found: dict[str, Verdict] = {}
    for name, trial in TRIALS.items():
        reference, candidate = (records[f"{name} {role}"] for role in ("module", "deepspeed"))
        if isinstance(reference, Record) and isinstance(candidate, Record) and set(candidate.norms) == {None}:
            reference = replace(reference, norms=candidate.norms)  # DeepSpeed tells none in fp32 without ZeRO
        found[name] = judge(reference, candidate, trial.tolerance)
    return found


def needs_deepspeed(test: Any) -> Any:
    for mark in NEEDS_DEEPSPEED:
        test = mark(test)
    return test


def test_nothing_is_unsupported() -> None:
    assert len(TRIALS) >= 12
    assert all(claim(trial.plan) != "unsupported" for trial in TRIALS.values())


@needs_deepspeed
@pytest.mark.parametrize("name", TRIALS)
def test_deepspeed_trains_as_the_module_does(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


@needs_deepspeed
@pytest.mark.parametrize("name", TRIALS)
def test_no_more_is_claimed_than_is_measured(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert not isinstance(verdict, Crash), verdict
    found = verdict.differences
    if claim(TRIALS[name].plan) == "exact":
        assert (found.loss, found.update, found.lr) == (0, 0, 0)
