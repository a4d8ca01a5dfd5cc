"""Optimizers and schedules with all their arguments: emitted modules train as the real DeepSpeed does."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.formats.outcome import FIDELITY

from .bench import AS_IS, NEEDS_DEEPSPEED, Bench, Config, config
from .compare import Parity, Tolerance, Verdict
from .run import Case

pytestmark = NEEDS_DEEPSPEED


def optimizer(kind: str, precision: str = "fp32", **params: Any) -> Config:
    """ZeRO-3 with an optimizer that DeepSpeed may not know."""
    section = {"type": kind, "params": {"lr": 1e-2, "weight_decay": 0.1, **params}}
    return config(precision, 3, optimizer=section, zero_allow_untested_optimizer=True)


def schedule(kind: str, precision: str = "fp32", **params: Any) -> Config:
    """ZeRO-3 with a schedule."""
    return config(precision, 3, scheduler={"type": kind, "params": params})


CYCLE: Config = {
    "cycle_min_lr": 1e-3,
    "cycle_max_lr": 2e-2,
    "cycle_first_step_size": 3,
    "cycle_second_step_size": 2,
    "decay_step_size": 1,
    "decay_lr_rate": 0.5,
    "cycle_min_mom": 0.6,
    "decay_mom_rate": 0.01,
}

EXACT: dict[str, dict[str, Any]] = {
    "adam-l2": {"run": optimizer("Adam", adam_w_mode=False, torch_adam=True)},
    "adamw-amsgrad": {"run": optimizer("AdamW", amsgrad=True, torch_adam=True)},
    "adamw-fused": {"run": optimizer("AdamW", fused=True, torch_adam=True)},
    "sgd": {"run": optimizer("SGD", momentum=0.9, nesterov=True)},
    "sgd-dampened": {"run": optimizer("SGD", momentum=0.9, dampening=0.1, maximize=False)},
    "adagrad": {"run": optimizer("Adagrad", lr_decay=0.01, initial_accumulator_value=0.1)},
    "rmsprop": {"run": optimizer("RMSprop", alpha=0.9, momentum=0.5, centered=True)},
    "nadam": {"run": optimizer("NAdam", momentum_decay=0.01, betas=[0.8, 0.99])},
    "nadam-decoupled": {"run": optimizer("NAdam", decoupled_weight_decay=True)},
    "radam": {"run": optimizer("RAdam", decoupled_weight_decay=True, betas=[0.8, 0.9])},
    "adamax": {"run": optimizer("Adamax", betas=[0.8, 0.99])},
    "adadelta": {"run": optimizer("Adadelta", rho=0.8, eps=1e-5)},
    "asgd": {"run": optimizer("ASGD", lambd=1e-3, alpha=0.6)},
    "one-cycle": {"run": schedule("OneCycle", **CYCLE)},
    "one-cycle-bf16": {"run": schedule("OneCycle", "bf16", **CYCLE, cycle_first_stair_count=2)},
    "one-cycle-still": {"run": schedule("OneCycle", **CYCLE, cycle_momentum=False)},
    "range-test-stairs": {
        "run": schedule("LRRangeTest", "bf16", lr_range_test_step_size=3, lr_range_test_staircase=True)
    },
}
"""Runs whose losses and weights have to be equal bit for bit."""

CLOSE: dict[str, dict[str, Any]] = {
    "adam-l2-kernel": {
        "run": optimizer("Adam", adam_w_mode=False),
        "exact": False,
        "tolerance": AS_IS["fp32"],
    },
    "uncorrected": {
        "run": optimizer("AdamW", bias_correction=False),
        "exact": False,
        "tolerance": AS_IS["fp32"],
    },
    "uncorrected-l2": {
        "run": optimizer("Adam", adam_w_mode=False, bias_correction=False),
        "exact": False,
        "tolerance": AS_IS["fp32"],
    },
    "lion": {
        "run": optimizer("Lion", lr=1e-3)
        | {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}},
        "exact": False,
        "tolerance": AS_IS["fp32"],
    },
}

APPROXIMATE: dict[str, dict[str, Any]] = {
    "muon": {
        "run": optimizer("Muon", adam_lr=1e-3) | {"zero_optimization": {"stage": 3, "reduce_scatter": False}},
        "tolerance": Tolerance(loss=1e-3, update=0.05, norm=1.0),
    },
}
"""Runs that differ in more than rounding: they have to stay near."""


def cases(bench: Bench) -> list[Case]:
    """What this file wants to be run."""
    return [bench.case(name, **settings) for name, settings in (EXACT | CLOSE | APPROXIMATE).items()]


@pytest.mark.parametrize("name", EXACT)
def test_trains_bit_for_bit(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.loss == verdict.differences.update == 0


@pytest.mark.parametrize("name", CLOSE | APPROXIMATE)
def test_trains_within_rounding(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


@pytest.mark.parametrize("name", EXACT | CLOSE | APPROXIMATE)
def test_the_report_promises_no_more_than_was_measured(
    bench: Bench, verdicts: dict[str, Verdict], name: str
) -> None:
    assert isinstance(verdicts[name], Parity)
    best = "close" if name in CLOSE else "approximate" if name in APPROXIMATE else "exact"
    assert FIDELITY.index(bench.overall[name]) >= FIDELITY.index(best)
