"""ZeRO stages, offload and loss scaling: emitted modules train as the real DeepSpeed does, as far as they say."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.formats.outcome import FIDELITY, Outcome

from .bench import (
    ACTIVE_CLIP,
    AS_IS,
    EVALUATED,
    LLAMA,
    NEEDS_DEEPSPEED,
    RESUMED,
    TORCH_ADAMW,
    USUAL,
    Bench,
    Config,
    Edits,
    config,
)
from .compare import Crash, Mismatch, Parity, Tolerance, Verdict
from .run import run_cases

pytestmark = NEEDS_DEEPSPEED

Cells = dict[str, dict[str, Any]]

CPU = {"device": "cpu"}
OPTIMIZER: Config = {"offload_optimizer": CPU}
BOTH: Config = {"offload_optimizer": CPU, "offload_param": CPU}
LOSES_BITS = Tolerance(loss=5e-3, update=0.05, norm=2e-3)
"""Gradients that are rounded at another place."""
NO_SUM: Config = {"data_types": {}}
"""DeepSpeed's default: gradients are added up in the dtype of the model."""


def at(stage: int, precision: str, steps: int, zero: Config | None = None, **changes: Any) -> Config:
    """A config of a stage, with all that `config` puts in motion."""
    return config(precision, steps, zero_optimization={"stage": stage, **(zero or {})}, **changes)


def fp16(stage: int, steps: int, zero: Config | None = None, power: int = 8, **scaling: Any) -> Config:
    """fp16 with a scale that starts low enough not to overflow by itself."""
    section = {"enabled": True, "initial_scale_power": power, **scaling}
    return at(stage, "fp32", steps, zero, fp16=section)


ROUNDLESS: Config = {"gradient_clipping": 0.0, "optimizer": TORCH_ADAMW}

_STAGES: Cells = {
    f"{precision}-stage{stage}-gas{steps}": {"run": at(stage, precision, steps, **changes)}
    for precision, changes in (("fp32", Config()), ("bf16", NO_SUM))
    for stage in (0, 1, 2)
    for steps in (1, 3)
    if precision == "fp32" or (stage and (steps == 1 or stage == 1))
}
EXACT: Cells = {
    **_STAGES,
    **{f"fp16-stage{stage}-gas1": {"run": fp16(stage, 1)} for stage in (1, 2, 3)},
    "bf16-stage1-wide-sum-gas1": {"run": at(1, "bf16", 1)},
    "bf16-stage1-wide-sum-gas2": {"run": at(1, "bf16", 2)},
    "bf16-stage2-wide-sum": {"run": at(2, "bf16", 3), "load_dtype": "bfloat16"},
    "bf16-stage1-wide-all": {"run": at(1, "bf16", 3, communication_data_type="fp32")},
    "bf16-stage2-wide-all": {"run": at(2, "bf16", 3, communication_data_type="fp32")},
    "fp16-stage1-gas3": {"run": fp16(1, 3)},
    "fp16-scale-falls": {"run": fp16(2, 1, power=20), "steps": 12},
    "fp16-scale-falls-at-once": {"run": fp16(3, 1, power=18, hysteresis=1), "steps": 12},
    "fp16-static": {"run": fp16(2, 1, loss_scale=1000), "inf_at": 3},
    "fp16-overflow": {"run": fp16(3, 1, hysteresis=1), "inf_at": 3},
    "fp16-resumed": {"run": fp16(2, 1, power=18), "tail": RESUMED},
    "fp16-offload": {"run": fp16(2, 1, OPTIMIZER)},
    "overflow-unchecked": {
        "run": at(1, "bf16", 1, bf16={"enabled": True, "check_grad_overflow": False}),
        "inf_at": 3,
    },
    "overflow-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "inf_at": 3},
    "overflow-stage2": {"run": at(2, "bf16", 3), "inf_at": 3},
    "frozen-stage0": {"run": at(0, "fp32", 3), "freeze": ["embed", "blocks.0"]},
    "frozen-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "freeze": ["embed", "blocks.0"]},
    "frozen-stage2": {"run": at(2, "bf16", 3), "freeze": ["embed"], "load_dtype": "bfloat16"},
    "evaluated-stage0": {"run": at(0, "fp32", 3), "tail": EVALUATED},
    "evaluated-stage2": {"run": at(2, "bf16", 3), "tail": EVALUATED},
    "resumed-stage0": {"run": at(0, "fp32", 3), "tail": RESUMED},
    "resumed-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "tail": RESUMED},
    "resumed-offload": {"run": at(2, "bf16", 3, OPTIMIZER), "tail": RESUMED},
    "llama-stage0": {"run": at(0, "fp32", 3), "workload": LLAMA},
    "llama-stage1": {"run": at(1, "bf16", 3, **NO_SUM), "workload": LLAMA, "load_dtype": "bfloat16"},
    "llama-stage2": {"run": at(2, "bf16", 3), "workload": LLAMA, "load_dtype": "bfloat16"},
    "offload-fp32": {"run": at(1, "fp32", 3, OPTIMIZER)},
    "offload-stage2": {"run": at(2, "bf16", 3, OPTIMIZER)},
    "offload-stage3": {"run": at(3, "bf16", 3, OPTIMIZER)},
    "offload-both": {"run": at(3, "bf16", 3, BOTH), "freeze": ["embed"]},
    "offload-parameters": {"run": at(3, "bf16", 3, {"offload_param": CPU})},
    "predivide-stage0": {"run": at(0, "fp32", 3, gradient_predivide_factor=4.0)},
    "predivide-stage1": {"run": at(1, "fp32", 3, gradient_predivide_factor=4.0)},
    "predivide-stage2": {"run": at(2, "fp32", 3, {"reduce_scatter": False}, gradient_predivide_factor=4.0)},
    "prescale-stage1": {"run": at(1, "fp32", 3, prescale_gradients=True)},
    **{
        f"as-is-exact-stage{stage}": {"run": at(stage, "fp32", 3, **ROUNDLESS), "exact": False}
        for stage in (0, 1, 2)
    },
}
"""Runs whose losses and weights have to be equal bit for bit."""

