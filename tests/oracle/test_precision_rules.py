"""Rules on loss scaling, master weights, accumulation and torch.autocast, against the real DeepSpeed."""

from __future__ import annotations

import importlib
import itertools
import json
from typing import Any

import pytest

from dsconf.config.context import Context, Gpu

from .engine import BASE, finding, findings, initialize, train_step
from .judge import Config, read, torch

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("process_group", "fp16_on_this_cpu")]

TORCH_ADAM = {"type": "AdamW", "params": {"torch_adam": True}}
CPU = {"offload_optimizer": {"device": "cpu", "pin_memory": False}}


@pytest.fixture
def fp16_on_this_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch computes in fp16 on every CPU; DeepSpeed asks whether it is fast."""
    accelerator = importlib.import_module("deepspeed.accelerator").get_accelerator()
    monkeypatch.setattr(type(accelerator), "is_fp16_supported", lambda _: True)


@pytest.fixture(autouse=True)
def no_autocast_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed remembers in its module that autocast was on."""
    module = importlib.import_module("deepspeed.runtime.torch_autocast")
    monkeypatch.setattr(module, "TORCH_AUTOCAST_INITIALIZED", False)


def fp16(stage: int, **section: Any) -> Config:
    return {
        "optimizer": TORCH_ADAM,
        "zero_optimization": {"stage": stage},
        "fp16": {"enabled": True, **section},
    }


def errors(config: Config, moment: str) -> list[str]:
    """The rules that say that the run fails at that moment."""
    return [
        each.rule
        for each in findings({**BASE, **config})
        if each.severity == "error" and each.fails == moment
    ]


# ---- loss scaling ----------------------------------------------------------------------------------

SCALES = [
    {"enabled": enabled, **scale, **window, **minimum}
    for enabled in (True, False)
    for scale in ({}, {"loss_scale": 0}, {"loss_scale": 128})
    for window in ({}, {"loss_scale_window": 0}, {"loss_scale_window": -5}, {"loss_scale_window": 1})
    for minimum in ({}, {"min_loss_scale": 0}, {"min_loss_scale": -1}, {"min_loss_scale": 2})
]


@pytest.mark.parametrize("section", SCALES, ids=json.dumps)
def test_bounds_that_hold_for_dynamic_scaling_only(section: Config) -> None:
    config = {**BASE, "fp16": section}
    said = finding("fp16-scale-values", config)
    assert (said is not None) == isinstance(read(config), Exception)
    assert said is None or said.fails == "parse"


@pytest.mark.parametrize("value", [0.5, 1e-7, True, False, 1e3, "2", "1.5", None, [], 7])
@pytest.mark.parametrize("key", ["loss_scale_window", "min_loss_scale"])
def test_these_are_whole_numbers(key: str, value: object) -> None:
    config = {**BASE, "fp16": {"enabled": False, key: value}}
    assert bool(errors(config, "parse")) == isinstance(read(config), Exception)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(("power", "hysteresis"), [(16, 2), (21, 1), (21, 2), (24, 2), (24, 4), (32, 2)])
def test_steps_that_a_high_scale_skips(stage: int, power: int, hysteresis: int) -> None:
    config = fp16(stage, initial_scale_power=power, hysteresis=hysteresis)
    engine = initialize(config)
    steps = 0
    while engine.optimizer.loss_scale > 2**16:
        train_step(engine)
        steps += 1
    assert engine.skipped_steps == steps
    said = finding("fp16-initial-scale-high", {**BASE, **config})
    assert (said is not None) == (power > 20)
    if said is not None:
        assert f"about {steps} steps" in said.message


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("power", [63, 64, 200, 10_000])
def test_a_scale_beyond_64_bits_fails(stage: int, power: int) -> None:
    config = fp16(stage, initial_scale_power=power)
    engine = initialize(config)
    if power == 63:
        train_step(engine)
    else:
        with pytest.raises(OverflowError):
            train_step(engine)
    assert ("fp16-initial-scale-high" in errors(config, "step")) == (power > 63)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(("power", "minimum"), [(8, 1), (9, 256), (8, 256), (4, 256), (-4, 1)])
def test_a_scale_that_cannot_fall_ends_the_run(stage: int, power: int, minimum: int) -> None:
    config = fp16(stage, initial_scale_power=power, min_loss_scale=minimum, hysteresis=1)
    said = finding("fp16-scale-at-minimum", {**BASE, **config})
    assert (said is not None) == (2.0**power <= minimum)
    engine = initialize(config)
    raises = 2 if 2.0**power < minimum else 1
    if said is None:
        train_step(engine, float("inf"))
        assert engine.optimizer.loss_scale == 2.0**power / 2
        return
    for _ in range(raises - 1):
        train_step(engine, float("inf"))
        assert engine.optimizer.loss_scale == minimum
    with pytest.raises(Exception, match="already at minimum"):
        train_step(engine, float("inf"))


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("hysteresis", [-1, 0, 1, 2])
def test_hysteresis_that_is_never_used_up(stage: int, hysteresis: int) -> None:
    config = fp16(stage, hysteresis=hysteresis)
    engine = initialize(config)
    for _ in range(4):
        train_step(engine, float("inf"))
    assert engine.skipped_steps == 4
    said = finding("fp16-hysteresis-not-positive", {**BASE, **config})
    assert (said is not None) == (engine.optimizer.loss_scale == 2**16)


