"""What --model adds to a module: the blocks of a known model, and experts that a rank leaves unused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.context import Context, Model
from dsconf.translate.run import translate

from .bench import AS_IS, LLAMA, NEEDS_DEEPSPEED, RESUMED, USUAL, Bench, Config, Translator, config
from .compare import Crash, Mismatch, Parity, Tolerance, Verdict
from .run import run_cases

pytestmark = NEEDS_DEEPSPEED

HERE = Path(__file__).parent
EXPERTS, MIXTRAL, QWEN3 = HERE / "moe.py", HERE / "mixtral.py", HERE / "qwen3.py"
REDUCED = (
    "    assert isinstance(model, FSDPModule)\n"
    "    model.set_reduce_scatter_unused_params(True)  # an expert without tokens has no gradient on that rank\n"
)


def of(model_type: str, *blocks: str, tied: bool | None = None, **context: Any) -> Translator:
    """A translation for a model."""
    known = Context(model=Model(model_type=model_type, tied=tied), **context)
    return lambda path: translate(path, "fsdp2", known, {}, blocks)


MODELS: dict[str, Translator] = {
    "llama": of("llama", tied=True),
    "untied": of("llama"),
    "experts": of("switch_transformers", "Block"),
    "mixtral": of("mixtral"),
    "qwen3": of("qwen3"),
    "new mixtral": of("mixtral", transformers_version="5.24.0", torch_version="2.9"),
}


def at(stage: int, precision: str, steps: int, **changes: Any) -> Config:
    """A config of a stage."""
    return config(precision, steps, zero_optimization={"stage": stage}, **changes)


EXACT: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-stage2": ("llama", {"run": at(2, "bf16", 3), "workload": LLAMA, "load_dtype": "bfloat16"}),
    "llama-stage3": ("llama", {"run": at(3, "bf16", 3), "workload": LLAMA}),
    "experts-stage1": ("experts", {"run": at(1, "bf16", 3, data_types={}), "workload": EXPERTS}),
    "experts-stage2": ("experts", {"run": at(2, "fp32", 3), "workload": EXPERTS}),
    "experts-stage3": ("experts", {"run": at(3, "bf16", 3), "workload": EXPERTS}),
    "mixtral-stage2": ("mixtral", {"run": at(2, "fp32", 1), "workload": MIXTRAL}),
    "new-mixtral-stage2": ("new mixtral", {"run": at(2, "bf16", 3), "workload": MIXTRAL}),
}
"""Runs whose losses and weights have to be equal bit for bit, by model."""

SOME_BITS = Tolerance(loss=2e-6, update=1e-3, norm=1e-5)
CLOSE: dict[str, tuple[str, dict[str, Any]]] = {
    # The last bit of a matrix product depends on how its operands lie in memory.
    "llama-fp32-stage3": ("llama", {"run": at(3, "fp32", 3), "workload": LLAMA, "tolerance": AS_IS["fp32"]}),
    "mixtral-stage3": ("mixtral", {"run": at(3, "fp32", 1), "workload": MIXTRAL, "tolerance": SOME_BITS}),
    "as-is-llama": (
        "llama",
        {"run": at(3, "bf16", 3, **USUAL), "workload": LLAMA, "exact": False, "tolerance": AS_IS["bf16"]},
    ),
}
"""Runs that differ by rounding only."""

GROUP: Config = {"tensor_parallel": {"autotp_size": 2}}


def divided(model: str, precision: str, stage: int, steps: int, **cell: Any) -> tuple[str, dict[str, Any]]:
    """A cell in which two ranks divide the layers."""
    run = at(stage, precision, steps, **GROUP, **cell.pop("changes", {}))
    workload = QWEN3 if model == "qwen3" else LLAMA
    bounds = SOME_BITS if precision == "fp32" else AS_IS["bf16"]
    return model, {"run": run, "workload": workload, "tolerance": bounds, **cell}


TENSOR: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor-stage0": divided("qwen3", "fp32", 0, 3),
    "tensor-stage1": divided("qwen3", "fp32", 1, 3),
    "tensor-stage2": divided("qwen3", "fp32", 2, 1),
    "tensor-stage3": divided("qwen3", "fp32", 3, 3),
    "tensor-clipped": divided("qwen3", "fp32", 1, 3, changes={"gradient_clipping": 0.1}),
    "tensor-resumed": divided("qwen3", "fp32", 2, 1, tail=RESUMED),
    "tensor-bf16-stage1": divided("qwen3", "bf16", 1, 3, changes={"data_types": {}}),
    "tensor-bf16-stage2": divided("qwen3", "bf16", 2, 3, load_dtype="bfloat16"),
    "tensor-overflow": divided("qwen3", "bf16", 2, 3, inf_at=3),
    # The tied weight stays whole on both ranks: a copy more of 2144 elements than DeepSpeed's 17824.
    "tensor-tied": divided("llama", "fp32", 2, 3, tolerance=replace(SOME_BITS, moments=0.13)),
    "tensor-as-is": divided("qwen3", "bf16", 1, 3, exact=False, changes=USUAL),
}
"""Runs with tensor parallelism over both ranks; sums over the group round differently."""

BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a tied head is divided": divided("untied", "fp32", 2, 3),
    "the norm of one mesh": divided(
        "qwen3", "fp32", 1, 1, edits={"for grads in by_mesh.values()": "for grads in [*by_mesh.values()][:1]"}
    ),
}
"""Modules that train something else."""


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    folder = tmp_path_factory.mktemp("models")
    return {name: Bench(folder, translation=translation) for name, translation in MODELS.items()}


@pytest.fixture(scope="module")
def verdicts(benches: dict[str, Bench]) -> dict[str, Verdict]:
    """The verdicts of all cases, run in one launch a side."""
    cases = [benches[model].case(name, **cell) for name, (model, cell) in (EXACT | CLOSE | TENSOR).items()]
    unused = benches["experts"].case("unused", at(2, "fp32", 3), edits={REDUCED: ""}, workload=EXPERTS)
    cases += [benches[model].case(name, **cell) for name, (model, cell) in BROKEN.items()]
    return run_cases([*cases, unused])


@pytest.mark.parametrize("name", EXACT)
def test_trains_bit_for_bit(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.loss == verdict.differences.update == 0


@pytest.mark.parametrize("name", [*CLOSE, *TENSOR])
def test_trains_within_its_bounds(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


@pytest.mark.parametrize("name", BROKEN)
def test_mutants_are_caught(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Mismatch), verdicts[name]


def test_groups_that_see_different_data(benches: dict[str, Bench]) -> None:
    """Two groups of two ranks."""
    model, cell = divided("qwen3", "fp32", 2, 3)
    verdict = run_cases([benches[model].case("groups", **cell)], ranks=4)["groups"]
    assert not isinstance(verdict, Crash), verdict.text
    assert isinstance(verdict, Parity), verdict


def test_experts_that_a_rank_leaves_unused_need_their_zeros(verdicts: dict[str, Verdict]) -> None:
    """Without them ranks reduce gradients of different experts together, or of different lengths."""
    verdict = verdicts["unused"]
    assert isinstance(verdict, Mismatch) or (isinstance(verdict, Crash) and verdict.side == "module"), verdict


@pytest.mark.parametrize("name", [*CLOSE, *TENSOR])
def test_the_report_calls_it_close(
    benches: dict[str, Bench], verdicts: dict[str, Verdict], name: str
) -> None:
    assert verdicts[name]
    assert benches[(CLOSE | TENSOR)[name][0]].overall[name] == "close"
