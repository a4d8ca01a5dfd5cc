"""Autocast, masters, buffers, inputs and reductions: emitted modules train as DeepSpeed does, as far as they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.context import Context
from dsconf.formats.outcome import FIDELITY, Outcome
from dsconf.translate.run import translate

from .bench import (
    ACTIVE_CLIP,
    AS_IS,
    EVALUATED,
    NEEDS_DEEPSPEED,
    TORCH_ADAMW,
    USUAL,
    Bench,
    Config,
    Edits,
    config,
)
from .compare import PADDING, Crash, Mismatch, Parity, Tolerance, Verdict
from .run import Case, run_cases

pytestmark = NEEDS_DEEPSPEED

Cells = dict[str, dict[str, Any]]

VECTORS = Path(__file__).parent / "vectors.py"
LOSES_BITS = AS_IS["bf16"]
"""16-bit roundings at another place."""
BF16_NORM = Tolerance(loss=5e-3, update=0.05, norm=0.02)
"""The norm of bf16 gradients is rounded to bf16 in torch."""
ONLY_NORM = Tolerance(norm=0.02)
NO_NORM = Tolerance(loss=5e-3, update=0.05, norm=1e5)
"""DeepSpeed reports the norm of gradients that are still scaled."""
NO_SUM: Config = {"data_types": {}}
NO_CLIP: Config = {"gradient_clipping": 0.0}
OFFLOADED: Config = {"offload_optimizer": {"device": "cpu"}}
MASTERS = {"enabled": True, "bf16_master_weights_and_grads": True}
MASTERS_AND_STATES = {**MASTERS, "bf16_optimizer_states": True}


def at(stage: int, precision: str, steps: int, zero: Config | None = None, **changes: Any) -> Config:
    """A config of a stage, with all that `config` puts in motion."""
    return config(precision, steps, zero_optimization={"stage": stage, **(zero or {})}, **changes)


def autocast(
    stage: int, steps: int, dtype: str = "bfloat16", precision: str = "fp32", **section: Any
) -> Config:
    """torch_autocast over a model in fp32."""
    return at(stage, precision, steps, torch_autocast={"enabled": True, "dtype": dtype, **section})


def fp16(stage: int, steps: int, **section: Any) -> Config:
    return at(stage, "fp32", steps, fp16={"enabled": True, "initial_scale_power": 8, **section})


def masters(stage: int, steps: int, section: Config, zero: Config | None = None, **changes: Any) -> Config:
    """bf16 weights under the optimizer."""
    return at(stage, "bf16", steps, zero, bf16=section, **NO_SUM | changes)


EXACT: Cells = {
    "autocast-stage0-gas1": {"run": autocast(0, 1)},
    "autocast-stage0-gas3": {"run": autocast(0, 3), "tail": EVALUATED},
    **{
        f"autocast-reduced-in-fp32-stage{stage}": {
            "run": autocast(stage, 3, lower_precision_safe_modules=[]),
            "tail": EVALUATED,
        }
        for stage in (1, 2, 3)
    },
    "autocast-in-bf16-stage2": {"run": autocast(2, 3, precision="bf16"), "load_dtype": "bfloat16"},
    "autocast-in-bf16-stage3": {"run": autocast(3, 1, precision="bf16")},
    **{
        f"sum-stage{stage}": {"run": at(stage, "fp32", 3, gradient_allreduce_op="sum")} for stage in (0, 1, 2)
    },
    "sum-bf16": {"run": at(2, "bf16", 3, gradient_allreduce_op="SUM")},
    "mean": {"run": at(2, "fp32", 3, gradient_allreduce_op="mean")},
    "buffers-cast": {"run": at(3, "bf16", 1, data_types={"buffer_dtype": "bf16"})},
    "buffers-cast-fp16": {"run": fp16(2, 1) | {"data_types": {"buffer_dtype": "float16"}}},
    "buffers-kept": {
        "run": at(1, "bf16", 1, data_types={"buffer_dtype": "bf16", "keep_in_fp32_modules": ["x", "t*le"]})
    },
    "buffers-widened": {
        "run": at(3, "bf16", 1, data_types={"keep_in_fp32_modules": ["table"]}),
        "load_dtype": "bfloat16",
    },
    "buffers-of-fp32": {"run": at(2, "fp32", 1, data_types={"buffer_dtype": "bf16"})},
    "inputs-cast": {"run": fp16(2, 1, auto_cast=True), "workload": VECTORS},
    "inputs-cast-stage3": {"run": fp16(3, 1, auto_cast=True, loss_scale=64), "workload": VECTORS},
    **{
        f"masters-stage{stage}-gas{steps}": {
            "run": masters(stage, steps, MASTERS_AND_STATES, optimizer=TORCH_ADAMW),
            "tolerance": ONLY_NORM,
        }
        for stage, steps in ((1, 3), (2, 1), (2, 3), (3, 3))
    },
    "masters-of-wide-sum-stage1": {"run": at(1, "bf16", 1, bf16=MASTERS_AND_STATES)},
    **{
        f"fp32-reduced-in-bf16-stage{stage}": {"run": at(stage, "fp32", 3, communication_data_type="bf16")}
        for stage in (2, 3)
    },
    "predivide-stage3": {
        "run": at(3, "fp32", 3, {"reduce_scatter": False}, gradient_predivide_factor=4.0),
    },
    "prescale-stage3": {
        "run": at(
            3, "fp32", 3, {"reduce_scatter": False}, prescale_gradients=True, gradient_predivide_factor=2.0
        ),
    },
}
"""Runs whose losses and weights have to be equal bit for bit."""

_CLOSE: Cells = {
    **{
        f"autocast-stage{stage}-gas{steps}": {"run": autocast(stage, steps)}
        for stage, steps in ((1, 1), (1, 3), (2, 3), (3, 3))
    },
    "autocast-some-modules": {"run": autocast(2, 3, lower_precision_safe_modules=["torch.nn.Embedding"])},
    "autocast-of-bf16-weights": {"run": autocast(2, 1), "load_dtype": "bfloat16"},
    **{
        f"as-is-autocast-stage{stage}": {"run": autocast(stage, 3) | USUAL, "exact": False}
        for stage in (1, 3)
    },
    **{
        f"fp32-reduced-in-{dtype}-stage{stage}": {"run": at(stage, "fp32", 3, communication_data_type=dtype)}
        for dtype, stage in (("fp16", 0), ("bf16", 1), ("fp16", 2), ("fp16", 3))
    },
    **{
        f"bf16-reduced-in-fp16-stage{stage}-gas{steps}": {
            "run": at(stage, "bf16", steps, communication_data_type="fp16", **changes)
        }
        for stage, steps, changes in ((1, 3, Config()), (1, 1, NO_SUM), (2, 3, NO_SUM), (3, 3, Config()))
    },
    "fp16-reduced-in-bf16": {"run": fp16(2, 3) | {"communication_data_type": "bf16"}},
    **{
        f"fp32-added-up-in-bf16-stage{stage}": {
            "run": at(stage, "fp32", 3, data_types={"grad_accum_dtype": "bf16"})
        }
        for stage in (1, 2, 3)
    },
    **{
        f"bf16-added-up-in-fp16-stage{stage}": {
            "run": at(stage, "bf16", 3, data_types={"grad_accum_dtype": "fp16"})
        }
        for stage in (1, 3)
    },
    **{
        f"as-is-masters-stage{stage}": {
            "run": masters(stage, 3, MASTERS_AND_STATES, gradient_clipping=1.0),
            "exact": False,
            "tolerance": BF16_NORM,
        }
        for stage in (1, 3)
    },
    "masters-wide-sum": {
        "run": at(2, "bf16", 3, bf16=MASTERS_AND_STATES, optimizer=TORCH_ADAMW),
        "tolerance": BF16_NORM,
    },
}
CLOSE: Cells = {name: {"tolerance": LOSES_BITS, **cell} for name, cell in _CLOSE.items()}
"""Runs that differ by rounding only."""

APPROXIMATE: Cells = {
    "masters-offloaded": {
        "run": masters(2, 3, MASTERS, OFFLOADED),
        "exact": False,
        "tolerance": BF16_NORM,
    },
    "masters-and-states-offloaded": {
        "run": masters(3, 3, MASTERS_AND_STATES, OFFLOADED),
        "exact": False,
        "tolerance": BF16_NORM,
    },
    "autocast-fp16-stage0": {"run": autocast(0, 3, "fp16"), "tolerance": LOSES_BITS},
    **{
        f"autocast-fp16-stage{stage}": {"run": autocast(stage, 3, "fp16") | NO_CLIP, "tolerance": NO_NORM}
        for stage in (1, 2, 3)
    },
}
"""Runs in which DeepSpeed does something that the emitted code leaves out."""

MEASURED: dict[str, Outcome] = {
    **dict.fromkeys(EXACT, "exact"),
    **dict.fromkeys(CLOSE, "close"),
    **dict.fromkeys(APPROXIMATE, "approximate"),
}

EDITS: dict[str, tuple[dict[str, Any], Edits]] = {
    "no autocast": (
        {"run": autocast(0, 1)},
        {"    model.forward = torch.autocast(device.type, dtype=AUTOCAST_DTYPE)(model.forward)\n": "    pass\n"},
    ),
    "autocast to another dtype": (
        {"run": autocast(1, 3, lower_precision_safe_modules=[])},
        {"AUTOCAST_DTYPE = torch.bfloat16": "AUTOCAST_DTYPE = torch.float16"},
    ),
    "all reduced in bf16": (
        {"run": autocast(2, 3, lower_precision_safe_modules=[])},
        {"reduce_dtype=torch.float32": "reduce_dtype=torch.bfloat16"},
    ),
    "gradients averaged": (
        {"run": at(2, "fp32", 3, gradient_allreduce_op="sum")},
        {"module.set_gradient_divide_factor(1.0)": "module.set_gradient_divide_factor(2.0)"},
    ),
    "only the root sums": (
        {"run": at(1, "fp32", 3, gradient_allreduce_op="sum")},
        {"    for module in model.modules():\n        if isinstance(module, FSDPModule):\n            module.set_g": (
            "    for module in [model]:\n        if isinstance(module, FSDPModule):\n            module.set_g"
        )},
    ),
    "buffers stay": (
        {"run": at(3, "bf16", 1, data_types={"buffer_dtype": "bf16"})},
        {"buffer.data = buffer.data.to(BUFFER_DTYPE)": "pass"},
    ),
    "all buffers cast": (
        {"run": at(1, "bf16", 1, data_types={"buffer_dtype": "bf16", "keep_in_fp32_modules": ["table"]})},
        {"torch.float32 if re.search(FP32_BUFFERS, name) else BUFFER_DTYPE": "BUFFER_DTYPE"},
    ),
    "fp32 masters": (
        {"run": masters(2, 1, MASTERS_AND_STATES, optimizer=TORCH_ADAMW), "tolerance": Tolerance(norm=0.02)},
        {"        param.data = param.data.to(PARAM_DTYPE)": "        param.data = param.data.to(PARAM_DTYPE).float()"},
    ),
    "reduced in fp32": (
        {"run": at(3, "fp32", 3, communication_data_type="bf16")},
        {"REDUCE_DTYPE = torch.bfloat16": "REDUCE_DTYPE = torch.float32"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("precision"))


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


@pytest.mark.parametrize("name", MEASURED)
def test_the_report_promises_no_more_than_was_measured(
    bench: Bench, verdicts: dict[str, Verdict], name: str
) -> None:
    assert verdicts[name]
    assert FIDELITY.index(bench.overall[name]) >= FIDELITY.index(MEASURED[name])


@pytest.mark.parametrize("name", EDITS)
def test_mutants_are_caught(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Mismatch), verdicts[name]


def test_inputs_that_are_not_cast_are_refused(bench: Bench) -> None:
    """Without the hook the first layer of the model raises, as it does in DeepSpeed without auto_cast."""
    edits = {
        "    model.register_forward_pre_hook(lambda module, inputs: cast_inputs(inputs))\n": "    pass\n"
    }
    case = bench.case("inputs not cast", fp16(2, 1, auto_cast=True), edits=edits, workload=VECTORS)
    verdict = run_cases([case])["inputs not cast"]
    assert isinstance(verdict, Crash)
    assert (verdict.side, "dtype" in verdict.text) == ("module", True)


def test_predivision_by_the_number_of_ranks(bench: Bench) -> None:
    """DeepSpeed halves its gradients at ZeRO-3 where the factor is the number of ranks, and the report says so."""
    run = at(3, "fp32", 3, {"reduce_scatter": False}, gradient_predivide_factor=2.0)
    case = bench.case("predivide-ranks", run, tolerance=Tolerance(loss=1.0, update=1.0, norm=1.1))
    verdict = run_cases([case])["predivide-ranks"]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.norm == pytest.approx(1.0, abs=1e-3)
    assert bench.overall["predivide-ranks"] == "approximate"


def test_groups_of_mics(bench: Bench) -> None:
    """DeepSpeed 0.18.9's MiCS, on four ranks in two groups, against ZeRO-3 of the newest DeepSpeed."""
    run = at(3, "fp32", 3)
    source = bench.folder / "mics.json"
    source.write_text(
        json.dumps(run | {"zero_optimization": {"stage": 3, "mics_shard_size": 2}}), encoding="utf-8"
    )
    done = translate(str(source), "fsdp2", Context(deepspeed_version="0.18.9"), {}, ())
    assert done.report.overall == "close"
    module = source.with_suffix(".py")
    module.write_text(done.text, encoding="utf-8")
    bounds = replace(ACTIVE_CLIP, moments=1.1)
    case = Case(id="mics", config=run, module=module, steps=8, exact=True, tolerance=bounds)
    verdict = run_cases([case], ranks=4)["mics"]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.moments == pytest.approx(1, abs=PADDING)  # each group holds the whole state
