"""The rules on compilation, the data library, measurements and checkpoints, against the real DeepSpeed."""

from __future__ import annotations

import copy
import importlib
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from .judge import Config, World, read, torch
from .launch import Case, launch
from .test_parallel_against_engine import BASE, errors, found

pytestmark = pytest.mark.oracle

engine_module = importlib.import_module("deepspeed.runtime.engine")
Engine = engine_module.DeepSpeedEngine


# ---- compile ---------------------------------------------------------------------------------------


class Reached(Exception):
    """DeepCompile begins: all checks are passed."""


def compile_backend(config: Config) -> str:
    """What engine.compile() comes to: "refused", "begins" (DeepCompile), or "plain" (torch.compile)."""
    settings = read({**BASE, **config})
    assert not isinstance(settings, Exception), settings
    engine = Engine.__new__(Engine)
    fields = {
        "_config": settings, "config": config, "optimizer": None, "module": None, "first_dataloader_check": None,
        "_deactivate_deepcompile": lambda: None, "_initialize_deepcompile_native": mock.Mock(side_effect=Reached),
    }  # fmt: skip
    engine.__dict__.update(fields)
    if not settings.compile_config.deepcompile:
        return "plain"
    with (
        mock.patch("deepspeed.compile.init_z1_and_2.init_z1_and_2", side_effect=Reached),
        mock.patch("deepspeed.compile.init_tp.init_autotp", side_effect=Reached),
        mock.patch("deepspeed.compile.init_sp.init_autosp", side_effect=Reached),
    ):
        try:
            backend, _ = Engine.get_deepspeed_compile_backend(engine, "inductor", {}, None)
        except Reached:
            return "begins"
        except (ValueError, NotImplementedError):
            return "refused"
    assert backend is None
    return "plain"


PASSES: tuple[list[str] | None, ...] = (
    None,
    [],
    ["z1"],
    ["z3"],
    ["autosp"],
    ["autotp"],
    ["autotp", "z1"],
    ["autotp", "z3"],
    ["autotp", "autosp"],
)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_passes(stage: int, on: bool) -> None:
    for passes, size in product(PASSES, (1, 2)):
        config = {
            "compile": {"deepcompile": on, "passes": passes},
            "zero_optimization": {"stage": stage},
            "tensor_parallel": {"autotp_size": size},
        }
        outcome, said = compile_backend(config), found({**BASE, **config})
        assert ("compile-passes-conflict" in said) == (outcome == "refused"), config
        if outcome != "refused":
            assert ("deepcompile-falls-back" in said) == (on and outcome == "plain"), config
        assert ("deepcompile-needs-compile" in said) == on


@pytest.mark.parametrize("stage", [1, 3])
def test_offloads(stage: int) -> None:
    devices = (None, "none", "cpu", "nvme")
    outcomes = set()
    for activation, parameters, states, param, optimizer in product(*[(True, False)] * 3, devices, devices):
        zero: Config = {"stage": stage}
        for name, device in (("offload_param", param), ("offload_optimizer", optimizer)):
            if device is not None:
                zero[name] = {"device": device, "nvme_path": "/nvme"}
        config = {
            "compile": {
                "deepcompile": True, "offload_activation": activation, "offload_parameters": parameters,
                "offload_opt_states": states,
            },
            "zero_optimization": zero,
        }  # fmt: skip
        outcome, said = compile_backend(config), errors({**BASE, **config}, None, "step")
        if activation is False and parameters is not states and outcome == "begins" and stage == 3:
            assert said == set() or (param, optimizer) == ("cpu", "cpu"), config
        outcomes.add(outcome)
        # init_z3 looks at offload_parameters beside offload_opt_states after it has begun.
        late = (
            states and not activation and (parameters or (param, optimizer) == ("cpu", "cpu")) and stage == 3
        )
        assert ("deepcompile-offload-conflict" in said) == (outcome == "refused" or late), config
    assert outcomes == ({"begins", "refused"} if stage == 3 else {"begins"})


