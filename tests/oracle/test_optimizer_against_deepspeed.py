"""The optimizer section: what deepspeed.initialize does with it, against the rules on it."""

from __future__ import annotations

import importlib
import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from dsconf.config.context import CONSUMERS, Context
from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS
from dsconf.formats.deepspeed.optimizers import TORCH_OPTIMIZERS

from .engine import BASE, NO_KERNEL, errors, finding, findings, initialize, refused
from .judge import Config, read, torch

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("process_group")]

OFFLOADED: Config = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
ROUTES: list[tuple[str, Config, Config]] = [
    *((name, {}, {}) for name in ("Adam", "Lamb", "Lion", "Muon", *TORCH_OPTIMIZERS)),
    *((name, {}, OFFLOADED) for name in ("AdamW", "Adagrad", "Lion", "Lamb", "Muon", "SGD")),
    ("AdamW", {"torch_adam": True}, {}),
    ("Adam", {"torch_adam": True, "adam_w_mode": False}, {}),
    ("Muon", {"torch_adam": True}, {}),
    ("AdamW", {}, {**OFFLOADED, "zenflow": {"topk_ratio": 0.1}}),
]
"""Ways to each class: the type, parameters that lead there, the section zero_optimization."""
KEYS = sorted({name for names in OPTIMIZER_ARGUMENTS.values() for name in names.split()})
UNHEARD_OF = ["weight_decy", "adamw_mode", "params", "model_params", "warmup_num_steps", "_comment"]


def config_with(name: str, params: Config, zero: Config, **other: object) -> Config:
    return {
        **({"zero_optimization": zero} if zero else {}),
        "optimizer": {"type": name, "params": params},
        **other,
    }


@pytest.fixture(scope="module")
def engine() -> Any:
    """An engine whose config the tests replace."""
    return initialize(config_with("AdamW", {"torch_adam": True}, {}))


