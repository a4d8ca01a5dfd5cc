"""What is written as a DeepSpeed config, against the real DeepSpeed: it takes it, and builds what the Plan says."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from configs import config_of as config_from
from corpus import configs, needs_corpus
from filling import values_for
from plans import random_plan

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.read import read
from dsconf.formats.deepspeed.write import config_of as written
from dsconf.formats.fsdp2 import read as fsdp2
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import open_document
from dsconf.plan import (
    Batch,
    Clipping,
    LossScaling,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Sharding,
    TorchSchedule,
)

from .engine import initialize, refused, step
from .judge import deepspeed, ds_config, torch
from .judge import read as deepspeed_reads

pytestmark = pytest.mark.oracle

FIXTURES = Path(__file__).parents[2] / "fixtures" / "fsdp2"
WORLD = 4
"""Ranks that random Plans are for; groups of 2 divide them."""


def refusal(config: dict[str, Any], world_size: int) -> Exception | None:
    """Why DeepSpeedConfig refuses a config, if it does."""
    try:
        deepspeed_reads(json.loads(json.dumps(config)), world_size)
    except Exception as error:
        return error
    return None


def test_deepspeed_reads_every_random_config() -> None:
    found = {seed: refusal(written(random_plan(Random(seed))), WORLD) for seed in range(400)}
    assert {seed: error for seed, error in found.items() if error} == {}


@needs_corpus
def test_deepspeed_reads_every_public_config_again() -> None:
    """Each in the world that its batch sizes are for; where no size is given somebody else adds one."""
    distinct: dict[str, int] = {}
    for path in configs():
        try:
            reading = read(config_of(open_document(str(path), Context()), Context(), values_for(path)))
        except Unusable:
            continue
        if any(item.outcome == "unsupported" for item in reading.items):
            continue
        config = written(reading.plan)
        if reading.plan.batch.micro is None and reading.plan.batch.total is None:
            config["train_micro_batch_size_per_gpu"] = 1
        distinct[json.dumps(config)] = reading.plan.batch.world_size or 1
    assert len(distinct) > 100
    found = {text: refusal(json.loads(text), world) for text, world in distinct.items()}
    assert {text: error for text, error in found.items() if error} == {}


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.py")), ids=lambda path: path.stem)
def test_deepspeed_reads_the_config_of_code_written_by_hand(path: Path) -> None:
    """With the size of a batch, and a value for what only its run knows."""
    config = written(fsdp2.read(path.read_text(encoding="utf-8"), str(path)).plan)
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, **config})
    filled = json.loads(text.replace('"fp16": {"enabled": "auto"}', '"fp16": {}').replace('"auto"', "1"))
    assert refusal(filled, 8) is None


# ---- engines ---------------------------------------------------------------------------------------------------------

ADAM = {"lr": 0.25, "betas": (0.5, 0.75), "eps": 1e-4, "weight_decay": 0.125}
BASE = Plan(
    batch=Batch(micro=1, accumulation=1),
    sharding=Sharding(partition="gradients", reshard_after_forward=False),
    optimizer=Optimizer(name="AdamW", arguments=dict(ADAM)),
)
BF16 = Precision(compute="bf16", reduce="fp32", accumulate="fp32")


def plan(**changes: Any) -> Plan:
    return BASE.model_copy(update=changes)


PLANS = {
    "fp32": plan(),
    "stage 0": plan(sharding=Sharding(reshard_after_forward=False)),
    "stage 3": plan(sharding=Sharding(partition="parameters"), precision=BF16),
    "offload": plan(
        sharding=Sharding(partition="parameters"),
        offload=Offload(parameters=True, optimizer=True),
        precision=BF16,
    ),
    "adam": plan(optimizer=Optimizer(name="Adam", arguments=dict(ADAM))),
    "sgd": plan(optimizer=Optimizer(name="SGD", arguments={"lr": 0.5, "momentum": 0.5, "nesterov": True})),
    "adagrad": plan(optimizer=Optimizer(name="Adagrad", arguments={"lr": 0.5, "lr_decay": 0.25})),
    "narrow": plan(precision=Precision(compute="bf16", masters="bf16")),
    "unchecked": plan(precision=Precision(compute="bf16"), clipping=Clipping(skips_not_finite=False)),
    "sum": plan(sharding=Sharding(partition="optimizer", reshard_after_forward=False, sums_gradients=True)),
    "clipped": plan(clipping=Clipping(max_norm=0.5)),
}


@pytest.fixture(scope="module")
def engines(process_group: None) -> dict[str, Any]:
    return {name: initialize(written(each)) for name, each in PLANS.items()}


@pytest.mark.parametrize("name", PLANS)
def test_deepspeed_takes_it_and_steps(engines: dict[str, Any], name: str) -> None:
    engine = engines[name]
    assert not refused(engine), engine
    assert step(engine) is None


@pytest.mark.parametrize("name", PLANS)
def test_the_engine_has_the_optimizer_of_the_plan(engines: dict[str, Any], name: str) -> None:
    optimizer = PLANS[name].optimizer
    assert optimizer is not None
    built = engines[name].basic_optimizer
    assert type(built).__name__ == optimizer.name
    (group,) = built.param_groups
    assert {argument: group[argument] for argument in optimizer.arguments} == optimizer.arguments


@pytest.mark.parametrize("name", PLANS)
def test_the_engine_clips_as_the_plan_says(engines: dict[str, Any], name: str) -> None:
    assert engines[name].gradient_clipping() == (PLANS[name].clipping.max_norm or 0.0)


@pytest.mark.parametrize(
    ("name", "compute", "accumulate", "reduce"),
    [
        ("fp32", torch.float32, torch.float32, torch.float32),
        ("stage 3", torch.bfloat16, torch.float32, torch.float32),
        ("narrow", torch.bfloat16, torch.bfloat16, torch.bfloat16),
    ],
)
def test_the_engine_has_the_dtypes_of_the_plan(
    engines: dict[str, Any], name: str, compute: Any, accumulate: Any, reduce: Any
) -> None:
    engine = engines[name]
    assert engine.get_data_types() == (compute, accumulate)
    assert engine.communication_data_type == reduce
    assert next(engine.module.parameters()).dtype == compute


def test_masters_in_bf16_have_moments_in_bf16(engines: dict[str, Any]) -> None:
    states = engines["narrow"].optimizer.optimizer.state.values()
    assert {state["exp_avg"].dtype for state in states} == {torch.bfloat16}


def test_a_step_that_nobody_checks_spoils_the_weights(process_group: None) -> None:
    """As in code that looks at no norm; checked, they stay as they are."""
    spoilt = {}
    for checked in (False, True):
        clipping = Clipping(skips_not_finite=checked)
        engine = initialize(written(plan(precision=Precision(compute="bf16"), clipping=clipping)))
        engine.backward(engine(torch.ones(1, 4, dtype=torch.bfloat16)).float().sum() * float("inf"))
        engine.step()
        spoilt[checked] = any(weight.isnan().any().item() for weight in engine.module.parameters())
    assert spoilt == {False: True, True: False}


def test_a_scheduler_of_the_script_moves_the_rate(process_group: None) -> None:
    """What lands of a schedule that no config holds: deepspeed.initialize takes a callable, engine.step() steps it."""
    schedule = TorchSchedule(name="StepLR", arguments={"step_size": 1, "gamma": 0.5})
    config = written(plan(schedule=schedule))
    assert "scheduler" not in config
    model = torch.nn.Linear(4, 4)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config=config,
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, **schedule.arguments),
    )
    rates = []
    for _ in range(3):
        rates.append(engine.optimizer.param_groups[0]["lr"])
        assert step(engine) is None
    assert rates == [0.25, 0.125, 0.0625]


def test_the_scale_of_the_loss() -> None:
    scaling = LossScaling(scale=4096.0, window=500, hysteresis=1, refill=True, minimum=2.0)
    precision = Precision(compute="fp16", scaling=scaling)
    section = ds_config.DeepSpeedConfig(written(plan(precision=precision))).float16_config
    assert section.dynamic_loss_scale_args() == {
        "init_scale": 4096,
        "scale_window": 500,
        "delayed_shift": 1,
        "consecutive_hysteresis": True,
        "min_scale": 2,
    }


def test_every_random_config_is_read_by_lint_as_deepspeed_reads_it() -> None:
    """The stage that a Plan asks for is the one that DeepSpeed has."""
    for seed in range(100):
        config = written(random_plan(Random(seed)))
        stage = read(config_from(config)).plan.sharding.partition
        real = deepspeed_reads(config, WORLD).zero_optimization_stage
        assert ("nothing", "optimizer", "gradients", "parameters")[real] == stage


def kept_by_graph(output: Any) -> int:
    """The bytes of all tensors that the graph of a forward pass keeps for the backward pass."""
    storages, stack, seen = {}, [output.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        saved = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        for tensor in [*saved, *getattr(node, "saved_tensors", ())]:
            if isinstance(tensor, torch.Tensor):
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        stack += [below for below, _ in node.next_functions]
    return sum(storages.values())


def test_torchs_linear_keeps_every_gathered_weight(
    process_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why it is not written for FSDP2 code, which frees them and rounds as torch does."""
    kept = {}
    for keeps in (True, False):
        # DeepSpeed replaces it for the whole process.
        monkeypatch.setattr(torch.nn.functional, "linear", torch._C._nn.linear)
        sharding = Sharding(partition="parameters", own_linear=False, keeps_gathered=keeps)
        config = written(plan(sharding=sharding, precision=BF16))
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
        layers = [torch.nn.Linear(64, 64, bias=False) for _ in range(4)]
        engine = initialize(config, torch.nn.Sequential(*layers))
        kept[keeps] = kept_by_graph(engine(torch.ones(1, 64, dtype=torch.bfloat16)))
    weights = 4 * 64 * 64 * 2
    assert kept[True] >= weights
    assert kept[False] < weights / 4