def test_autoep_non_moe() -> None:
    expert = {"expert_parallel": {"enabled": True}}
    deepep = {"expert_parallel": {"enabled": True, "comm_backend": "deepep", "comm_max_tokens_per_rank": 64}}
    sections: list[Config] = [
        {}, expert, deepep, {"expert_parallel": {"enabled": False}},
        {**expert, "compile": {"deepcompile": True}}, {**expert, "zero_optimization": {"stage": 3}},
        {**expert, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}},
        {**expert, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "none"}}},
        {**expert, "tensor_parallel": {"autotp_size": 2}},
    ]  # fmt: skip
    verdicts = []
    for section, on in product(sections, (True, False)):
        config = {**section, "compile": {**section.get("compile", {}), "autoep_non_moe": on}}
        settings = read({**BASE, **config})
        engine = Engine.__new__(Engine)
        # The model has MoE layers exactly where the config says so: there they become AutoEP layers.
        layers = settings.expert_parallel_config is not None and settings.expert_parallel_config.enabled
        regions = mock.Mock(side_effect=None if layers else ValueError("no AutoEP layers"))
        engine.__dict__.update(
            _config=settings,
            mpu=None,
            module=None,
            _is_compiled=False,
            _autoep_sequence_parallel_world_size=lambda: 1,
        )
        refused = False
        if on:
            with mock.patch("deepspeed.runtime.compiler.compile_autoep_non_moe_regions", regions):
                try:
                    Engine.compile(engine, "inductor")
                except ValueError:
                    refused = True
        said = errors({**BASE, **config}, None, "step")
        assert ("autoep-non-moe-conflict" in said) == refused, config
        verdicts.append(refused)
    assert {True, False} == set(verdicts)


def test_no_autoep_layer_is_refused() -> None:
    compiler = importlib.import_module("deepspeed.runtime.compiler")
    with pytest.raises(ValueError, match="AutoEP"):
        compiler.compile_autoep_non_moe_regions(torch.nn.Linear(2, 2), "eager", {})


# ---- data ------------------------------------------------------------------------------------------

METRIC = {
    "fixed_linear": {"total_curriculum_step": 10, "difficulty_step": 8},
    "fixed_root": {"total_curriculum_step": 10, "difficulty_step": 8, "root_degree": 2},
    "fixed_discrete": {"difficulty": [1, 2], "max_step": [5]},
    "custom": {},
}


def sampling(**sections: Any) -> Config:
    return {**BASE, "data_efficiency": {"enabled": False, "data_sampling": {"enabled": False, **sections}}}


@pytest.mark.parametrize("enabled", [True, False, 1, 0])
def test_switches_of_the_data_library(enabled: object) -> None:
    additions: list[Config] = [{}, {"curriculum_metrics": {}}, {"max_tokens": 10}]
    for keys in additions:
        for name, rule in (
            ("curriculum_learning", "curriculum-metrics-missing"),
            ("dynamic_batching", "dynamic-batching-tokens-missing"),
        ):
            config = sampling(**{name: {"enabled": enabled, **keys}})
            refused = isinstance(read(config), Exception)
            assert (rule in errors(config, None, "parse")) == refused, config


def without(value: Config, path: tuple[str, ...]) -> Config:
    value = copy.deepcopy(value)
    inner = value
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return value


def paths(value: Config) -> list[tuple[str, ...]]:
    """Every key of an object of objects."""
    return [
        place
        for name, inner in value.items()
        for place in [
            (name,),
            *((name, *below) for below in (paths(inner) if isinstance(inner, dict) else ())),
        ]
    ]


@pytest.mark.parametrize("kind", METRIC)
def test_metrics_of_a_curriculum(kind: str) -> None:
    scheduler = importlib.import_module(
        "deepspeed.runtime.data_pipeline.curriculum_scheduler"
    ).CurriculumScheduler
    whole: Config = {
        "min_difficulty": 8, "max_difficulty": 64, "schedule_type": kind, "schedule_config": METRIC[kind],
    }  # fmt: skip
    for metric in (whole, *(without(whole, path) for path in paths(whole))):
        try:
            scheduler(copy.deepcopy(metric))
            refused = False
        except (AssertionError, KeyError, RuntimeError):
            refused = True
        config = sampling(curriculum_learning={"enabled": True, "curriculum_metrics": {"seqlen": metric}})
        assert ("curriculum-metric-incomplete" in errors(config, None, "init")) == refused, metric
        config["data_efficiency"]["data_sampling"]["curriculum_learning"]["enabled"] = False
        assert "curriculum-metric-incomplete" not in found(config)


def test_random_ltd() -> None:
    whole: Config = {
        "enabled": True, "total_layer_num": 4, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2],
        "random_ltd_schedule": {
            "min_value": 8, "max_value": 16, "schedule_type": "fixed_linear",
            "schedule_config": {"require_steps": 10, "seq_per_step": 8},
        },
    }  # fmt: skip
    rates: list[Config] = [{}, {"enabled": False}, {"enabled": True}]
    sections = [whole, {"enabled": False}, *({**whole, "layer_token_lr_schedule": rate} for rate in rates)]
    sections += [without(whole, path) for path in paths(whole) if len(path) < 3]
    configs: list[Config] = [
        {**BASE, "data_efficiency": {"data_routing": {"random_ltd": each}}} for each in sections
    ]
    outcomes = launch([Case(config) for config in configs])
    for config, outcome in zip(configs, outcomes, strict=True):
        assert bool(errors(config, None, "init")) == (outcome.failed == "init"), (config, outcome)
    assert {outcome.failed for outcome in outcomes} == {None, "init"}


