"""The rules on offloading and on checkpoints, against DeepSpeed."""

from __future__ import annotations

import importlib
from itertools import product
from pathlib import Path

import pytest
from configs import config_of

from dsconf.config.context import Consumer
from dsconf.lint.engine import lint_config

from .engine import BASE, CPU, RULES, TORCH_ADAM, finding, initialize, step
from .judge import Config, read, torch

pytestmark = pytest.mark.oracle

ADAM: Config = {"type": "AdamW", "params": {"lr": 0.1}}
STAGES = (0, 1, 2, 3)


def zero(stage: int, optimizer: Config = TORCH_ADAM, **keys: object) -> Config:
    return {"zero_optimization": {"stage": stage, **keys}, "optimizer": optimizer}


def test_the_ratio_is_for_stage_3() -> None:
    seen = set()
    for stage, ratio, device in product(STAGES, (None, 1, 0.5, 0, "auto"), (None, "none", "cpu")):
        section = {
            key: value for key, value in {"ratio": ratio, "device": device}.items() if value is not None
        }
        config = zero(stage, offload_optimizer=section)
        error = read({**BASE, **config})
        said = finding("offload-ratio-needs-zero3", config)
        assert isinstance(error, Exception) == (said is not None), config
        if said:
            assert said.fails == "parse"
            assert "Partial offloading" in str(error)
        seen.add(said is None)
    assert seen == {True, False}


@pytest.mark.usefixtures("process_group")
def test_the_ratio_needs_cpu_adam() -> None:
    seen = set()
    sgd = {"type": "SGD", "params": {"lr": 0.1}}
    for optimizer, ratio, device in product((TORCH_ADAM, sgd, ADAM), (1, 0.5), ("none", "cpu")):
        config = zero(3, optimizer, offload_optimizer={**CPU, "device": device, "ratio": ratio})
        config["zero_allow_untested_optimizer"] = True
        if optimizer is ADAM and device == "none":
            continue
        said, engine = finding("offload-ratio-optimizer", config), initialize(config)
        assert isinstance(engine, Exception) == (said is not None), (config, engine)
        seen.add(said is None)
    assert seen == {True, False}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [1, 2])
def test_nvme_below_stage_3(stage: int, tmp_path: Path) -> None:
    section = {**CPU, "device": "nvme", "nvme_path": str(tmp_path)}
    engine = initialize(zero(stage, offload_optimizer=section))
    assert engine.optimizer.cpu_offload
    assert step(engine) is None
    assert list(tmp_path.iterdir()) == []
    said = finding("nvme-needs-zero3", zero(stage, offload_optimizer=section))
    assert said is not None
    assert said.severity == "warning"


@pytest.mark.usefixtures("process_group")
def test_nvme_beside_fp32_gradients_offloads_nothing() -> None:
    wide: Config = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    config = {**zero(1, ADAM, offload_optimizer={**CPU, "device": "nvme"}), **wide}
    engine = initialize(config)
    assert type(engine.optimizer).__name__ == "BF16_Optimizer"
    assert type(engine.basic_optimizer).__name__ == "DeepSpeedCPUAdam"
    said = finding("nvme-needs-zero3", config)
    assert said is not None
    assert said.fails == "step"


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(
    ("optimizer", "severity"),
    [
        (TORCH_ADAM, "warning"),
        (ADAM, "error"),
        ({"type": "Lion", "params": {}}, "error"),
        ({"type": "Adagrad", "params": {}}, "error"),
    ],
)
def test_offload_at_stage_0(optimizer: Config, severity: str) -> None:
    """The CPU classes refuse what is not on the CPU; here the meta device stands for a GPU."""
    config = zero(0, optimizer, offload_optimizer=CPU)
    engine = initialize(config)
    said = finding("offload-without-zero", config)
    assert said is not None
    assert said.severity == severity
    kind = type(engine.optimizer)
    elsewhere = torch.nn.Parameter(torch.ones(2, device="meta"))
    elsewhere.grad = torch.ones(2, device="meta")
    if severity == "error":
        with pytest.raises(AssertionError, match="must be 'cpu'"):
            kind([elsewhere]).step()
    else:
        kind([elsewhere]).step()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_super_offload(stage: int) -> None:
    config = zero(stage, offload_optimizer={**CPU, "super_offload": True})
    engine = initialize(config)
    if stage == 3:
        assert "SuperOffload" in str(engine)
    else:
        assert type(engine.optimizer).__name__ == "DeepSpeedZeroOptimizer"
    assert (finding("super-offload-needs-zero3", config) is None) == (stage == 3)


# ---- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", STAGES)
def test_another_world_size(stage: int, tmp_path: Path) -> None:
    config = zero(stage)
    engine = initialize(config)
    assert step(engine) is None
    engine.save_checkpoint(tmp_path)
    for states in tmp_path.rglob("*model_states.pt"):
        saved = torch.load(states, weights_only=False)
        torch.save({**saved, "dp_world_size": 2}, states)
    built = config_of({**BASE, **config}, world_size=1)
    built.context = built.context._replace(resume_world_size=2)
    said = [each for each in lint_config(built, RULES).findings if each.rule == "resume-world-size"]
    try:
        initialize(config).load_checkpoint(tmp_path)
        fails = False
    except Exception as error:
        fails = "world size of 2" in str(error)
    assert fails == bool(said) == (stage > 0)


@pytest.mark.usefixtures("process_group")
def test_a_universal_checkpoint_without_zero(tmp_path: Path) -> None:
    initialize(zero(0)).save_checkpoint(tmp_path, tag="one")
    config = {**zero(0), "checkpoint": {"load_universal": True}}
    with pytest.raises(ValueError, match="latest_universal"):
        initialize(config).load_checkpoint(tmp_path)
    with pytest.raises(AttributeError, match="update_lp_params"):
        initialize(config).load_checkpoint(tmp_path, tag="one")
    assert finding("universal-needs-zero", config) is not None


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", STAGES)
def test_loading_rank_by_rank(stage: int, tmp_path: Path) -> None:
    config = zero(stage, pipeline_loading_checkpoint=True)
    engine = initialize(config)
    assert step(engine) is None
    engine.save_checkpoint(tmp_path)
    try:
        initialize(config).load_checkpoint(tmp_path)
        fails = False
    except AssertionError as error:
        fails = "Only stage3" in str(error)
    assert fails == (finding("pipeline-loading-needs-zero3", config) is not None) == (stage in (1, 2))


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_elastic_checkpoints(stage: int) -> None:
    config = zero(stage, elastic_checkpoint=True)
    used = initialize(config).optimizer.elastic_checkpoint
    said = finding("elastic-checkpoint", config)
    assert used == (said is None or said.fails == "load") == (stage < 3)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("gather", [True, False])
def test_weights_of_stage_3(gather: bool, tmp_path: Path) -> None:
    config = zero(3, stage3_gather_16bit_weights_on_model_save=gather)
    engine = initialize(config)
    assert engine.save_16bit_model(str(tmp_path)) is gather
    assert bool(list(tmp_path.iterdir())) == gather
    accelerator = pytest.importorskip("accelerate").Accelerator
    source = importlib.import_module("inspect").getsource(accelerator.get_state_dict)
    assert "zero_gather_16bit_weights_on_model_save()" in source
    consumers: dict[Consumer, str] = {"trainer": "warning", "accelerate": "info"}
    for consumer, severity in consumers.items():
        said = finding("zero3-no-gather-on-save", config, consumer)
        assert (said.severity if said else None) == (None if gather else severity)
