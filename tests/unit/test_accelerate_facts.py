"""What follows from a config of Accelerate, and what it doesn't determine."""

from __future__ import annotations

import json

import pytest

from dsconf.config.context import Context
from dsconf.config.effective import Config, Facts
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.facts import FACTS
from dsconf.formats.accelerate.keys import table_for
from dsconf.formats.accelerate.launch import exported
from dsconf.formats.accelerate.plugins import plugin


def config_of(settings: dict[str, object], world_size: int | None = None) -> Config:
    document = scan("accelerate.json", json.dumps(settings))
    return Config(document, table_for(document), Context(world_size=world_size))


def fact(name: str, settings: dict[str, object], world_size: int | None = None) -> object:
    return Facts(config_of(settings, world_size), FACTS).value(name)


def fsdp(**section: object) -> dict[str, object]:
    return {"distributed_type": "FSDP", "fsdp_config": section}


def layout(**section: object) -> dict[str, object]:
    sizes = {f"parallelism_config_{name}": value for name, value in section.items()}
    return {**fsdp(version=2), "parallelism_config": sizes}


DEEPSPEED: dict[str, object] = {"distributed_type": "DEEPSPEED"}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("live_section", fsdp(), "fsdp_config"),
        ("live_section", {"distributed_type": "NO"}, None),
        ("live_section", {}, UNKNOWN),
        ("live_section", {"distributed_type": "FSDP2"}, UNKNOWN),
        ("fsdp_on", {"distributed_type": "MULTI_GPU", "fsdp_config": {"fsdp_version": 2}}, False),
        ("launched_by", {"distributed_type": "XLA"}, "tpu"),
        ("launched_by", {"distributed_type": "MULTI_CPU"}, "simple"),
        ("fsdp_version", fsdp(), 1),
        ("fsdp_version", fsdp(fsdp_version="2"), 2),
        ("fsdp_version", fsdp(fsdp_version=3), UNKNOWN),
        ("fsdp_version", {"distributed_type": "NO", "fsdp_config": {"fsdp_version": 2}}, UNKNOWN),
        ("fsdp_offload", fsdp(fsdp_offload_params="on"), True),
        ("fsdp_offload", fsdp(fsdp_offload_params="cpu"), UNKNOWN),
        ("wrap_policy", fsdp(auto_wrap_policy="size_based_wrap"), "SIZE_BASED_WRAP"),
        ("wrap_policy", fsdp(), "NO_WRAP"),
        ("min_num_params", fsdp(auto_wrap_policy="SIZE_BASED_WRAP"), 100_000_000),
        ("min_num_params", fsdp(min_num_params="1e8"), UNKNOWN),
        ("ram_efficient", fsdp(), True),
        ("state_dict_type", fsdp(), "FULL_STATE_DICT"),
        ("state_dict_type", fsdp(version=2), "SHARDED_STATE_DICT"),
        ("state_dict_type", fsdp(version=2, state_dict_type=1), "FULL_STATE_DICT"),
        ("loading_conflict", fsdp(sync_module_states=False), True),
        ("loading_conflict", fsdp(sync_module_states="false"), False),
        ("loading_conflict", fsdp(sync_module_states=False, cpu_ram_efficient_loading=False), False),
        ("loading_conflict", DEEPSPEED, False),
        ("mixed_precision", {"fp16": True}, "fp16"),
        ("mixed_precision", {"fp16": True, "mixed_precision": None}, "no"),
        ("mixed_precision", {"mixed_precision": "BF16"}, "bf16"),
        ("mixed_precision", {"mixed_precision": False}, UNKNOWN),
        ("processes", {**fsdp(), "num_processes": 8}, 8),
        ("processes", {**fsdp(), "num_processes": "8"}, 8),
        ("processes", {**fsdp(), "num_processes": -1}, UNKNOWN),
        ("processes", fsdp(), UNKNOWN),
        ("processes", {"distributed_type": "NO"}, 1),
        ("machines", fsdp(), 1),
        ("machines", {**fsdp(), "num_machines": "2"}, UNKNOWN),
        ("machines", {**fsdp(), "num_machines": True}, UNKNOWN),
        ("ds_file", {**DEEPSPEED, "deepspeed_config": {"deepspeed_config_file": "ds.json"}}, "ds.json"),
        ("ds_file", {**DEEPSPEED, "deepspeed_config": {"deepspeed_config_file": "none"}}, None),
        ("ds_file", {**fsdp(), "deepspeed_config": {"deepspeed_config_file": "ds.json"}}, None),
        ("ds_file", {}, UNKNOWN),
        ("zero_stage", DEEPSPEED, 2),
        ("zero_stage", {**DEEPSPEED, "deepspeed_config": {"deepspeed_config_file": "ds.json"}}, UNKNOWN),
        ("parallelism_on", fsdp(), False),
        ("parallelism_on", layout(tp_size=2), True),
        ("parallelism_on", {**fsdp(), "parallelism_config": {}}, False),
        ("mesh_product", fsdp(), None),
        ("mesh_product", layout(tp_size=2, dp_shard_size="4"), 8),
        ("mesh_product", layout(tp_size="two"), UNKNOWN),
        ("mesh_product", {}, UNKNOWN),
        (
            "overwriting",
            {**DEEPSPEED, "deepspeed_config": {"num_processes": 6, "zero_stage": 2}},
            ["num_processes"],
        ),
        ("overwriting", {**DEEPSPEED, "deepspeed_config": {"num_processes": None}}, []),
        ("overwriting", fsdp(num_processes=6), []),
        ("processes", {"num_processes": 8, "parallelism_config": {"num_processes": 6}}, UNKNOWN),
        ("processes", {"num_processes": 8, "parallelism_config": {"num_machines": 6}}, 8),
        ("machines", {"parallelism_config": {"num_machines": 6}}, UNKNOWN),
        ("mixed_precision", {"mpirun_config": {"mixed_precision": "fp16"}}, UNKNOWN),
        ("processes_problem", {**DEEPSPEED, "deepspeed_config": {"num_processes": 6}}, UNKNOWN),
    ],
)
def test_facts(name: str, settings: dict[str, object], expected: object) -> None:
    assert fact(name, settings) == expected


def test_the_number_of_processes_of_the_command_line_comes_first() -> None:
    assert fact("processes", {**fsdp(), "num_processes": 8}, world_size=4) == 4


@pytest.mark.parametrize("name", [name for name in FACTS if name != "mesh_words"])  # of known sizes only
def test_what_may_be_there_all_the_same_is_not_known(name: str) -> None:
    config = config_of({})
    config.document.root.open = True
    opened = Config(config.document, config.table, Context())
    assert Facts(opened, FACTS).value(name) is UNKNOWN


def test_rows_say_where_a_value_comes_from() -> None:
    config = config_of(fsdp(fsdp_version=2, cpu_ram_efficient_loading=False))
    sources = {row.name: row.source for row in exported(config)}
    assert sources["FSDP_VERSION"] == "fsdp_config.version"
    assert sources["FSDP_OFFLOAD_PARAMS"] == "default"
    assert sources["ACCELERATE_USE_FSDP"] == "distributed_type"
    plugged = {row.name: row.source for row in plugin(config)}
    assert plugged["cpu_ram_efficient_loading"] == "fsdp_config.cpu_ram_efficient_loading"
    assert plugged["sharding_strategy"] == "FSDP2 goes by reshard_after_forward"


def test_nothing_is_plugged_in_without_a_section_that_counts() -> None:
    assert plugin(config_of({"distributed_type": "MULTI_GPU", "fsdp_config": {"fsdp_version": 2}})) == []
