"""Derived facts and `resolve` against what the real DeepSpeed ends up with."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from configs import config_of

from dsconf.config.derive import facts_of
from dsconf.config.resolve import resolve
from dsconf.document.node import UNKNOWN

from .judge import Config, deepspeed, read, torch

pytestmark = pytest.mark.oracle

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
NUMBERS = (None, 1, 2, 3, 4, 6, 16, 48, 64, 128, 8.0, 1.5, True)
PARALLEL: tuple[Config, ...] = (
    {},
    {"tensor_parallel": {"autotp_size": 2}},
    {"sequence_parallel_size": 1},
    {"sequence_parallel_size": 2},
    {"sequence_parallel_size": 3},
)


def value_of(config: Config, world_size: int) -> dict[str, object]:
    return {row.path: row.value for row in resolve(config_of(config, "deepspeed", world_size))}


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("parallel", PARALLEL, ids=str)
def test_the_batch_triangle(parallel: Config, world_size: int) -> None:
    """All branches, with the numbers that DeepSpeed computes, wherever it accepts the three keys."""
    accepted = 0
    for numbers in product(NUMBERS, repeat=3):
        config = {
            name: number for name, number in zip(BATCH, numbers, strict=True) if number is not None
        } | parallel
        real = read(config, world_size)
        problem = facts_of(config_of(config, "deepspeed", world_size)).value("batch_problem")
        if isinstance(real, Exception):
            assert problem is not None, (config, real)
            assert problem is not UNKNOWN, (config, real)
            continue
        accepted += 1
        assert problem is None, config
        found = value_of(config, world_size)
        assert [found[name] for name in BATCH] == [getattr(real, name) for name in BATCH], config
    assert accepted > 50


SECTIONS: tuple[Config, ...] = (
    {},
    {"bf16": {"enabled": True}},
    {"bfloat16": {"enabled": True}},
    {"fp16": {"enabled": True}},
    {"bf16": {"enabled": "auto"}},
    {"zero_optimization": {"stage": 3}},
    {"zero_optimization": {"stage": "3", "overlap_comm": False}},
    {"zero_optimization": {"stage": 2}, "gradient_clipping": 0.5},
    {"zero_optimization": {"stage": 3, "max_live_parameters": 7, "reduce_bucket_size": "auto"}},
    {"zero_optimization": {"stage": 1.0, "offload_optimizer": {"device": "cpu"}}},
)


@pytest.mark.parametrize("config", SECTIONS, ids=str)
def test_resolved_values(config: Config) -> None:
    real = read({"train_micro_batch_size_per_gpu": 1, **config})
    found = value_of({"train_micro_batch_size_per_gpu": 1, **config}, 1)
    assert found["gradient_clipping"] == real.gradient_clipping
    assert found["bf16.enabled"] == real.bfloat16_config.enabled
    assert found["fp16.enabled"] == real.float16_config.enabled
    zero = real.zero_config
    checked = 0
    for path, value in found.items():
        section, _, name = path.partition("zero_optimization.")
        name = name.removeprefix("stage3_") if not hasattr(zero, name) else name
        if (
            section == ""
            and name
            and "." not in name
            and hasattr(zero, name)
            and not name.startswith("offload")
        ):
            ended = getattr(zero, name)
            assert value == getattr(ended, "value", ended), path
            checked += 1
    assert checked > 30


ADAMS = [
    {"type": kind, "params": {"torch_adam": torch_adam, "adam_w_mode": decoupled}}
    for kind in ("Adam", "AdamW", "adam")
    for torch_adam in (False, True)
    for decoupled in (False, True)
]
OTHERS: list[Config] = [{"type": kind, "params": {}} for kind in ("Adagrad", "SGD", "RMSprop", "NAdam")]


@pytest.mark.parametrize("device", ["none", "cpu"])
@pytest.mark.parametrize("optimizer", [*ADAMS, *OTHERS], ids=str)
@pytest.mark.usefixtures("process_group")
def test_the_optimizer_class(optimizer: Config, device: str) -> None:
    """The class, and its weight decay where none is written."""
    config: Config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": optimizer,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": device}},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    facts = facts_of(config_of(config, "deepspeed", 1))
    model = torch.nn.Linear(4, 4)
    engine: Any = deepspeed.initialize(model=model, config=config, model_parameters=list(model.parameters()))[
        0
    ]
    built = engine.basic_optimizer
    name = type(built).__name__
    expected = f"torch.optim.{name}" if type(built).__module__.startswith("torch.") else name
    assert facts.value("optimizer_class") == expected
    group = built.param_groups[0]
    assert facts.value("learning_rate") == group["lr"]
    assert facts.value("weight_decay") == group["weight_decay"]
    assert facts.value("epsilon") == group.get("eps", UNKNOWN)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("written", [None, "fp32"])
@pytest.mark.usefixtures("process_group")
def test_gradient_dtypes(precision: str, written: str | None) -> None:
    config: Config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {}},
        "bf16": {"enabled": precision == "bf16"},
        "zero_optimization": {"stage": 2},
    }
    if written:
        config |= {"communication_data_type": written, "data_types": {"grad_accum_dtype": written}}
    model = torch.nn.Linear(4, 4)
    engine: Any = deepspeed.initialize(model=model, config=config, model_parameters=list(model.parameters()))[
        0
    ]
    names = {torch.float32: "fp32", torch.bfloat16: "bf16"}
    found = value_of(config, 1)
    assert found["communication_data_type"] == names[engine.communication_data_type]
    assert found["data_types.grad_accum_dtype"] == names[engine.get_data_types()[1]]
