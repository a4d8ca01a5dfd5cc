"""The rules on ZeRO and ZenFlow, against DeepSpeedConfig, deepspeed.initialize and the first step."""

from __future__ import annotations

import importlib
from itertools import product
from unittest import mock

import pytest
from configs import config_of, scope_of

from dsconf.lint.checks.zero import is_for_stage3
from dsconf.lint.compile import compile_expression
from dsconf.lint.engine import lint_config

from .engine import BASE, CPU, RULES, TORCH_ADAM, finding, initialize, moment
from .judge import Config, read

pytestmark = pytest.mark.oracle

STAGES = (0, 1, 2, 3)
SGD: Config = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_allow_untested_optimizer": True}
"""With ZenFlow, which hands the parameters of the optimizer on, and so knows no torch_adam."""


def zero(stage: int, **keys: object) -> Config:
    return {"zero_optimization": {"stage": stage, **keys}}


def agree(rule: str, config: Config, words: str = "") -> str | None:
    """Whether lint and a run break at the same time; where lint is silent the run goes on."""
    said = finding(rule, config)
    when, text = moment(config)
    assert when == (said.fails if said else None), (config, text)
    assert words in text or said is None, (config, text)
    return when


def agree_at_parse(rule: str, config: Config, words: str) -> bool:
    said = finding(rule, config)
    error = read({**BASE, **config})
    assert isinstance(error, Exception) == (said is not None and said.fails == "parse"), (config, error)
    if said:
        assert words in str(error)
    return said is not None


# ---- parse -----------------------------------------------------------------------------------------


def test_allreduce_sum() -> None:
    seen = set()
    for stage, op, zenflow, compiled in product(
        STAGES, (None, "mean", "sum", "SUM"), (None, {}, {"topk_ratio": 0.5}, "auto"), (None, False, True)
    ):
        keys = {} if zenflow is None else {"zenflow": zenflow}
        config = zero(stage, **keys)
        config |= {} if op is None else {"gradient_allreduce_op": op}
        config |= {} if compiled is None else {"compile": {"deepcompile": compiled}}
        seen.add(agree_at_parse("allreduce-sum-zero3", config, "sum"))
    assert seen == {True, False}


def test_grad_norm_at_parse() -> None:
    seen = set()
    for stage, norm in product(STAGES, (None, True, False, "auto", 0)):
        config = zero(stage, **({} if norm is None else {"compute_grad_norm": norm}))
        said = finding("grad-norm-needed", config)
        error = read({**BASE, **config})
        assert isinstance(error, Exception) == (said is not None and said.fails == "parse")
        seen.add(isinstance(error, Exception))
    assert seen == {True, False}


# ---- init ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("process_group")
def test_predivide() -> None:
    seen = set()
    scales: list[Config] = [
        {},
        {"prescale_gradients": True},
        {"gradient_predivide_factor": 2},
        {"gradient_predivide_factor": 1},
    ]
    for stage, scatter, op, scale in product(
        STAGES,
        (None, False),
        (None, "sum"),
        scales,
    ):
        if op == "sum" and stage == 3:
            continue
        keys = {} if scatter is None else {"reduce_scatter": scatter}
        config = {**zero(stage, **keys), **scale, "optimizer": TORCH_ADAM}
        config |= {} if op is None else {"gradient_allreduce_op": op}
        seen.add(agree("predivide-with-zero", config, "not yet supported"))
    assert seen == {"init", None}


@pytest.mark.usefixtures("process_group")
def test_odd_buckets_and_the_optimizer_that_takes_them() -> None:
    seen = set()
    for stage, size, precision, device in product(
        STAGES, (8, 7), ({}, {"bf16": {"enabled": True}}), (None, "none", "cpu", "nvme")
    ):
        for accumulation in (None, "bf16", "fp32") if precision else (None, "fp32"):
            if (stage == 3 and device == "nvme") or (stage == 0 and accumulation == "fp32" and precision):
                continue
            config = {**zero(stage, allgather_bucket_size=size), **precision, "optimizer": TORCH_ADAM}
            if device:
                config["zero_optimization"]["offload_optimizer"] = {**CPU, "device": device}
            config |= {"data_types": {"grad_accum_dtype": accumulation}} if accumulation else {}
            said, engine = finding("odd-allgather-bucket", config), initialize(config)
            assert isinstance(engine, Exception) == (said is not None), (config, engine)
            if said is not None:
                assert "allgather_bucket_size" in str(engine)
                continue
            classes = {
                "BF16_Optimizer": "bf16",
                "DeepSpeedZeroOptimizer": "stage12",
                "DeepSpeedZeroOptimizer_Stage3": "stage3",
            }
            name = classes.get(type(engine.optimizer).__name__, "none")
            fact = compile_expression("fact.zero_optimizer")
            assert scope_of(config_of({**BASE, **config})).value(fact) == name, config
            seen.add(name)
    assert seen == {"bf16", "stage12", "stage3", "none"}