def build(engine: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The optimizer that the engine builds for a config, or the exception."""
    settled = read({**BASE, **config})
    assert not isinstance(settled, Exception), settled
    monkeypatch.setattr(engine, "_config", settled)
    monkeypatch.setattr(engine, "zenflow", settled.zero_config.zenflow is not None)
    monkeypatch.setattr(engine, "overlap_step", False, raising=False)
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    parameter.use_muon = True
    try:
        return engine._configure_basic_optimizer([parameter])
    except Exception as error:
        return error


# ---- optimizer-unknown-param -----------------------------------------------------------------------


def value_for(key: str) -> object:
    if key in (
        "amsgrad",
        "fused",
        "foreach",
        "capturable",
        "differentiable",
        "nesterov",
        "torch_adam",
        "adam_w_mode",
    ):
        return key == "adam_w_mode"
    pairs = {"betas": [0.9, 0.99], "etas": [0.5, 1.2], "step_sizes": [1e-6, 50]}
    return pairs.get(key, {"ns_method": "gram", "line_search_fn": None, "max_eval": None}.get(key, 0.1))


@pytest.mark.parametrize(("name", "leading", "zero"), ROUTES, ids=str)
def test_arguments(
    name: str, leading: Config, zero: Config, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key alone: a TypeError about it where lint knows none of that name."""
    for key in [*KEYS, *UNHEARD_OF]:
        if key in leading:
            continue
        config = config_with(name, {**leading, key: value_for(key)}, zero, zero_allow_untested_optimizer=True)
        built = build(engine, config, monkeypatch)
        text = str(built) if isinstance(built, TypeError) else ""
        unknown = "unexpected keyword" in text or "multiple values" in text
        said = [each for each in findings(config) if each.rule == "optimizer-unknown-param"]
        if name == "Muon":
            assert not unknown
            assert [each.severity for each in said] in ([], ["warning"])
            continue
        assert (len(said) == 1) == unknown, (key, built)
        assert all(each.severity == "error" and each.fails == "init" and key in each.message for each in said)


def test_what_muon_reads(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys that Muon takes are those that the two halves of its groups and the engine read."""
    kinds = type(engine)
    read_keys = {*kinds._MUON_HALF_KEYS, *kinds._ADAM_HALF_KEYS, "muon_lr", "adam_lr", "per_head_muon"}
    engine_keys = {"torch_adam", "adam_w_mode", "fp32_optimizer_states"}
    assert set(OPTIMIZER_ARGUMENTS["MuonWithAuxAdam"].split()) == read_keys | engine_keys
    left: dict[str, object] = dict.fromkeys([*engine_keys, "foreach"], True)
    stub = SimpleNamespace(zero_use_cpu_optimizer=lambda: False)
    kinds.get_optimizer_configuration(stub, left, True)
    assert set(left) == {"adam_w_mode"}, "adam_w_mode is taken out before"


def test_a_value_of_an_unknown_key_is_not_judged() -> None:
    config = config_with("Muon", {"max_coeff": "10"}, {})
    assert not isinstance(initialize(config), Exception)
    assert errors(config) == []


def test_a_misspelt_key_is_recognised() -> None:
    config = config_with("AdamW", {"weight_decy": 0.1, "learning_rate": 1e-4}, {})
    helps = [each.help for each in findings(config) if each.rule == "optimizer-unknown-param"]
    assert helps == ['did you mean "weight_decay"?', 'did you mean "lr"?']


# ---- zero-untested-optimizer -----------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_untested_optimizers(stage: int) -> None:
    for name, leading, zero in ROUTES:
        if (zero and stage < 2) or name in ("LBFGS", "Muon"):
            continue
        for allowed in (False, True):
            flag = {"zero_allow_untested_optimizer": True} if allowed else {}
            config = config_with(name, leading, {**zero, "stage": stage}, **flag)
            if "zenflow" in zero and stage == 3:
                continue
            engine = initialize(config)
            said = finding("zero-untested-optimizer", config)
            if NO_KERNEL in str(engine):
                assert (said is not None) == (name == "Lamb" and stage > 0 and not allowed)
                continue
            untested = isinstance(engine, AssertionError) and "untested ZeRO Optimizer" in str(engine)
            assert (said is not None) == untested, (config, engine)
            assert said is None or said.fails == "init"


def test_lamb_is_not_tested() -> None:
    tested = importlib.import_module("deepspeed.runtime.zero.utils").ZERO_SUPPORTED_OPTIMIZERS
    names = {kind.__name__ for kind in tested}
    assert "FusedLion" in names
    assert "FusedLamb" not in names


@pytest.mark.parametrize("section", [{"optimizer": {"type": "SGD"}}, {}], ids=["in-file", "none"])
def test_trainer_allows_only_an_optimizer_of_its_own(section: Config) -> None:
    integration = pytest.importorskip("transformers.integrations.deepspeed")
    config = {"zero_optimization": {"stage": 2}, **section}
    trainer = SimpleNamespace(create_optimizer=lambda: None)
    holder = SimpleNamespace(config=config, is_offload=lambda: False)
    integration.deepspeed_optim_sched(trainer, holder, None, 10, [])
    assert ("zero_allow_untested_optimizer" in config) == (not section)


# ---- optimizer-amsgrad, lamb-static-loss-scale, muon-zero3-reduce-scatter ---------------------------


@pytest.mark.parametrize("amsgrad", [True, False])
@pytest.mark.parametrize(("name", "leading", "zero"), ROUTES, ids=str)
def test_amsgrad(
    name: str, leading: Config, zero: Config, amsgrad: bool, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_with(name, {**leading, "amsgrad": amsgrad}, zero)
    built = build(engine, config, monkeypatch)
    said = finding("optimizer-amsgrad", config)
    if name == "Lamb":
        assert NO_KERNEL in str(built)
        assert (said is not None) == amsgrad
    else:
        assert (said is not None) == (isinstance(built, RuntimeError) and "AMSGrad" in str(built))


@pytest.mark.parametrize("name", ["Lamb", "lamb", "AdamW"])
@pytest.mark.parametrize("precision", ["fp16", "bf16", "off"])
@pytest.mark.parametrize("scale", [None, 0, 0.0, 1, 128.0])
def test_lamb_wants_a_dynamic_scale(name: str, precision: str, scale: float | None) -> None:
    fp16 = {"enabled": precision == "fp16", **({} if scale is None else {"loss_scale": scale})}
    config = config_with(name, {}, {}, fp16=fp16, bf16={"enabled": precision == "bf16"})
    engine = initialize(config)
    said = finding("lamb-static-loss-scale", config)
    assert (said is not None) == ("requires dynamic loss scaling" in str(engine))
    assert bool(errors(config)) == refused(engine)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("scatter", [None, True, False])
@pytest.mark.parametrize("quantized", [None, True, False])
def test_muon_at_stage_3(stage: int, scatter: bool | None, quantized: bool | None) -> None:
    keys = {"reduce_scatter": scatter, "zero_quantized_gradients": quantized}
    zero = {"stage": stage, **{key: value for key, value in keys.items() if value is not None}}
    config = config_with("Muon", {}, zero)
    engine = initialize(config)
    said = finding("muon-zero3-reduce-scatter", config)
    assert (said is not None) == (isinstance(engine, ValueError) and str(engine).startswith("Muon and "))
    if said is not None:
        assert said.fails == "init"


@pytest.mark.parametrize("method", ["gram", "standard", "Gram", "newton"])
def test_the_method_of_muon(method: str) -> None:
    config = config_with("Muon", {"ns_method": method}, {})
    assert bool(errors(config)) == refused(initialize(config))


# ---- adam-is-adamw, offload-without-cpu-optimizer ---------------------------------------------------


@pytest.mark.parametrize("name", ["Adam", "AdamW", "adam"])
@pytest.mark.parametrize("mode", [None, True, False])
@pytest.mark.parametrize("torch_adam", [True, False])
@pytest.mark.parametrize("zero", [{}, OFFLOADED], ids=["gpu", "cpu"])
def test_adam_is_adamw(
    name: str, mode: bool | None, torch_adam: bool, zero: Config, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {
        "weight_decay": 0.1,
        "torch_adam": torch_adam,
        **({} if mode is None else {"adam_w_mode": mode}),
    }
    config = config_with(name, params, zero)
    built = build(engine, config, monkeypatch)
    modes = [getattr(built, "adam_w_mode", None), getattr(built, "adamw_mode", None)]
    decoupled = isinstance(built, torch.optim.AdamW) or 1 in modes
    said = finding("adam-is-adamw", config)
    assert (said is not None) == (name != "AdamW" and mode is None)
    assert said is None or decoupled
    if mode is False:
        assert decoupled == (name == "AdamW")


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("params", [{"torch_adam": True}, {}], ids=json.dumps)
@pytest.mark.parametrize("name", ["AdamW", "Adagrad", "SGD", "Lion"])
def test_an_optimizer_that_is_not_for_the_cpu(name: str, params: Config, stage: int) -> None:
    if params and name != "AdamW":
        params = {"lr": 0.1}
    zero = {**OFFLOADED, "stage": stage}
    config = config_with(name, params, zero, zero_allow_untested_optimizer=True)
    engine = initialize(config)
    assert not isinstance(engine, Exception)
    said = finding("offload-without-cpu-optimizer", config)
    on_cpu = "CPU" in type(engine.basic_optimizer).__name__
    assert (said is not None) == (not on_cpu and stage > 0)
    assert said is None or said.severity == "info"
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()


def test_lamb_has_only_a_kernel_for_the_gpu() -> None:
    config = config_with("Lamb", {}, OFFLOADED, zero_allow_untested_optimizer=True)
    assert NO_KERNEL in str(initialize(config))
    said = finding("offload-without-cpu-optimizer", config)
    assert said is not None
    assert (said.severity, said.fails) == ("error", "step")


# ---- all of them together --------------------------------------------------------------------------


def test_errors_are_refusals() -> None:
    """Over a grid of types, stages and parameters: an error of lint where initialize raises, and only there."""
    names = ["AdamW", "adagrad", "SGD", "sgd", "Muon", "Lion", "RAdam"]
    params: list[Config] = [{}, {"lr": 0.1}, {"betas": [0.9, 0.99]}, {"momentum": 0.9}, {"amsgrad": True}]
    for name, each, stage, allow in itertools.product(names, params, (0, 2, 3), (True, False)):
        config = config_with(name, each, {"stage": stage}, zero_allow_untested_optimizer=allow)
        engine = initialize(config)
        if NO_KERNEL not in str(engine):
            assert bool(errors(config)) == refused(engine), (config, engine)


def test_consumers_are_all_judged_alike() -> None:
    """No consumer builds another optimizer from this section."""
    config = config_with("SGD", {"lr": 0.1}, {"stage": 2})
    for consumer in (None, *CONSUMERS):
        rules = {each.rule for each in findings(config, Context(consumer))}
        assert "zero-untested-optimizer" in rules
