"""The key table of Accelerate, and what of it holds for one file."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.environment import WAYS
from dsconf.config.tables import spec_at
from dsconf.document.json_scanner import scan
from dsconf.formats.accelerate.keys import load_keys, table_for
from dsconf.formats.accelerate.model import AccelerateConfig
from dsconf.formats.key import Way
from dsconf.formats.table import key_table


def table_of(**settings: object) -> dict[str, Any]:
    return table_for(scan("accelerate.json", json.dumps(settings)))


def paths(table: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, node in table["keys"].items():
        found.append(prefix + name)
        found += paths(node, f"{prefix}{name}.") if "keys" in node else []
    return found


def test_table_text_is_the_table() -> None:
    assert load_keys() == key_table(AccelerateConfig)


def test_every_way_is_known() -> None:
    used = {spec_at(load_keys(), path)[1].get("way", "text") for path in paths(load_keys())}
    assert used == set(WAYS)
    assert used <= set(get_args(Way))


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("fsdp_config.version", {"type": "int", "values": [1, 2], "default": 1, "shown": "fsdp_version"}),
        ("fsdp_config.reshard_after_forward", {"type": "bool", "read_if": "fsdp2", "way": "flag"}),
        ("fsdp_config.sharding_strategy", {"numbered": 5, "read_if": "fsdp1", "default": "FULL_SHARD"}),
        ("deepspeed_config.zero_stage", {"values": [0, 1, 2, 3], "default": 2, "nullable": True}),
        ("parallelism_config.parallelism_config_cp_size", {"way": "size", "min": 1, "default": 1}),
        ("megatron_lm_config", {"type": "object", "open": True}),
        ("num_processes", {"type": "int", "way": "processes", "read_if": "workers"}),
    ],
)
def test_nodes(path: str, node: dict[str, Any]) -> None:
    assert node.items() <= spec_at(load_keys(), path)[1].items()


def test_the_prefix_of_fsdp_may_be_left_out_and_is_shown() -> None:
    keys = load_keys()["keys"]["fsdp_config"]["keys"]
    names = [name for name, node in keys.items() if "alias" not in node]
    assert all(keys[f"fsdp_{name}"]["alias"] == name for name in names)
    assert all(keys[name]["shown"] == f"fsdp_{name}" for name in names)


def test_nothing_stands_for_a_prefix_in_the_layout() -> None:
    assert all(
        name.startswith("parallelism_config_") for name in load_keys()["keys"]["parallelism_config"]["keys"]
    )


def test_an_unknown_key_stops_the_loader_at_the_top_only() -> None:
    assert load_keys()["unknown"] == "raises"
    assert all("unknown" not in node for node in load_keys()["keys"].values())


def read(path: str, **settings: object) -> bool:
    return bool(spec_at(table_of(**settings), path)[1]["type"] != "any")


@pytest.mark.parametrize(
    ("path", "settings", "expected"),
    [
        ("fsdp_config.offload_params", {"distributed_type": "FSDP"}, True),
        ("fsdp_config.offload_params", {"distributed_type": "MULTI_GPU"}, False),
        ("fsdp_config.sharding_strategy", {"distributed_type": "FSDP"}, True),
        (
            "fsdp_config.sharding_strategy",
            {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": "2"}},
            False,
        ),
        (
            "fsdp_config.sharding_strategy",
            {"distributed_type": "FSDP", "fsdp_config": {"version": "two"}},
            False,
        ),
        (
            "fsdp_config.reshard_after_forward",
            {"distributed_type": "FSDP", "fsdp_config": {"version": 2}},
            True,
        ),
        ("fsdp_config.reshard_after_forward", {"distributed_type": "FSDP"}, False),
        (
            "fsdp_config.min_num_params",
            {"distributed_type": "FSDP", "fsdp_config": {"auto_wrap_policy": "size_based_wrap"}},
            True,
        ),
        ("fsdp_config.min_num_params", {"distributed_type": "FSDP"}, False),
        ("deepspeed_config.zero_stage", {"distributed_type": "DEEPSPEED"}, True),
        ("deepspeed_config.zero_stage", {"distributed_type": "FSDP"}, False),
        ("deepspeed_config.deepspeed_hostfile", {"distributed_type": "DEEPSPEED", "num_machines": 2}, True),
        ("deepspeed_config.deepspeed_hostfile", {"distributed_type": "DEEPSPEED"}, False),
        (
            "parallelism_config.parallelism_config_cp_comm_strategy",
            {"distributed_type": "FSDP", "parallelism_config": {"parallelism_config_cp_size": 2}},
            True,
        ),
        (
            "parallelism_config.parallelism_config_cp_comm_strategy",
            {"distributed_type": "FSDP", "parallelism_config": {"parallelism_config_tp_size": 2}},
            False,
        ),
        (
            "parallelism_config.parallelism_config_tp_size",
            {"distributed_type": "NO", "parallelism_config": {"parallelism_config_tp_size": 2}},
            False,
        ),
        *(
            (
                "parallelism_config.parallelism_config_sp_seq_length",
                {
                    "distributed_type": "DEEPSPEED",
                    "parallelism_config": {"parallelism_config_sp_size": 2, **variable},
                },
                fixed,
            )
            for variable, fixed in (
                ({}, False),
                ({"parallelism_config_sp_seq_length_is_variable": "True"}, False),
                ({"parallelism_config_sp_seq_length_is_variable": "yes"}, True),
            )
        ),
        ("fp8_config.fp8_backend", {"distributed_type": "NO", "mixed_precision": "FP8"}, True),
        ("fp8_config.fp8_backend", {"distributed_type": "NO", "mixed_precision": "bf16"}, False),
        ("num_processes", {"distributed_type": "NO"}, False),
        ("use_cpu", {"distributed_type": "NO"}, True),
        ("num_processes", {"distributed_type": "FSDP", "compute_environment": "AMAZON_SAGEMAKER"}, False),
    ],
)
def test_what_is_read(path: str, settings: dict[str, object], expected: bool) -> None:
    assert read(path, **settings) is expected


@pytest.mark.parametrize("distributed", ["FSDP", "DEEPSPEED", "NO", "no such type"])
def test_every_file_has_the_same_paths(distributed: str) -> None:
    assert paths(table_of(distributed_type=distributed)) == paths(load_keys())


def test_keys_of_sagemaker_are_no_errors() -> None:
    assert table_of(compute_environment="AMAZON_SAGEMAKER")["unknown"] == "ignored"
    assert table_of(compute_environment="LOCAL_MACHINE")["unknown"] == "raises"


@pytest.mark.parametrize(
    ("node", "value", "expected"),
    [
        ({"type": "bool", "way": "flag"}, "Yes", True),
        ({"type": "bool", "way": "flag"}, 0, False),
        ({"type": "bool", "way": "flag"}, None, Invalid("init", "true or false")),
        ({"type": "bool", "way": "true-word"}, "yes", False),
        ({"type": "int", "way": "integer"}, "1_000", 1000),
        ({"type": "int", "way": "integer"}, 2.0, Invalid("init", "an integer")),
        ({"type": "int", "way": "integer", "nullable": True, "default": 2}, None, 2),
        ({"type": "str", "values": ["A", "B"], "way": "member", "numbered": 1}, "1", "A"),
        (
            {"type": "str", "values": ["A", "B"], "way": "member", "numbered": 1},
            2,
            Invalid("init", 'one of "A", "B"'),
        ),
        ({"type": "str", "values": ["A", "B"], "way": "member", "numbered": 1}, "b", "B"),
        ({"type": "str"}, ["A", "B"], "['A', 'B']"),
        (
            {"type": "str", "values": ["no", "bf16"], "way": "precision"},
            False,
            Invalid("launch", 'one of "no", "bf16"'),
        ),
        ({"type": "str", "values": ["no", "bf16"], "way": "precision"}, "BF16", "bf16"),
        ({"type": "any"}, "whatever", "whatever"),
    ],
)
def test_what_becomes_of_a_value(node: dict[str, Any], value: object, expected: object) -> None:
    assert coerce(node, "environment", value) == expected