@pytest.mark.usefixtures("process_group")
def test_grad_norm_at_init() -> None:
    seen = set()
    for stage, clipping, extra, wide in product(
        (1, 2),
        (None, 0, 1, -1),
        ({}, {"offload_optimizer": CPU}, {"offload_optimizer": CPU, "zenflow": {}}),
        (0, 1),
    ):
        config = {**zero(stage, compute_grad_norm=False, **extra), **SGD}
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}} if wide else {}
        config |= {} if clipping is None else {"gradient_clipping": clipping}
        said, engine = finding("grad-norm-needed", config), initialize(config)
        assert isinstance(engine, Exception) == (said is not None), (config, engine)
        if said is not None:
            assert said.fails == "init"
            assert "compute_grad_norm=false" in str(engine)
        seen.add(said is None)
    assert seen == {True, False}


@pytest.mark.usefixtures("process_group")
def test_unmanaged_accumulation() -> None:
    seen = set()
    for stage, overlap, managed, compiled in product(
        STAGES, (None, False, True), (False, True), (False, True)
    ):
        keys = {} if overlap is None else {"overlap_comm": overlap}
        config: Config = {
            **zero(stage, **keys),
            "optimizer": TORCH_ADAM,
            "managed_gradient_accumulation": managed,
        }
        config |= {"compile": {"deepcompile": True}} if compiled else {}
        said, engine = finding("unmanaged-accumulation-overlap", config), initialize(config)
        assert isinstance(engine, Exception) == (said is not None), (config, engine)
        seen.add(said is None)
    assert seen == {True, False}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("offload", [{}, {"offload_optimizer": CPU}], ids=["gpu", "cpu"])
def test_contiguous_gradients(stage: int, offload: Config) -> None:
    config = {**zero(stage, contiguous_gradients=False, **offload), "optimizer": TORCH_ADAM}
    forced = initialize(config).optimizer.contiguous_gradients
    assert forced == (finding("contiguous-gradients-forced", config) is not None)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("size", [1, 1000])
def test_sequential(sequential: bool, size: int) -> None:
    keys = {"stage3_allgather_sequential": sequential, "stage3_prefetch_bucket_size": size}
    config = {**zero(3, **keys), "optimizer": TORCH_ADAM}
    kept = initialize(config).zero_prefetch_bucket_size() == size
    assert kept == (finding("sequential-overrides-prefetch", config) is None)


# ---- what acts at stage 3 only ---------------------------------------------------------------------

ZEROPP: list[Config] = [
    {"zero_hpz_partition_size": 2},
    {"zero_quantized_weights": True},
    {"zero_quantized_nontrainable_weights": True},
    {"zero_quantized_gradients": True},
]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_keys_of_stage_3_change_nothing_below(stage: int) -> None:
    """The engine takes them, and none of its optimizer's settings differs."""
    table = read(BASE).zero_config
    keys: Config = {"sub_group_size": 7, "log_trace_cache_warnings": True, "leaf_module": {"names": ["x"]}}
    keys |= {
        f"stage3_{name}": 3 for name in ("prefetch_bucket_size", "max_live_parameters", "max_reuse_distance")
    }
    keys |= {
        f"stage3_{name}": True for name in ("allgather_sequential", "gather_16bit_weights_on_model_save")
    }
    assert all(hasattr(table, name.removeprefix("stage3_")) for name in keys)
    plain = settings(initialize({**zero(stage), "optimizer": TORCH_ADAM}).optimizer)
    for more in (keys, *ZEROPP):
        config = {**zero(stage, **more), "optimizer": TORCH_ADAM}
        assert settings(initialize(config).optimizer) == plain
        rule = "stage3-key-below-stage3" if more is keys else "zeropp-needs-zero3"
        assert finding(rule, config) is not None
        assert finding(rule, {**zero(3, **more)}) is None
    assert {is_for_stage3(f"zero_optimization.{name}") for name in keys} == {True}


def settings(optimizer: object) -> Config:
    return {
        name: value for name, value in vars(optimizer).items() if isinstance(value, bool | int | float | str)
    }


# ---- ZeRO++ ----------------------------------------------------------------------------------------


def context_finding(
    rule: str, config: Config, world_size: int, gpus_per_node: int | None = None
) -> str | None:
    """The severity that lint gives."""
    built = config_of({**BASE, **config}, world_size=world_size)
    built.context = built.context._replace(gpus_per_node=gpus_per_node)
    found = [each.severity for each in lint_config(built, RULES).findings if each.rule == rule]
    return found[0] if found else None


