"""What --model adds to a module: the blocks of a known model, and experts that a rank leaves unused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsconf.config.context import Context, Model
from dsconf.translate.run import translate

from .bench import AS_IS, LLAMA, NEEDS_DEEPSPEED, USUAL, Bench, Config, Translator, config
from .compare import Crash, Mismatch, Parity, Verdict
from .run import run_cases

pytestmark = NEEDS_DEEPSPEED

HERE = Path(__file__).parent
EXPERTS, MIXTRAL = HERE / "moe.py", HERE / "mixtral.py"
REDUCED = (
    "    assert isinstance(model, FSDPModule)\n"
    "    model.set_reduce_scatter_unused_params(True)  # an expert without tokens has no gradient on that rank\n"
)


def of(model_type: str, *blocks: str, **context: Any) -> Translator:
    """A translation for a model."""
    known = Context(model=Model(model_type=model_type), **context)
    return lambda path: translate(path, "fsdp2", known, {}, blocks)


MODELS: dict[str, Translator] = {
    "llama": of("llama"),
    "experts": of("switch_transformers", "Block"),
    "mixtral": of("mixtral"),
    "new mixtral": of("mixtral", transformers_version="5.24.0", torch_version="2.9"),
}


def at(stage: int, precision: str, steps: int, **changes: Any) -> Config:
    """A config of a stage."""
    return config(precision, steps, zero_optimization={"stage": stage}, **changes)


EXACT: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-stage2": ("llama", {"run": at(2, "bf16", 3), "workload": LLAMA, "load_dtype": "bfloat16"}),
    "llama-stage3": ("llama", {"run": at(3, "fp32", 3), "workload": LLAMA}),
    "experts-stage1": ("experts", {"run": at(1, "bf16", 3, data_types={}), "workload": EXPERTS}),
    "experts-stage2": ("experts", {"run": at(2, "fp32", 3), "workload": EXPERTS}),
    "experts-stage3": ("experts", {"run": at(3, "bf16", 3), "workload": EXPERTS}),
    "mixtral-stage3": ("mixtral", {"run": at(3, "fp32", 1), "workload": MIXTRAL}),
    "new-mixtral-stage2": ("new mixtral", {"run": at(2, "bf16", 3), "workload": MIXTRAL}),
    "new-mixtral-stage3": ("new mixtral", {"run": at(3, "fp32", 3), "workload": MIXTRAL}),
}
"""Runs whose losses and weights have to be equal bit for bit, by model."""

CLOSE: dict[str, tuple[str, dict[str, Any]]] = {
    "as-is-llama": (
        "llama",
        {"run": at(3, "bf16", 3, **USUAL), "workload": LLAMA, "exact": False, "tolerance": AS_IS["bf16"]},
    ),
}
"""Runs that differ by rounding only."""


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    folder = tmp_path_factory.mktemp("models")
    return {name: Bench(folder, translation) for name, translation in MODELS.items()}


@pytest.fixture(scope="module")
def verdicts(benches: dict[str, Bench]) -> dict[str, Verdict]:
    """The verdicts of all cases, run in one launch a side."""
    cases = [benches[model].case(name, **cell) for name, (model, cell) in (EXACT | CLOSE).items()]
    unused = benches["experts"].case("unused", at(2, "fp32", 3), edits={REDUCED: ""}, workload=EXPERTS)
    return run_cases([*cases, unused])


@pytest.mark.parametrize("name", EXACT)
def test_trains_bit_for_bit(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.loss == verdict.differences.update == 0


@pytest.mark.parametrize("name", CLOSE)
def test_trains_within_its_bounds(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


def test_experts_that_a_rank_leaves_unused_need_their_zeros(verdicts: dict[str, Verdict]) -> None:
    """Without them ranks reduce gradients of different experts together, or of different lengths."""
    verdict = verdicts["unused"]
    assert isinstance(verdict, Mismatch) or (isinstance(verdict, Crash) and verdict.side == "module"), verdict