@pytest.mark.parametrize("loss_scale", [0, 1024])
def test_a_fixed_scale_ignores_the_keys_of_the_dynamic_one(loss_scale: int) -> None:
    config = fp16(2, loss_scale=loss_scale, initial_scale_power=8, loss_scale_window=1)
    engine = initialize(config)
    for _ in range(4):
        train_step(engine)
    said = finding("fp16-scaling-keys-unused", {**BASE, **config})
    assert (said is not None) == (engine.optimizer.loss_scale == 1024)
    assert said is None or "initial_scale_power, loss_scale_window have" in said.message


@pytest.mark.parametrize(
    ("stage", "section"),
    [
        (0, {}),
        (0, {"loss_scale": 1024}),
        (0, {"loss_scale": 1}),
        (1, {"initial_scale_power": 8}),
        (2, {"loss_scale": 1024}),
        (3, {"loss_scale": 1024}),
    ],
)
def test_without_zero_the_loss_is_not_scaled(stage: int, section: Config) -> None:
    """With SGD the weights move by lr times the gradient, unless that was divided by a scale it never had."""
    config = fp16(stage, **section)
    config |= {
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
        "gradient_clipping": 0,
        "zero_allow_untested_optimizer": True,
    }
    engine = initialize(config)
    mode = importlib.import_module("deepspeed").zero.GatheredParameters

    def weights() -> Any:
        with mode(list(engine.module.parameters())):
            return engine.module.weight.detach().float().clone()

    before = weights()
    train_step(engine)
    right = torch.allclose(before - weights(), torch.full((4, 4), 0.25), atol=1e-2)
    assert (finding("fp16-loss-not-scaled", {**BASE, **config}) is None) == right


# ---- master weights --------------------------------------------------------------------------------