def test_hpz() -> None:
    groups = importlib.import_module("deepspeed.utils.groups")
    seen = set()
    for world, size in product(range(1, 17), range(2, 18)):
        dist = mock.Mock()
        dist.get_world_size.return_value, dist.get_rank.return_value = world, 0
        with (
            mock.patch.object(groups, "dist", dist),
            mock.patch.object(groups, "_ZERO_PARAM_INTRA_PARALLEL_GROUP", None),
        ):
            try:
                groups._create_zero_param_parallel_group(size)
                fails = False
            except AssertionError as error:
                fails = "not divisible" in str(error)
        said = context_finding("hpz-divisibility", zero(3, zero_hpz_partition_size=size), world)
        assert (said == "error") == fails
        seen.add(fails)
    assert seen == {True, False}


def test_groups_for_quantized_gradients() -> None:
    groups = importlib.import_module("deepspeed.utils.groups")
    config = zero(3, zero_quantized_gradients=True)
    seen = set()
    for world, node in product(range(1, 25), (1, 2, 4, 8)):
        dist, accelerator = mock.Mock(), mock.Mock()
        dist.get_world_size.return_value, accelerator.device_count.return_value = world, node
        dist.new_group.side_effect = lambda ranks: list(ranks)
        made: dict[str, list[int]] = {}
        with (
            mock.patch.object(groups, "dist", dist),
            mock.patch.object(groups, "get_accelerator", lambda found=accelerator: found),
            mock.patch.object(groups, "_ALL_TO_ALL_GROUP", made),
        ):
            try:
                groups._get_local_all_to_all_group()
                left = world - sum(len(ranks) for name, ranks in made.items() if name.startswith("local"))
                outcome = "warning" if left else None
            except AssertionError:
                outcome = "error"
        assert context_finding("quantized-gradients-nodes", config, world, node) == outcome, (world, node)
        seen.add(outcome)
    assert seen == {"error", "warning", None}


# ---- ZenFlow ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("process_group")
def test_zenflow_needs_offload() -> None:
    seen = set()
    for stage, offload in product(
        (0, 1, 2), ({}, {"offload_optimizer": {"device": "none"}}, {"offload_optimizer": CPU})
    ):
        sections: list[Config] = [{}, {"zenflow": {}}, {"zenflow": "auto"}]
        for section in sections:
            config = {**zero(stage, **offload, **section), **SGD}
            seen.add(agree("zenflow-needs-offload", config))
    assert seen == {"init", "step", None}


@pytest.mark.usefixtures("process_group")
def test_zenflow_intervals() -> None:
    seen = set()
    for strategy, select, update in product(
        (None, "auto", "step", "epoch"), (None, "auto", 0, 2, 4), (None, 1, 3)
    ):
        values = {"select_strategy": strategy, "select_interval": select, "update_interval": update}
        section: Config = {key: value for key, value in values.items() if value is not None}
        config = {**zero(2, offload_optimizer=CPU, zenflow=section), **SGD}
        said, engine = finding("zenflow-intervals", config), initialize(config)
        assert isinstance(engine, Exception) == (said is not None), (config, engine)
        seen.add(type(engine).__name__)
    assert seen == {"Warning", "ValueError", "DeepSpeedEngine"}


@pytest.mark.usefixtures("process_group")
def test_zenflow_offload() -> None:
    seen = set()
    for stage, overlap, offload in product((1, 2, 3), (None, False, True), (False, True)):
        keys = {} if overlap is None else {"overlap_comm": overlap}
        config = {**zero(stage, offload_optimizer=CPU, zenflow={"offload": offload}, **keys), **SGD}
        said, engine = finding("zenflow-offload-needs-overlap", config), initialize(config)
        assert isinstance(engine, Exception) == (said is not None), (config, engine)
        seen.add(said is None)
    assert seen == {True, False}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("update", ["auto", 1, 2, 4])
@pytest.mark.parametrize("steps", [1, 2])
def test_zenflow_takes_the_place_of_accumulation(update: object, steps: int) -> None:
    section = {"select_strategy": "step", "select_interval": 4, "update_interval": update}
    config = {**zero(2, offload_optimizer=CPU, zenflow=section), **SGD, "gradient_accumulation_steps": steps}
    used = initialize(config).gradient_accumulation_steps()
    assert used == (0 if update == "auto" else update)
    assert (finding("zenflow-replaces-accumulation", config) is not None) == (steps > 1 and used != steps)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("params", [{"torch_adam": True}, {}])
@pytest.mark.parametrize("section", [{"zenflow": {}}, {}])
def test_zenflow_and_torch_adam(params: Config, section: Config) -> None:
    optimizer = {"type": "AdamW" if params else "SGD", "params": {"lr": 0.1, **params}}
    config = {**SGD, **zero(1, offload_optimizer=CPU, **section), "optimizer": optimizer}
    said, engine = finding("zenflow-torch-adam", config), initialize(config)
    assert isinstance(engine, TypeError) == (said is not None)
    assert isinstance(engine, Exception) == (said is not None)