# ---- activation checkpointing ----------------------------------------------------------------------


def test_contiguous_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointing = importlib.import_module("deepspeed.runtime.activation_checkpointing.checkpointing")
    monkeypatch.setattr(checkpointing, "dist", World(1))
    for contiguous, partition, number in product((True, False), (True, False), (None, 2)):
        section = {
            "contiguous_memory_optimization": contiguous,
            "partition_activations": partition,
            **({} if number is None else {"number_checkpoints": number}),
        }
        config = {**BASE, "activation_checkpointing": section}
        try:
            checkpointing.configure(None, deepspeed_config=config)
            refused = False
        except AssertionError:
            refused = True
        assert ("contiguous-checkpointing-incomplete" in found(config)) == refused, section


def test_the_section_alone_configures_nothing() -> None:
    config = {**BASE, "activation_checkpointing": {"partition_activations": True}}
    (outcome,) = launch([Case(config)])
    assert (outcome.failed, outcome.engine["checkpointing"]) == (None, False)


# ---- measurements ----------------------------------------------------------------------------------


def test_what_turns_measurements_on() -> None:
    switches = (None, True, False)
    for profiler, breakdown, tuning in product(switches, switches, switches):
        config: Config = {**BASE}
        if profiler is not None:
            config["flops_profiler"] = {"enabled": profiler}
        if breakdown is not None:
            config["wall_clock_breakdown"] = breakdown
        if tuning is not None:
            config["autotuning"] = {"enabled": tuning}
        settings = read(config)
        stub = SimpleNamespace(_config=settings, autotuning_enabled=lambda on=bool(tuning): on)
        overridden = (breakdown is False and settings.wall_clock_breakdown) or (
            profiler is False and Engine.flops_profiler_enabled(stub)
        )
        assert ("profiler-overrides" in found(config)) == overridden, config


@pytest.mark.parametrize("size", [None, 0, 7, 8, 100, 50257, 50264])
def test_vocabulary_size(size: int | None) -> None:
    config = {**BASE, **({} if size is None else {"vocabulary_size": size})}
    with mock.patch.object(importlib.import_module("deepspeed.runtime.config").logger, "warning") as warning:
        read(config)
    warned = any("vocabulary size" in str(call) for call in warning.call_args_list)
    assert ("vocabulary-size-alignment" in found(config)) == warned


@pytest.mark.parametrize("section", [None, {}, {"enabled": False}, {"enabled": True}])
def test_comms_logger(section: Config | None) -> None:
    config = {**BASE, **({} if section is None else {"comms_logger": section})}
    on = read(config).comms_config.comms_logger_enabled
    assert on == (section is not None)
    assert ("comms-logger-always-on" in found(config)) == (on and section == {"enabled": False})


SGD = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}


def test_steps_per_print() -> None:
    configs = [{**BASE, **SGD, "steps_per_print": steps} for steps in (0, 0.0, 1, 10, 1e9, None, -1)]
    for config, outcome in zip(configs, launch([Case(each, then=["step"]) for each in configs]), strict=True):
        assert bool(errors(config, None, "step")) == (outcome.failed == "step"), (config, outcome)


# ---- checkpoints -----------------------------------------------------------------------------------


def test_datastates() -> None:
    values: list[Any] = [False, True, None, 0, {}, {"enabled": False}, {"enabled": True}, "x"]
    configs = [{**BASE, **SGD}, *({**BASE, **SGD, "datastates_ckpt": value} for value in values)]
    for config, outcome in zip(configs, launch([Case(each) for each in configs]), strict=True):
        said = found(config).get("datastates-switched-on")
        assert (said is not None) == ("DataStates" in outcome.error), (config, outcome)
        assert (said is None) == (outcome.failed is None)


def test_checkpoint_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSS_SIZE", raising=False)
    configs = [
        {**BASE, **SGD, "checkpoint": {"writer": section}} for section in (None, {}, {"type": "PYTHON"})
    ]
    for config, outcome in zip(configs, launch([Case(each) for each in configs]), strict=True):
        assert ("CROSS_SIZE" in outcome.error) == ("checkpoint-writer-launcher" in found(config)), config
        assert (outcome.failed is None) == (config["checkpoint"]["writer"] is None)


def test_deepcompile_alone_compiles_nothing() -> None:
    (outcome,) = launch([Case({**BASE, **SGD, "compile": {"deepcompile": True}}, then=["step", "save"])])
    assert (outcome.failed, outcome.engine["compiled"]) == (None, False), outcome.error
