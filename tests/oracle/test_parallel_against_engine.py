"""The rules on parallelism, against deepspeed.initialize on the first and the last rank of several worlds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from configs import config_of

from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .launch import Case, Config, Outcome, launch

pytestmark = pytest.mark.oracle

RULES = load_rules()
BASE: Config = {"train_micro_batch_size_per_gpu": 1}
WORLDS = (1, 2, 6, 8)


def found(config: Config, world_size: int | None = None) -> dict[str, Finding]:
    """What lint says of a config, by rule."""
    return {each.rule: each for each in lint_config(config_of(config, world_size=world_size), RULES).findings}


def errors(config: Config, world_size: int | None, moment: str) -> set[str]:
    """The rules by which the config fails at a moment."""
    said = found(config, world_size)
    return {rule for rule, each in said.items() if each.severity == "error" and each.fails == moment}


def on_all_ranks(configs: Iterable[Config], worlds: Iterable[int] = WORLDS) -> list[tuple[Case, Outcome]]:
    """Each config on the first and the last rank of each world."""
    cases = [
        Case({**BASE, **config}, world, rank)
        for config, world in product(configs, worlds)
        for rank in sorted({0, world - 1})
    ]
    return list(zip(cases, launch(cases), strict=True))


def agree(pairs: list[tuple[Case, Outcome]], moment: str = "init") -> None:
    """Where lint is silent all ranks go on; where it says error at least one stops at that moment. Both occur."""
    by_config: dict[str, list[tuple[Case, Outcome]]] = {}
    for case, outcome in pairs:
        by_config.setdefault(repr((case.config, case.world_size)), []).append((case, outcome))
    verdicts = set()
    for runs in by_config.values():
        case = runs[0][0]
        said = errors(case.config, case.world_size, moment)
        stopped = [outcome for _, outcome in runs if outcome.failed]
        assert all(outcome.failed == moment for outcome in stopped), (case, stopped)
        assert bool(said) == bool(stopped), (case, said, stopped)
        verdicts.add(bool(said))
    assert verdicts == {True, False}


def test_mesh_product() -> None:
    sizes = product((1, 2, 4), (1, 2, 3))
    agree(on_all_ranks({"data_parallel_size": data, "sequence_parallel_size": seq} for data, seq in sizes))


def autotp(size: int, **keys: Any) -> Config:
    """Tensor parallelism with a preset, which any model goes through."""
    return {"tensor_parallel": {"autotp_size": size, "preset_model": "llama", **keys}}


def test_autotp_sizes() -> None:
    agree(on_all_ranks(autotp(size) for size in (0, 1, 2, 3, 4, 8, 16)))


def test_autotp_size_mismatch() -> None:
    sizes = product((0, 1, 2, 4), (1, 2, 4))
    agree(on_all_ranks((autotp(size, tp={"tp_size": other}) for size, other in sizes), worlds=(8,)))


def test_tp_size_alone_splits_nothing() -> None:
    for section in ({"tp": {"tp_size": 4}}, {"tp": {"tp_size": 4}, "autotp_size": 1}):
        ((case, outcome), *_) = on_all_ranks([{"tensor_parallel": section}], worlds=(8,))
        assert (outcome.failed, outcome.engine["tensor_parallel"]) == (None, 1)
        assert outcome.engine["data_parallel"] == 8
        assert "autotp-size-missing" in found(case.config, 8)


@pytest.mark.parametrize(
    "batch", [{"train_batch_size": 16}, {"train_batch_size": 32, "gradient_accumulation_steps": 2}]
)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_batch_of_tensor_parallelism(size: int, batch: Config) -> None:
    config = {**batch, **autotp(size)}
    (outcome,) = launch([Case(config, 8)])
    engine = outcome.engine
    real = engine["micro"] * engine["accumulation"] * engine["data_parallel"]
    said = found(config, 8).get("autotp-batch")
    assert (said is not None) == (real != batch["train_batch_size"])
    assert said is None or said.message.endswith(f"a step takes {real}")
    assert engine["train_batch_size"] == batch["train_batch_size"]


def test_sequence_parallel_alone() -> None:
    pairs = on_all_ranks({"sequence_parallel_size": size} for size in (1, 2, 3, 4, 8))
    for case, outcome in pairs:
        engine, said = outcome.engine, found(case.config, case.world_size)
        size = case.config["sequence_parallel_size"]
        assert (engine["data_parallel"], engine["sequence_parallel"]) == (case.world_size, 1)
        assert ("sequence-parallel-alone" in said) == (engine["train_batch_size"] != case.world_size)
        whole = engine["train_batch_size"] == int(engine["train_batch_size"])
        assert ("sequence-parallel-indivisible" in said) == (not whole), (case.world_size, size)


def test_presets() -> None:
    config = importlib.import_module("deepspeed.module_inject.autotp_config")
    names = (
        "llama",
        "LLaMA",
        "bloom",
        "chatglm",
        "mixtral",
        "deepseek_v2",
        "qwen2",
        "phi3",
        "",
        "llama3",
        "gpt2",
        "qwen3",
    )
    for name in names:
        known = not name or config.AutoTPPresets.get_preset(name) is not None
        said = found({**BASE, **autotp(2, preset_model=name)})
        assert ("autotp-unknown-preset" not in said) == known, name


# ---- expert parallelism ----------------------------------------------------------------------------


def autoep(**keys: Any) -> Config:
    return {"expert_parallel": {"enabled": True, "autoep_size": 2, **keys}}


def test_expert_sizes() -> None:
    sizes = product((1, 2, 3, 8), (1, 2))
    agree(on_all_ranks(autoep(autoep_size=size, expert_tensor_parallel_size=tp) for size, tp in sizes))


def test_ways_to_compute_experts() -> None:
    backends: list[Config] = [
        {}, {"comm_backend": "deepep"}, {"comm_backend": "deepep", "comm_max_tokens_per_rank": 64},
    ]  # fmt: skip
    values = product(
        (1, 2), (True, False), ("separate", "fused"), ("auto", "fused_weighted_sum"), ("auto", "fused"),
        backends,
    )  # fmt: skip
    configs = [
        autoep(autoep_size=size, use_grouped_mm=grouped, gate_up_impl=gate, combine_impl=combine,
               row_weighting_impl=rows, **comm)
        for size, grouped, gate, combine, rows, comm in values
    ]  # fmt: skip
    agree([pair for pair in on_all_ranks(configs, worlds=(8,)) if pair[0].rank == 0])


def test_expert_groups() -> None:
    values = product((None, 1, 2, 4), (None, 1, 2, 4))
    agree(
        on_all_ranks((autoep(num_expert_groups=all_, num_limited_groups=some) for all_, some in values), (8,))
    )


CHANGES: list[Callable[[], Config]] = [
    lambda: {},
    lambda: {"compile": {"deepcompile": True}},
    lambda: {"use_data_before_expert_parallelism": True},
    lambda: autoep(autoep_size=1),
    lambda: autoep(async_split_plan=True),
    lambda: autoep(combine_impl="fused_weighted_sum"),
    lambda: autoep(preset_model="mixtral"),
    lambda: autoep(preset_model="qwen3_moe"),
    lambda: {"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "none"}}},
    lambda: {"zero_optimization": {"stage": 1, "offload_optimizer": {}}},
    lambda: {"zero_optimization": {"stage": 1, "offload_optimizer": None}},
    lambda: {"zero_optimization": {"stage": 1, "offload_param": {"device": "none"}}},
]


def test_expert_and_tensor_parallelism() -> None:
    changed = [
        {**autoep(), **autotp(size, preset_model=preset), **change()}
        for change in CHANGES
        for size, preset in ((1, "mixtral"), (2, "mixtral"), (2, None))
    ]
    cases = [Case({**BASE, **config}, 8) for config in changed]
    verdicts = set()
    for case, outcome in zip(cases, launch(cases), strict=True):
        said = errors(case.config, 8, "init") & {"autoep-with-autotp", "autoep-kernel-conflict"}
        # Past the checks, this model lacks what automatic splitting or ZeRO want.
        refused = "in validate_" in outcome.error
        assert bool(said) == refused, (case.config, said, outcome.error)
        verdicts.add(refused)
    assert verdicts == {True, False}
