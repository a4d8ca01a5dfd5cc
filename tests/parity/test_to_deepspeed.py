"""FSDP2 modules, and the real DeepSpeed with the config that is read from their text."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsconf.config.context import Context
from dsconf.formats.fsdp2.write import write
from dsconf.formats.outcome import FIDELITY
from dsconf.formats.writing import Request
from dsconf.plan import (
    Batch,
    Clipping,
    LossScaling,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Schedule,
    Sharding,
    TorchSchedule,
    WarmupCosine,
)
from dsconf.translate.report import Report
from dsconf.translate.run import translate

from .bench import AS_IS, NEEDS_DEEPSPEED, Config
from .compare import EXACT, Crash, Parity, Record, Tolerance, Verdict, judge
from .matrix import TIERS
from .run import Cell, run_cells

STEPS = 8
FIXTURES = Path(__file__).parents[2] / "fixtures" / "fsdp2"
UNROUNDED = Tolerance(loss=5e-3, update=0.1, norm=2e-3)
"""What a report says of masters that DeepSpeed rounds: weights that start elsewhere end elsewhere by that much."""
WHOLE = Tolerance(moments=float("inf"))
"""Moments may be divided where the module has copies of them."""
ARGUMENTS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
FP32 = Precision()
BF16 = Precision(compute="bf16", reduce="fp32", accumulate="fp32", rounded_masters=False)
"""As MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) has it."""
STAIRS = TorchSchedule(name="StepLR", arguments={"step_size": 2, "gamma": 0.7})
COSINE = WarmupCosine(min_ratio=0.1, final_ratio=0.05, warmup_steps=3, warmup="linear", total_steps=7)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An FSDP2 module, and how close DeepSpeed has to come."""

    loaded: Any = "float32"
    tolerance: Tolerance = EXACT
    added: Config = field(default_factory=dict)
    """What the text of the module does not say."""

    def write(self, name: str, folder: Path) -> Path:
        """The module, by its path."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Emitted(Trial):
    """A module that is emitted from a Plan as PyTorch code has it."""

    partition: Any
    precision: Precision
    accumulation: int
    optimizer: str = "AdamW"
    clip: float | None = None
    offload: bool = False
    schedule: Schedule = STAIRS
    sums: bool = False
    group: int | None = None

    def write(self, name: str, folder: Path) -> Path:
        arguments = {"lr": 1e-2, "momentum": 0.9} if self.optimizer == "SGD" else ARGUMENTS
        plan = Plan(
            batch=Batch(micro=2, accumulation=self.accumulation),
            precision=self.precision,
            sharding=Sharding(
                partition=self.partition,
                reshard_after_forward=self.partition == "parameters",
                group=self.group,
                sums_gradients=self.sums,
            ),
            offload=Offload(parameters=self.offload, optimizer=self.offload),
            optimizer=Optimizer(name=self.optimizer, arguments=dict(arguments)),
            schedule=self.schedule,
            clipping=Clipping(max_norm=self.clip),
        )
        labels: Mapping[str, str] = defaultdict(str)
        module = folder / f"{name.replace(' ', '_')}.py"
        module.write_text(write(plan, Request("", labels)).text, encoding="utf-8")
        return module


@dataclass(frozen=True, kw_only=True)
class ByHand(Trial):
    """A module as people write it."""

    file: str

    def write(self, name: str, folder: Path) -> Path:
        return FIXTURES / self.file


MICRO: Config = {"train_micro_batch_size_per_gpu": 2}
TRIALS: Mapping[str, Trial] = {
    "fp32 copies": Emitted(partition="nothing", precision=FP32, accumulation=3),
    "fp32 zero1 adam clipped": Emitted(
        partition="optimizer",
        precision=FP32,
        accumulation=1,
        optimizer="Adam",
        clip=0.1,
        tolerance=TIERS["clipped"],
    ),
    "fp32 zero2 clipped": Emitted(
        partition="gradients",
        precision=FP32,
        accumulation=3,
        clip=0.1,
        schedule=COSINE,
        tolerance=TIERS["clipped"],
    ),
    "fp32 zero2 sgd": Emitted(
        partition="gradients", precision=FP32, accumulation=3, optimizer="SGD", schedule=COSINE
    ),
    "fp32 zero2 sums": Emitted(
        partition="gradients", precision=FP32, accumulation=1, optimizer="SGD", sums=True
    ),
    "fp32 zero3 adam": Emitted(partition="parameters", precision=FP32, accumulation=3, optimizer="Adam"),
    "fp32 zero3 offloaded": Emitted(partition="parameters", precision=FP32, accumulation=1, offload=True),
    "bf16 copies": Emitted(
        partition="nothing", precision=BF16, accumulation=3, loaded="bfloat16", tolerance=WHOLE
    ),
    "bf16 zero1": Emitted(partition="optimizer", precision=BF16, accumulation=3, tolerance=UNROUNDED),
    "bf16 zero1 adam loaded": Emitted(
        partition="optimizer", precision=BF16, accumulation=3, optimizer="Adam", loaded="bfloat16"
    ),
    "bf16 zero2 loaded": Emitted(
        partition="gradients", precision=BF16, accumulation=1, loaded="bfloat16", schedule=COSINE
    ),
    "bf16 zero2 offloaded clipped": Emitted(
        partition="gradients", precision=BF16, accumulation=3, clip=0.1, offload=True, tolerance=UNROUNDED
    ),
    "bf16 zero3": Emitted(partition="parameters", precision=BF16, accumulation=3, tolerance=UNROUNDED),
    "bf16 zero3 adam offloaded clipped": Emitted(
        partition="parameters",
        precision=BF16,
        accumulation=1,
        optimizer="Adam",
        clip=0.1,
        offload=True,
        loaded="bfloat16",
        tolerance=TIERS["as-is"],
    ),
    "bf16 zero3 casting": Emitted(
        partition="parameters",
        precision=BF16.model_copy(update={"units_cast": "all"}),
        accumulation=3,
        loaded="bfloat16",
        tolerance=TIERS["as-is"],
    ),
    "bf16 masters zero2": Emitted(
        partition="gradients",
        precision=Precision(compute="bf16", masters="bf16"),
        accumulation=3,
        loaded="bfloat16",
        tolerance=Tolerance(norm=5e-3),  # torch rounds it to bf16
    ),
    "fp16 zero2": Emitted(
        partition="gradients",
        precision=Precision(compute="fp16", accumulate="fp32", scaling=LossScaling(scale=256.0)),
        accumulation=1,
    ),
    "autocast zero2": Emitted(
        partition="gradients", precision=Precision(autocast="bf16", reduce="fp32"), accumulation=3
    ),
    "by hand: tutorial": ByHand(file="tutorial_zero3.py", added=MICRO, tolerance=UNROUNDED),
    "by hand: offloaded": ByHand(file="offloaded_adam.py", added=MICRO, tolerance=TIERS["clipped"]),
    "by hand: zero1": ByHand(file="zero1_last_sync.py", added=MICRO, tolerance=TIERS["clipped"]),
    "by hand: zero2": ByHand(file="zero2_micro_steps.py", added=MICRO, tolerance=TIERS["as-is"]),
    "by hand: copies": ByHand(file="ddp_no_sync.py", added=MICRO),
    "by hand: own curve": ByHand(
        file="titan_zero3.py",
        added={**MICRO, "gradient_accumulation_steps": 1},
        tolerance=TIERS["clipped"],
    ),
}


class Translated(NamedTuple):
    """The config of a module, and what is said of it."""

    module: Path
    config: Config
    report: Report


def translation(name: str, trial: Trial, folder: Path) -> Translated:
    module = trial.write(name, folder)
    done = translate(str(module), "deepspeed", Context(), {}, ())
    return Translated(module, {**json.loads(done.text), **trial.added}, done.report)


def cells(name: str, done: Translated) -> list[Cell]:
    """Both sides: the module, and DeepSpeed, which gets a schedule from it where the config has none."""
    shared: dict[str, Any] = {"config": done.config, "module": done.module, "steps": STEPS}
    loaded = TRIALS[name].loaded if name in TRIALS else "float32"
    return [
        Cell(id=f"{name} {role}", role=role, load_dtype=loaded, **shared)  # type: ignore[arg-type]
        for role in ("module", "deepspeed")
    ]


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Translated]:
    folder = tmp_path_factory.mktemp("modules")
    return {name: translation(name, trial, folder) for name, trial in TRIALS.items()}


@pytest.fixture(scope="module")
def verdicts(translated: dict[str, Translated]) -> dict[str, Verdict]:
    """DeepSpeed compared with the module, which is the reference here."""
    records = run_cells([cell for name, done in translated.items() for cell in cells(name, done)])
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


def promise(report: Report) -> Tolerance | None:
    """The bounds that a report names, None where it names none."""
    if report.overall == "exact":
        return EXACT
    if report.overall == "close":
        return AS_IS["bf16" if "16" in json.dumps([item.target for item in report.items]) else "fp32"]
    named = [float(bound) for item in report.items for bound in re.findall(r"loss within (\d\S*)", item.note)]
    return Tolerance(loss=max(named), update=1, norm=1) if named else None


def test_the_modules_are_many_and_different(translated: dict[str, Translated]) -> None:
    assert len(TRIALS) >= 12
    configs = [done.config for done in translated.values()]
    assert len({json.dumps(config) for config in configs}) > 12
    assert {config["zero_optimization"]["stage"] for config in configs} == {0, 1, 2, 3}


@pytest.mark.parametrize("name", [name for name in TRIALS if "own curve" not in name])
def test_nothing_is_unsupported(translated: dict[str, Translated], name: str) -> None:
    assert FIDELITY.index(translated[name].report.overall) < FIDELITY.index("unsupported")


@needs_deepspeed
@pytest.mark.parametrize("name", TRIALS)
def test_deepspeed_trains_as_the_module_does(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


@needs_deepspeed
@pytest.mark.parametrize("name", TRIALS)
def test_no_more_is_claimed_than_is_measured(
    verdicts: dict[str, Verdict], translated: dict[str, Translated], name: str
) -> None:
    verdict, bounds = verdicts[name], promise(translated[name].report)
    assert not isinstance(verdict, Crash), verdict
    found = verdict.differences
    if bounds is not None:
        for figure in ("loss", "update", "lr"):
            assert getattr(found, figure) <= getattr(bounds, figure), (figure, bounds)


@needs_deepspeed
def test_groups_that_are_copies_of_each_other_train_as_zero3_with_hpz(tmp_path: Path) -> None:
    """Four ranks, two groups; only the order in which gradients are added up differs."""
    trial = Emitted(partition="parameters", precision=FP32, accumulation=1, group=2)
    done = translation("hybrid", trial, tmp_path)
    assert done.config["zero_optimization"] == {"stage": 3, "zero_hpz_partition_size": 2}
    records = run_cells(cells("hybrid", done), ranks=4)
    bounds = Tolerance(loss=2e-6, update=1e-4, norm=1e-5, moments=float("inf"))
    verdict = judge(records["hybrid module"], records["hybrid deepspeed"], bounds)
    assert isinstance(verdict, Parity), verdict
