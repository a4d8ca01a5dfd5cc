"""What only deepspeed.initialize or DeepSpeed's engine decides, against the rules on it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from .engine import BASE, TORCH_ADAM, finding, initialize
from .judge import OWN_OPTIMIZERS, Config, engine_finds, read, torch

pytestmark = pytest.mark.oracle

# ---- optimizer-unknown-type ------------------------------------------------------------------------

CASES = [case(name) for name in OWN_OPTIMIZERS for case in (str.lower, str.upper, str.title)]
OTHERS = [
    "AdamW", "MuAdamW", "MuSGD", "FusedAdam", "FusedLamb", "FusedLion", "DeepSpeedCPUAdam", "CPUAdam", "cpu_adam",
    "OneBitAdam", "OneBitLamb", "ZeroOneAdam", "onebitadam", "adamw_torch", "adamw_torch_fused", "adamw_hf",
    "adamw_bnb_8bit", "paged_adamw_8bit", "sgd", "Sgd", "rmsprop", "adadelta", "nadam", "Adam ", "", "torch.optim.SGD",
    "NoSuchOptimizer",
]  # fmt: skip


# What stands between two underscores counts as a placeholder of a template.
@pytest.mark.parametrize(
    "name", sorted({*CASES, *OTHERS, *(name for name in dir(torch.optim) if not name.startswith("__"))})
)
def test_optimizer_names(name: str) -> None:
    said = finding("optimizer-unknown-type", {"optimizer": {"type": name, "params": {}}})
    assert (said is None) == engine_finds(name)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("adamW", {"torch_adam": True, "lr": 0.1}),
        ("aDagrad", {"lr": 0.1}),
        ("SGD", {"lr": 0.1}),
        ("Adafactor", {}),
        ("sgd", {"lr": 0.1}),
        ("FusedAdam", {"lr": 0.1}),
        ("OneBitAdam", {"lr": 0.1}),
        ("lr_scheduler", {}),
        ("Optimizer", {}),
    ],
)
def test_the_engine_agrees(name: str, params: Config) -> None:
    engine = initialize({"optimizer": {"type": name, "params": params}})
    assert isinstance(engine, Exception) != engine_finds(name)


# ---- offload ---------------------------------------------------------------------------------------


def offload(stage: int, **sections: Config) -> Config:
    return {"optimizer": TORCH_ADAM, "zero_optimization": {"stage": stage, **sections}}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_offload_param_is_for_stage_3(stage: int) -> None:
    config = offload(stage, offload_param={"device": "cpu", "pin_memory": False})
    engine = initialize(config)
    assert engine.zero_optimization_stage() == stage
    assert hasattr(engine.optimizer, "parameter_offload") == (stage == 3)
    if stage == 3:
        assert str(engine.optimizer.parameter_offload.offload_device) == "cpu"
    assert (finding("offload-param-needs-zero3", config) is None) == (stage == 3)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("section", ["offload_param", "offload_optimizer"])
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("path", [{}, {"nvme_path": None}, {"nvme_path": "nvme"}], ids=json.dumps)
def test_nvme_needs_a_path(
    section: str, stage: int, path: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed asks for the path first; with one, a CPU without libaio stops it at the async_io op."""
    monkeypatch.chdir(tmp_path)
    config = offload(stage, **{section: {"device": "nvme", "pin_memory": False, **path}})
    engine = initialize(config)
    said = finding("nvme-path-missing", config)
    if stage < 3:
        assert said is None
        assert not isinstance(engine, Exception)
    elif path.get("nvme_path"):
        assert said is None
        assert not isinstance(engine, Exception) or "async_io" in str(engine)
    else:
        assert said is not None
        assert said.fails == "init"
        assert isinstance(engine, AssertionError if section == "offload_param" else TypeError)
        assert ("nvme_path" if section == "offload_param" else "os.PathLike") in str(engine)


# ---- fp16-without-loss-scaling ---------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("loss_scale", [None, 0, 0.0, "0", 1, 1.0, "1", 2, 128, "auto"])
def test_a_static_scale_of_one(enabled: bool, loss_scale: object) -> None:
    section = {"enabled": enabled, **({} if loss_scale is None else {"loss_scale": loss_scale})}
    config = {**BASE, "fp16": section}
    engine = importlib.import_module("deepspeed.runtime.engine").DeepSpeedEngine
    stub = SimpleNamespace(_config=read(config))
    dynamic, scale = engine.dynamic_loss_scale(stub), engine.loss_scale(stub)
    assert dynamic == (scale == 0)
    said = finding("fp16-without-loss-scaling", config)
    assert (said is not None) == (enabled and not dynamic and scale == 1)
