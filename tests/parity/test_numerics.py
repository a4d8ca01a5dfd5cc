"""What `--numerics pytorch` changes, module against module, is what the report says of it."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.formats.outcome import FIDELITY
from dsconf.translate.numerics import MEASURED

from .bench import AS_IS, NEEDS_DEEPSPEED, TORCH_ADAMW, Bench, Config, config
from .compare import Crash, Differences, Parity, Tolerance, compare, judge
from .run import Result, run_cells

pytestmark = NEEDS_DEEPSPEED

USUAL: Config = {"gradient_clipping": 1.0, "data_types": {}}
SGD = {"type": "SGD", "params": {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}}


def at(stage: int, precision: str = "bf16", steps: int = 3, **changes: Any) -> Config:
    return config(precision, steps, **({"zero_optimization": {"stage": stage}} | USUAL | changes))


UNROUNDED = Tolerance(loss=5e-3, update=0.25, norm=2e-3)
"""What the report says of "close" in 16 bits; weights that start unrounded end elsewhere by that much."""

CELLS: dict[str, dict[str, Any]] = {
    **{f"bf16-stage{stage}": {"run": at(stage)} for stage in range(4)},
    "bf16-gas1": {"run": at(3, steps=1)},
    "bf16-loaded": {"run": at(2), "load_dtype": "bfloat16"},
    "bf16-clipped": {"run": at(3, gradient_clipping=0.1)},
    "bf16-sgd": {"run": at(3, optimizer=SGD, zero_allow_untested_optimizer=True)},
    "bf16-torch-adam": {"run": at(1, optimizer=TORCH_ADAMW)},
    "bf16-autocast": {
        "run": at(2, "fp32", torch_autocast={"enabled": True, "dtype": "bfloat16"}),
    },
    "bf16-reduction": {"run": at(2, "fp32", communication_data_type="bf16")},
    "fp16-static": {
        "run": at(2, fp16={"enabled": True, "loss_scale": 64}, bf16={"enabled": False}),
    },
    "fp32-stage2": {"run": at(2, "fp32")},
    "fp32-stage3": {"run": at(3, "fp32")},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("numerics"))


@pytest.fixture(scope="module")
def results(bench: Bench) -> dict[str, Result]:
    """A record of DeepSpeed and of both modules, for each cell."""
    cells = []
    for name, settings in CELLS.items():
        for numerics in ("deepspeed", "pytorch"):
            case = bench.case(f"{name} {numerics}", numerics=numerics, **{"exact": False, **settings})
            cells.append(case.cell("module"))
        cells.append(case.cell("deepspeed"))
    return run_cells(cells)


def differences(results: dict[str, Result], name: str) -> Differences:
    kept, chosen = (results[f"{name} {numerics} [module]"] for numerics in ("deepspeed", "pytorch"))
    assert not isinstance(kept, Crash), kept
    assert not isinstance(chosen, Crash), chosen
    return compare(kept, chosen)


@pytest.mark.parametrize("name", CELLS)
def test_the_choices_differ_by_what_the_report_says(results: dict[str, Result], name: str) -> None:
    found = differences(results, name)
    assert found.loss <= MEASURED.get(name.partition("-")[0], 0.0)
    assert found.lr == 0
    assert not found.faults


@pytest.mark.parametrize("precision", MEASURED)
def test_the_bound_is_no_wild_guess(results: dict[str, Result], precision: str) -> None:
    """Some cell comes near it: a tenth at least."""
    worst = max(differences(results, name).loss for name in CELLS if name.startswith(precision))
    assert worst > MEASURED[precision] / 10


@pytest.mark.parametrize("name", [name for name in CELLS if name.startswith("fp32")])
def test_units_of_their_own_change_no_bit(results: dict[str, Result], name: str) -> None:
    assert (differences(results, name).loss, differences(results, name).update) == (0, 0)


@pytest.mark.parametrize("name", CELLS)
def test_pytorch_numerics_stay_near_deepspeed(bench: Bench, results: dict[str, Result], name: str) -> None:
    """They are called close, as the other choice is, and are within the same bounds."""
    precision = name.partition("-")[0]
    reference, candidate = results[f"{name} pytorch [deepspeed]"], results[f"{name} pytorch [module]"]
    overall = bench.overall[f"{name} pytorch"]
    assert FIDELITY.index(overall) >= FIDELITY.index("close")
    if overall == "close":
        bounds = AS_IS["fp32"] if precision == "fp32" else UNROUNDED
        assert isinstance(judge(reference, candidate, bounds), Parity)
