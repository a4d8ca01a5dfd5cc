"""What the reader of FSDP2 code knows of torch's signatures is what torch has."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.optim import lr_scheduler

from dsconf.formats.fsdp2 import read_optimizer, read_schedule
from dsconf.plan import OPTIMIZERS

pytestmark = pytest.mark.oracle


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    return found


@pytest.mark.parametrize("name", read_optimizer.TORCH)
def test_optimizers(name: str) -> None:
    taken = parameters(getattr(torch.optim, name).__init__)
    positional = [key for key, each in taken.items() if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    first = read_optimizer.FIRST[name]
    assert tuple(positional[1 : first + 1]) == OPTIMIZERS[name][:first]
    assert set(positional[first + 1 :]) <= {"foreach", "maximize", "capturable", "differentiable", "fused"}
    assert {*OPTIMIZERS[name]} <= set(taken)
    for argument, default in read_optimizer.DEFAULTS[name].items():
        assert taken[argument].default == default, argument
    rest = set(taken) - {"params", *OPTIMIZERS[name]}
    assert rest <= set(read_optimizer.IDLE), "an argument of which nothing is said"


@pytest.mark.parametrize("name", read_schedule.ARGUMENTS)
def test_schedulers(name: str) -> None:
    taken = list(parameters(getattr(lr_scheduler, name).__init__))
    known = read_schedule.ARGUMENTS[name].split()
    assert taken[1 : len(known) + 1] == known
    assert set(taken[len(known) + 1 :]) <= {"last_epoch", "verbose"}


def test_every_scheduler_of_torch_is_known() -> None:
    classes = {
        name
        for name, found in vars(lr_scheduler).items()
        if inspect.isclass(found) and issubclass(found, lr_scheduler.LRScheduler) and not name.startswith("_")
    }
    assert classes - {"LRScheduler"} == {*read_schedule.ARGUMENTS, *read_schedule.CODE}


def test_policies_and_fully_shard() -> None:
    policy = parameters(MixedPrecisionPolicy)
    assert list(policy) == ["param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs"]
    assert policy["cast_forward_inputs"].default is True
    assert parameters(CPUOffloadPolicy)["pin_memory"].default is True
    taken = parameters(fully_shard)
    assert [key for key, each in taken.items() if each.kind is not inspect.Parameter.KEYWORD_ONLY] == [
        "module"
    ]
    assert taken["reshard_after_forward"].default is None
    scaler = parameters(torch.amp.GradScaler.__init__)
    assert list(scaler) == [
        "device",
        "init_scale",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
        "enabled",
    ]
    assert (scaler["init_scale"].default, scaler["growth_interval"].default) == (65536.0, 2000)
    assert list(parameters(torch.autocast.__init__))[:3] == ["device_type", "dtype", "enabled"]
    assert list(parameters(torch.nn.utils.clip_grad_norm_))[:4] == [
        "parameters",
        "max_norm",
        "norm_type",
        "error_if_nonfinite",
    ]