CLOSE: Cells = (
    {
        f"clipped-stage{stage}": {
            "run": at(stage, "fp32", 3, gradient_clipping=0.1),
            "tolerance": ACTIVE_CLIP,
        }
        for stage in (0, 1, 2)
    }
    | {
        "bf16-stage1-wide-sum-gas3": {"run": at(1, "bf16", 3), "tolerance": LOSES_BITS},
        "bf16-stage2-gas3": {"run": at(2, "bf16", 3, **NO_SUM), "tolerance": LOSES_BITS},
        "bf16-stage1-wide-reduction": {
            "run": at(1, "bf16", 3, communication_data_type="fp32", **NO_SUM),
            "tolerance": LOSES_BITS,
        },
        "fp16-stage2-gas3": {"run": fp16(2, 3), "tolerance": LOSES_BITS},
        "fp16-stage3-gas3": {"run": fp16(3, 3), "tolerance": LOSES_BITS},
        "fp16-clipped": {
            "run": fp16(2, 1, loss_scale=128) | {"gradient_clipping": 0.1},
            "tolerance": LOSES_BITS,
        },
        "as-is-fp16": {
            "run": fp16(2, 3, power=16) | {"gradient_clipping": 1.0},
            "exact": False,
            "tolerance": AS_IS["bf16"],
        },
        "as-is-offload": {
            "run": at(3, "bf16", 3, BOTH, **USUAL),
            "exact": False,
            "tolerance": AS_IS["bf16"],
        },
    }
    | {
        f"as-is-{precision}-stage{stage}": {
            "run": at(stage, precision, 3, **USUAL),
            "exact": False,
            "tolerance": AS_IS[precision],
        }
        for precision, stage in (("fp32", 0), ("fp32", 1), ("bf16", 1), ("bf16", 2))
    }
)
"""Runs that differ by rounding only."""

APPROXIMATE: Cells = {
    "bf16-stage0": {"run": at(0, "bf16", 3, **NO_SUM), "tolerance": Tolerance(0.05, 0.2, 0.05)},
    "as-is-bf16-stage0": {
        "run": at(0, "bf16", 3, **USUAL),
        "exact": False,
        "tolerance": Tolerance(0.05, 0.2, 0.05),
    },
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

EDITS: dict[str, tuple[dict[str, Any], Edits]] = {
    "stage 1 reduces each micro batch": (
        {"run": at(1, "bf16", 3, **NO_SUM)},
        {"        model.set_requires_gradient_sync(is_last)\n": ""},
    ),
    "stage 0 never reduces": (
        {"run": at(0, "fp32", 3)},
        {"model.set_requires_gradient_sync(is_last)": "model.set_requires_gradient_sync(False)"},
    ),
    "gradients keep the scale": (
        {"run": fp16(2, 1, loss_scale=1000)},
        {"            param.grad.mul_(1 / scale)\n": "            pass\n"},
    ),
    "the scale never falls": (
        {"run": fp16(2, 1, power=20), "steps": 12},
        {"    loss_scaler.update(skipped)\n": ""},
    ),
    "no hysteresis": (
        {"run": fp16(2, 1, power=20), "steps": 12},
        {"= LOSS_SCALE\n        self.overflows_left = HYSTERESIS": "= LOSS_SCALE\n        self.overflows_left = 1"},
    ),
    "the scale is lost with a checkpoint": (
        {"run": fp16(2, 1, power=18), "tail": RESUMED.replace("scheduler.last_epoch = 0", "loss_scaler.scale = 2.0")},
        {"    vars(loss_scaler).update(state[\"loss_scaler\"])\n": ""},
    ),
    "predivision multiplies": (
        {"run": at(1, "fp32", 3, gradient_predivide_factor=4.0)},
        {"(loss / GRADIENT_ACCUMULATION_STEPS)": "(loss / GRADIENT_ACCUMULATION_STEPS / 4)"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("stages"))


@pytest.fixture(scope="module")
def verdicts(bench: Bench) -> dict[str, Verdict]:
    """The verdicts of all cases, run in one launch a side."""
    cases = [bench.case(name, **cell) for name, cell in (EXACT | CLOSE | APPROXIMATE).items()]
    cases += [bench.case(name, edits=edits, **cell) for name, (cell, edits) in EDITS.items()]
    return run_cases(cases)


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
    if name.startswith("as-is-exact"):
        assert bench.overall[name] == "exact"


@pytest.mark.parametrize("name", EDITS)
def test_mutants_are_caught(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Mismatch), verdicts[name]


def test_groups_that_keep_the_weights(bench: Bench) -> None:
    """hpZ, on four ranks in two groups."""
    run = at(3, "fp32", 3, {"zero_hpz_partition_size": 2})
    case = bench.case("hpz", run, tolerance=ACTIVE_CLIP)
    verdict = run_cases([case], ranks=4)["hpz"]
    assert bench.overall["hpz"] == "close"
    assert not isinstance(verdict, Crash), verdict.text
    assert isinstance(verdict, Parity), verdict
