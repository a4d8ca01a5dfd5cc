"""The schedules of emitted modules against DeepSpeed's own, step by step."""

from __future__ import annotations

import importlib
from itertools import product
from typing import Any

import pytest
from configs import config_of

from dsconf.formats.deepspeed.arguments import TORCH_SCHEDULERS
from dsconf.formats.deepspeed.read import read
from dsconf.formats.fsdp2.write import write
from dsconf.formats.writing import Request

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:Detected call of"),  # the schedules alone: no optimizer steps
]

Params = dict[str, Any]
LRS = (3e-4, 7e-3)
"""Of two parameter groups."""
STEPS = 300


def optimizer(name: str = "AdamW") -> Any:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in LRS]
    return getattr(torch.optim, name)(groups)


def emitted(name: str, params: Params) -> dict[str, Any]:
    """The definitions of the module that a scheduler section is translated to."""
    reading = read(config_of({"scheduler": {"type": name, "params": params}}))
    assert not [item for item in reading.items if item.key.startswith("scheduler.") and item.value]
    labels = dict.fromkeys(reading.fields.values(), "a key")
    definitions: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(write(reading.plan, Request("x", labels)).text, "emitted", "exec"), definitions)
    return definitions


def deepspeed_schedule(name: str, optim: Any, params: Params) -> Any:
    """What DeepSpeed's engine builds."""
    own = importlib.import_module("deepspeed.runtime.lr_schedules")
    known = own if hasattr(own, name) else torch.optim.lr_scheduler
    return getattr(known, name)(optim, **params)


def state(optim: Any) -> list[Any]:
    return [(group["lr"], group.get("betas")) for group in optim.param_groups]


def course(optim: Any, scheduler: Any, steps: int = STEPS) -> list[list[Any]]:
    """The lr and betas of each group at each step."""
    found = []
    for _ in range(steps):
        found.append(state(optim))
        scheduler.step()
    return found


def courses(name: str, params: Params, kind: str = "AdamW") -> tuple[list[list[Any]], list[list[Any]]]:
    """What DeepSpeed does, and what the emitted module does."""
    first, second = optimizer(kind), optimizer(kind)
    reference = course(first, deepspeed_schedule(name, first, params))
    return reference, course(second, emitted(name, params)["build_scheduler"](second))


def grid(**values: tuple[Any, ...]) -> list[Params]:
    """All combinations; LEFT_OUT leaves a key out."""
    return [
        {key: value for key, value in zip(values, combination, strict=True) if value is not LEFT_OUT}
        for combination in product(*values.values())
    ]


LEFT_OUT = object()
WARMUPS = (1, 2, 3, 40)
SHAPES = (LEFT_OUT, "linear")
TOTALS = (2, 30, 299)