FLAGS = [
    {"fp16": {"enabled": fp, "fp16_master_weights_and_grads": fp_master},
     "bf16": {"enabled": bf, "bf16_master_weights_and_grads": bf_master, "bf16_optimizer_states": states}}
    for fp, bf in ((True, False), (False, True), (False, False))
    for fp_master, bf_master, states in itertools.product((True, False), repeat=3)
]  # fmt: skip
ACCUMULATION: list[Config] = [{}, {"data_types": {"grad_accum_dtype": "fp32"}}]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_flags_that_the_file_alone_decides(stage: int) -> None:
    for flags in FLAGS:
        config = {**BASE, **flags, "zero_optimization": {"stage": stage}}
        refused = isinstance(read(config), Exception)
        assert bool(errors(config, "parse")) == refused, config


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("offload", [{}, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("accumulation", ACCUMULATION, ids=json.dumps)
def test_masters_in_16_bits_need_cpu_adam(stage: int, offload: Config, accumulation: Config) -> None:
    adams = [TORCH_ADAM, {"type": "AdamW", "params": {}}] if offload else [TORCH_ADAM]
    for flags, optimizer in itertools.product(FLAGS, adams):
        zero = {"stage": stage, **offload}
        config = {**flags, **accumulation, "optimizer": optimizer, "zero_optimization": zero}
        if isinstance(read({**BASE, **config}), Exception):
            continue
        engine = initialize(config)
        assert bool(errors(config, "init")) == isinstance(engine, AssertionError), (config, engine)
        assert isinstance(engine, AssertionError) or not isinstance(engine, Exception)


# ---- data types ------------------------------------------------------------------------------------

PRECISIONS: list[Config] = [{}, {"fp16": {"enabled": True}}, {"bf16": {"enabled": True}}]
DTYPES = ["fp16", "half", "bf16", "torch.bfloat16", "fp32", "float", "int8", "auto", "FP32", None]


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("precision", PRECISIONS, ids=json.dumps)
def test_accumulation_in_another_dtype(stage: int, precision: Config) -> None:
    for dtype in DTYPES:
        config = {
            **precision,
            "optimizer": TORCH_ADAM,
            "data_types": {"grad_accum_dtype": dtype},
            "zero_optimization": {"stage": stage},
        }
        engine = initialize(config)
        assert bool(errors(config, "init")) == isinstance(engine, Exception), (config, engine)
        if isinstance(engine, Exception):
            continue
        try:
            train_step(engine)
        except RuntimeError:
            assert errors(config, "step")
        else:
            assert not errors(config, "step"), config


@pytest.mark.parametrize("precision", PRECISIONS, ids=json.dumps)
def test_the_dtype_of_parameters_has_to_agree(precision: Config) -> None:
    for dtype in DTYPES:
        config = {**precision, "optimizer": TORCH_ADAM, "data_types": {"param_dtype": dtype}}
        engine = initialize(config)
        assert bool(errors(config, "init")) == isinstance(engine, Exception), (config, engine)


def test_what_bf16_loses_in_a_sum() -> None:
    total, gradient = torch.zeros((), dtype=torch.bfloat16), torch.ones((), dtype=torch.bfloat16)
    for _ in range(512):
        total += gradient
    assert total == 256


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("precision", PRECISIONS, ids=json.dumps)
@pytest.mark.parametrize("accumulation", ACCUMULATION, ids=json.dumps)
def test_gradients_added_up_in_bf16(stage: int, precision: Config, accumulation: Config) -> None:
    config = {
        **precision, **accumulation, "optimizer": TORCH_ADAM, "zero_optimization": {"stage": stage},
        "gradient_accumulation_steps": 32,
    }  # fmt: skip
    engine = initialize(config)
    said = finding("bf16-accum-low-precision", {**BASE, **config})
    if isinstance(engine, Exception):
        assert errors(config, "init")
    else:
        assert (said is not None) == (engine.get_data_types()[1] == torch.bfloat16)
    few = {**config, "gradient_accumulation_steps": 31}
    assert finding("bf16-accum-low-precision", {**BASE, **few}) is None


# ---- torch.autocast --------------------------------------------------------------------------------


def autocast(**section: object) -> Config:
    return {"optimizer": TORCH_ADAM, "torch_autocast": section}


MODULES: list[object] = [
    None, [], ["torch.nn.Linear"], ["Linear"], ["torch.nn.Linear", "Conv2d"], [1],
    "torch.nn.Linear", "", {"Linear": 1}, {}, 1, True,
]  # fmt: skip


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("modules", MODULES, ids=json.dumps)
def test_names_of_module_classes(enabled: bool, modules: object) -> None:
    config = autocast(enabled=enabled, dtype="bf16", lower_precision_safe_modules=modules)
    early, late = errors(config, "parse"), errors(config, "init")
    refused = isinstance(read({**BASE, **config}), Exception)
    assert bool(early) == refused
    if not refused:
        assert bool(late) == isinstance(initialize(config), Exception)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("enabled", "quantized"), itertools.product((True, False), repeat=2))
def test_autocast_refuses_quantized_weights(stage: int, enabled: bool, quantized: bool) -> None:
    config = autocast(enabled=enabled, dtype="bf16")
    config["zero_optimization"] = {"stage": stage, "zero_quantized_weights": quantized}
    said = finding("autocast-quantized-weights", {**BASE, **config})
    assert (said is not None) == (enabled and quantized)
    engine = initialize(config)
    if said is not None or not quantized:
        # Quantizing itself needs a GPU.
        assert isinstance(engine, AssertionError) == (said is not None)


@pytest.mark.parametrize(
    "section", [{"enabled": True}, {"enabled": True, "dtype": "fp16"}, {"dtype": "fp16"}]
)
def test_autocast_without_a_dtype(section: Config) -> None:
    config = autocast(**section)
    engine = initialize(config)
    unset = engine.torch_autocast_enabled() and engine.torch_autocast_dtype() is None
    assert (finding("autocast-without-dtype", {**BASE, **config}) is not None) == unset
    if unset:
        assert engine.torch_autocast_z0_gradscaler is None
        assert torch.get_autocast_dtype("cuda") == torch.float16


@pytest.mark.parametrize("precision", PRECISIONS, ids=json.dumps)
@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_beside_fp16_or_bf16(precision: Config, enabled: bool) -> None:
    config = {**autocast(enabled=enabled, dtype="bf16"), **precision, "zero_optimization": {"stage": 1}}
    engine = initialize(config)
    both = engine.torch_autocast_enabled() and engine.module.weight.dtype != torch.float32
    assert (finding("autocast-beside-precision", {**BASE, **config}) is not None) == both


# ---- hardware --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("capability", "gpu"), [((6, 0), "P100"), ((7, 0), "V100"), ((8, 0), "A100")])
@pytest.mark.parametrize("emulated", [True, False])
def test_what_deepspeed_asks_of_a_gpu(
    capability: tuple[int, int], gpu: str, emulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = importlib.import_module("deepspeed.accelerator.cuda_accelerator").CUDA_Accelerator
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: capability >= (8, 0) or emulated)
    context = Context(gpu=Gpu(gpu, 16, capability >= (8, 0)))

    def said(section: str) -> list[str]:
        config = {**BASE, section: {"enabled": True}, "zero_optimization": {"stage": 1}}
        return [each.rule for each in findings(config, context) if each.severity != "info"]

    assert said("fp16") == ([] if cuda.is_fp16_supported(None) else ["fp16-hardware"])
    if not emulated:
        assert said("bf16") == ([] if cuda.is_bf16_supported(None) else ["bf16-hardware"])
