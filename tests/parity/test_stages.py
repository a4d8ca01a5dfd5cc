"""ZeRO stages and loss scales with what is no dimension of the matrix: emitted modules train as they say."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.formats.outcome import FIDELITY, Outcome

from .bench import AS_IS, EVALUATED, LLAMA, NEEDS_DEEPSPEED, RESUMED, TORCH_ADAMW, Bench, Config, config
from .compare import Parity, Tolerance, Verdict
from .run import Case

pytestmark = NEEDS_DEEPSPEED

Cells = dict[str, dict[str, Any]]

CPU = {"device": "cpu"}
OPTIMIZER: Config = {"offload_optimizer": CPU}
BOTH: Config = {"offload_optimizer": CPU, "offload_param": CPU}
TORCH_KERNEL: Config = {"optimizer": TORCH_ADAMW, "zero_force_ds_cpu_optimizer": False}
"""Without it the emitted code takes torch's fused Adam for offloaded weights, as DeepSpeed its own kernel."""
L2: Config = {"type": "Adam", "params": {"lr": 1e-2, "weight_decay": 0.1, "adam_w_mode": False}}
NO_SUM: Config = {"data_types": {}}
"""DeepSpeed's default: gradients are added up in the dtype of the model."""


def at(stage: int, precision: str, steps: int, zero: Config | None = None, **changes: Any) -> Config:
    """A config of a stage, with all that `config` puts in motion."""
    return config(precision, steps, zero_optimization={"stage": stage, **(zero or {})}, **changes)


def fp16(stage: int, steps: int, zero: Config | None = None, power: int = 8, **scaling: Any) -> Config:
    """fp16 with a scale that starts low enough not to overflow by itself."""
    section = {"enabled": True, "initial_scale_power": power, **scaling}
    return at(stage, "fp32", steps, zero, fp16=section)


EXACT: Cells = {
    "bf16-stage1-wide-sum-gas2": {"run": at(1, "bf16", 2)},
    "fp16-scale-falls": {"run": fp16(2, 1, power=20), "steps": 12},
    "fp16-scale-falls-at-once": {"run": fp16(3, 1, power=18, hysteresis=1), "steps": 12},
    "fp16-static": {"run": fp16(2, 1, loss_scale=1000), "inf_at": 3},
    "fp16-overflow": {"run": fp16(3, 1, hysteresis=1), "inf_at": 3},
    "fp16-resumed": {"run": fp16(2, 1, power=18), "tail": RESUMED},
    "overflow-unchecked": {
        "run": at(1, "bf16", 1, bf16={"enabled": True, "check_grad_overflow": False}),
        "inf_at": 3,
    },
    "frozen-stage0": {"run": at(0, "fp32", 3), "freeze": ["embed", "blocks.0"]},
    "frozen-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "freeze": ["embed", "blocks.0"]},
    "frozen-stage2": {"run": at(2, "bf16", 3), "freeze": ["embed"], "load_dtype": "bfloat16"},
    "evaluated-stage0": {"run": at(0, "fp32", 3), "tail": EVALUATED},
    "evaluated-stage2": {"run": at(2, "bf16", 3), "tail": EVALUATED},
    "resumed-stage0": {"run": at(0, "fp32", 3), "tail": RESUMED},
    "resumed-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "tail": RESUMED},
    "resumed-offload": {"run": at(2, "bf16", 3, OPTIMIZER, **TORCH_KERNEL), "tail": RESUMED},
    "llama-stage0": {"run": at(0, "fp32", 3), "workload": LLAMA},
    "llama-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "workload": LLAMA, "load_dtype": "bfloat16"},
    "llama-stage2": {"run": at(2, "bf16", 3), "workload": LLAMA, "load_dtype": "bfloat16"},
    "offload-both": {"run": at(3, "bf16", 3, BOTH, **TORCH_KERNEL), "freeze": ["embed"]},
    "offload-parameters": {"run": at(3, "bf16", 3, {"offload_param": CPU})},
    "predivide-stage0": {"run": at(0, "fp32", 3, gradient_predivide_factor=4.0)},
    "predivide-stage1": {"run": at(1, "fp32", 3, gradient_predivide_factor=4.0)},
    "predivide-stage2": {"run": at(2, "fp32", 3, {"reduce_scatter": False}, gradient_predivide_factor=4.0)},
    "prescale-stage1": {"run": at(1, "fp32", 3, prescale_gradients=True)},
}
"""Runs whose losses and weights have to be equal bit for bit."""

CLOSE: Cells = {
    "fused-offload-fp32": {
        "run": at(3, "fp32", 3, BOTH),
        "exact": False,
        "tolerance": AS_IS["fp32"],
    },
    "fused-offload-l2": {
        "run": at(2, "fp32", 1, OPTIMIZER, optimizer=L2),
        "exact": False,
        "tolerance": AS_IS["fp32"],
    },
    "fused-offload-resumed": {
        "run": at(2, "bf16", 3, OPTIMIZER),
        "exact": False,
        "tolerance": AS_IS["bf16"],
        "tail": RESUMED,
    },
    "bf16-stage1-wide-reduction": {
        "run": at(1, "bf16", 3, communication_data_type="fp32", **NO_SUM),
        "tolerance": AS_IS["bf16"],
    },
}
"""Runs that differ by rounding only."""

APPROXIMATE: Cells = {
    "bf16-stage0": {"run": at(0, "bf16", 3, **NO_SUM), "tolerance": Tolerance(0.05, 0.2, 0.05)},
    "fp16-stage0-static": {"run": fp16(0, 3, loss_scale=128), "tolerance": Tolerance(0.05, 0.2, 0.05)},
    "fp16-scale-grows": {
        "run": fp16(2, 1, loss_scale_window=3),
        "steps": 12,
        "tolerance": Tolerance(0.1, 0.5, 0.6),
    },
}
"""Runs in which DeepSpeed does something that the emitted code leaves out."""

MEASURED: dict[str, Outcome] = {
    **dict.fromkeys(EXACT, "exact"),
    **dict.fromkeys(CLOSE, "close"),
    **dict.fromkeys(APPROXIMATE, "approximate"),
}


def cases(bench: Bench) -> list[Case]:
    """What this file wants to be run."""
    return [bench.case(name, **cell) for name, cell in (EXACT | CLOSE | APPROXIMATE).items()]


@pytest.mark.parametrize("name", EXACT)
def test_trains_bit_for_bit(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.loss == verdict.differences.update == 0


@pytest.mark.parametrize("name", [*CLOSE, *APPROXIMATE])
def test_trains_within_its_bounds(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


@pytest.mark.parametrize("name", APPROXIMATE)
def test_what_is_called_approximate_is_no_rounding(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity)
    assert verdict.differences.update > 0.05


@pytest.mark.parametrize("name", MEASURED)
def test_the_report_promises_no_more_than_was_measured(
    bench: Bench, verdicts: dict[str, Verdict], name: str
) -> None:
    assert verdicts[name]
    assert FIDELITY.index(bench.overall[name]) >= FIDELITY.index(MEASURED[name])