CASES: dict[str, list[Params]] = {
    "WarmupLR": grid(
        warmup_min_lr=(LEFT_OUT, [2e-4]),
        warmup_max_lr=(LEFT_OUT, None, 5e-3),
        warmup_num_steps=(LEFT_OUT, 1, 2, 40),
        warmup_type=(*SHAPES, "no such shape"),
    ),
    "WarmupDecayLR": grid(
        total_num_steps=TOTALS,
        warmup_min_lr=(1e-4,),
        warmup_max_lr=(LEFT_OUT, None, 5e-3),
        warmup_num_steps=WARMUPS,
        warmup_type=SHAPES,
    ),
    "WarmupCosineLR": grid(
        total_num_steps=TOTALS,
        warmup_min_ratio=(LEFT_OUT, 0.3),
        cos_min_ratio=(LEFT_OUT, 0.2),
        warmup_num_steps=WARMUPS,
        warmup_type=SHAPES,
    ),
    "OneCycle": grid(
        cycle_min_lr=(1e-4,),
        cycle_max_lr=(5e-3,),
        cycle_first_step_size=(LEFT_OUT, 1, 7, 50.0),
        cycle_second_step_size=(LEFT_OUT, 0, 90),
        cycle_first_stair_count=(LEFT_OUT, 5),
        cycle_second_stair_count=(LEFT_OUT, 0, 4),
        decay_step_size=(9,),
        decay_lr_rate=(LEFT_OUT, 0.7),
    ),
    "LRRangeTest": grid(
        lr_range_test_min_lr=(LEFT_OUT, 1e-5, [3e-5]),
        lr_range_test_step_size=(LEFT_OUT, 1, 7),
        lr_range_test_step_rate=(LEFT_OUT, 0.0, 2.5),
        lr_range_test_staircase=(LEFT_OUT, True),
    ),
}
MOMENTA = grid(
    cycle_min_lr=(1e-4,),
    cycle_max_lr=(5e-3,),
    cycle_first_step_size=(7,),
    cycle_second_step_size=(90,),
    cycle_first_stair_count=(LEFT_OUT, 5),
    decay_step_size=(LEFT_OUT, 9),
    cycle_momentum=(LEFT_OUT, False),
    cycle_min_mom=(LEFT_OUT, 0.5),
    cycle_max_mom=(0.95,),
    decay_mom_rate=(LEFT_OUT, 0.0001),
)
TORCH: dict[str, Params] = {
    "ConstantLR": {"factor": 0.5, "total_iters": 3},
    "CosineAnnealingLR": {"T_max": 20, "eta_min": 1e-5},
    "CosineAnnealingWarmRestarts": {"T_0": 5, "T_mult": 2},
    "CyclicLR": {"base_lr": 1e-4, "max_lr": 1e-2, "step_size_up": 5, "mode": "triangular2"},
    "ExponentialLR": {"gamma": 0.99},
    "LinearLR": {"start_factor": 0.1, "total_iters": 10},
    "MultiStepLR": {"milestones": [3, 50], "gamma": 0.2},
    "OneCycleLR": {"max_lr": 1e-2, "total_steps": 400, "three_phase": True},
    "PolynomialLR": {"total_iters": 40, "power": 2.0},
    "StepLR": {"step_size": 30},
}


@pytest.mark.parametrize("name", CASES)
def test_every_rate_is_deepspeeds_bit_for_bit(name: str) -> None:
    different = set()
    for params in CASES[name]:
        # With one group a list of one rate per group has one; two groups have the same one here.
        theirs = {key: value * 2 if isinstance(value, list) else value for key, value in params.items()}
        first, second = optimizer(), optimizer()
        reference = course(first, deepspeed_schedule(name, first, theirs))
        found = course(second, emitted(name, params)["build_scheduler"](second))
        moved = [step for step in range(STEPS) if reference[step] != found[step]]
        if moved:
            different.add((str(params), moved[0], str(reference[moved[0]]), str(found[moved[0]])))
    assert not different


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_momentum_moves_as_deepspeeds(kind: str) -> None:
    seen = set()
    for params in MOMENTA:
        reference, found = courses("OneCycle", params, kind)
        assert reference == found, params
        seen |= {str(state) for state in found}
    assert len(seen) > 50


@pytest.mark.parametrize("name", TORCH)
def test_schedules_of_torch(name: str) -> None:
    kind = "SGD" if name == "CyclicLR" else "AdamW"
    if kind == "SGD":
        TORCH[name]["cycle_momentum"] = False
    reference, found = courses(name, TORCH[name], kind)
    assert reference == found
    assert len({str(state) for state in found}) > 1


def test_every_schedule_of_torch_is_here_or_needs_code() -> None:
    needs_code = {"ReduceLROnPlateau", "LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler"}
    assert set(TORCH) | needs_code == set(TORCH_SCHEDULERS)


@pytest.mark.parametrize("name", [*CASES, "StepLR"])
def test_a_schedule_resumes_where_it_was(name: str) -> None:
    params = (CASES | {"StepLR": [TORCH["StepLR"]]})[name][-1]
    build = emitted(name, params)["build_scheduler"]
    first, second = optimizer(), optimizer()
    ahead, resumed = build(first), build(second)
    course(first, ahead, 35)
    saved = ahead.state_dict()
    assert not [value for value in saved.values() if callable(value)]
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(saved)
    assert course(second, resumed) == course(first, ahead)
