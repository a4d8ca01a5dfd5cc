"""Axolotl configs as a Plan: what Axolotl makes of its keys before Trainer sees them."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.config.gpus import gpu_named
from dsconf.document.yaml_reader import scan_yaml
from dsconf.document.yaml_style import flow
from dsconf.formats.axolotl.keys import table_for
from dsconf.formats.axolotl.read import read
from dsconf.formats.reading import Reading
from dsconf.plan import Launch, Parallelism, TrainerSchedule, Unresolved

ANY = Context()


def reading(*keys: dict[str, Any], context: Context = ANY) -> Reading:
    settings: dict[str, Any] = {"base_model": "m"}
    for each in keys:
        settings |= each
    text = "".join(f"{name}: {flow(value)}\n" for name, value in settings.items())
    document = scan_yaml("axolotl.yaml", text)
    return read(Config(document, table_for(document, context), context, format="axolotl"))


def outcome(found: Reading, key: str) -> str | None:
    return next((item.outcome for item in found.items if item.key == key), None)


FSDP2: dict[str, Any] = {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}}


def test_its_own_defaults_are_in_force() -> None:
    found = reading(FSDP2, {"learning_rate": 1e-4})
    plan = found.plan
    assert found.source == "axolotl-fsdp2"
    assert (plan.batch.micro, plan.batch.accumulation) == (1, 1)
    assert plan.schedule is not None
    assert plan.schedule.name == "cosine"
    assert plan.clipping.max_norm == 1.0
    assert plan.optimizer is not None
    assert plan.optimizer.arguments["lr"] == 1e-4
    assert plan.precision.compute == Unresolved(key="bf16")
    assert found.in_force["micro_batch_size"].note == "Axolotl's default"


def test_without_a_version_it_is_fsdp1() -> None:
    found = reading({"fsdp_config": {"offload_params": True}})
    assert found.source == "axolotl-fsdp1"
    assert found.in_force["fsdp_version"].value == 1


def test_bf16_is_what_the_gpu_has() -> None:
    gpu = gpu_named("H100", None)
    assert reading(FSDP2, context=Context(gpu=gpu)).plan.precision.compute == "bf16"
    assert reading(FSDP2, {"bf16": True}).plan.precision.autocast == "bf16"
    assert reading(FSDP2, {"bf16": False}).plan.precision.compute == "fp32"
    assert reading(FSDP2, {"bf16": "full"}).plan.precision.masters == "bf16"


def test_bf16_wins_over_fp16() -> None:
    assert reading(FSDP2, {"bf16": True, "fp16": True}).plan.precision.compute == "bf16"
    assert reading(FSDP2, {"bf16": False, "fp16": True}).plan.precision.compute == "fp16"


@pytest.mark.parametrize(
    ("keys", "warmup"),
    [
        ({"max_steps": 1000}, 30),
        ({"max_steps": 10_000}, 100),
        ({"max_steps": 999, "warmup_ratio": 0.1}, 99),
        ({"max_steps": 100, "warmup_steps": 1}, 2),
        ({"max_steps": 100, "warmup_steps": 12}, 12),
        ({"warmup_ratio": 0.1}, 0.1),
        ({}, Unresolved(key="warmup_steps")),
    ],
)
def test_warm_up(keys: dict[str, Any], warmup: object) -> None:
    schedule = reading(FSDP2, keys).plan.schedule
    assert isinstance(schedule, TrainerSchedule)
    assert schedule.warmup_steps == warmup


def test_a_part_of_steps_that_are_not_known_is_rounded_otherwise_than_by_trainer() -> None:
    found = reading(FSDP2, {"warmup_ratio": 0.1})
    assert found.remarks["warmup_ratio"].outcome == "approximate"
    assert "warmup_ratio" not in reading(FSDP2, {"warmup_ratio": 0.1, "max_steps": 100}).remarks


def test_a_lowest_rate_of_the_cosine() -> None:
    found = reading(FSDP2, {"max_steps": 100, "cosine_min_lr_ratio": 0.1, "warmup_steps": 10})
    assert found.plan.schedule == TrainerSchedule(
        name="cosine_with_min_lr", warmup_steps=10, total_steps=100, arguments={"min_lr_rate": 0.1}
    )
    assert found.fields["cosine_min_lr_ratio"] == "schedule.arguments"


@pytest.mark.parametrize("name", ["one_cycle", "rex"])
def test_schedules_of_its_own_are_said(name: str) -> None:
    assert outcome(reading(FSDP2, {"lr_scheduler": name}), "lr_scheduler") == "unsupported"


def test_sizes_are_groups_of_ranks() -> None:
    sizes = {
        "dp_shard_size": 4,
        "dp_replicate_size": 2,
        "tensor_parallel_size": 2,
        "context_parallel_size": 2,
    }
    plan = reading(FSDP2, sizes).plan
    assert plan.sharding.group == 8
    assert plan.parallelism == Parallelism(tensor=2, context=2)
    assert plan.launch == Launch(world_size=32)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("load_in_4bit", True, "unsupported"),
        ("load_in_4bit", False, "no-effect"),
        ("embedding_lr", 1e-5, "unsupported"),
        ("lr_quadratic_warmup", True, "unsupported"),
        ("gradient_checkpointing", "offload", "unsupported"),
        ("adapter", "lora", "no-effect"),
        ("datasets", [{"path": "x"}], "no-effect"),
        ("neftune_noise_alpha", 5, "unsupported"),
        ("optimizer", "muon", "unsupported"),
    ],
)
def test_keys_without_a_place(key: str, value: object, expected: str) -> None:
    assert outcome(reading(FSDP2, {key: value}), key) == expected


def test_keys_that_axolotl_drops_are_said() -> None:
    found = reading(
        {"fsdp_version": 2, "fsdp_config": {"sharding_strategy": "FULL_SHARD", "cpu_offload": True}}
    )
    assert outcome(found, "fsdp_config.cpu_offload") == "no-effect"
    assert not found.plan.offload.parameters
