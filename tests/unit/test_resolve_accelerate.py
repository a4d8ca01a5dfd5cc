"""`dsconf resolve` of files that are no DeepSpeed configs: what comes of them, not only what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from dsconf.cli import main

LAYOUT = """\
distributed_type: FSDP
num_processes: 8
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
  fsdp_state_dict_type: ${STATE_DICT}
parallelism_config:
  parallelism_config_dp_shard_size: 4
  parallelism_config_cp_size: 2
"""
ZERO = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 3}\n"


def resolve(folder: Path, text: str, *args: str, name: str = "accelerate.yaml") -> Result:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(main, ["resolve", str(path), *args])


def as_json(folder: Path, text: str, name: str = "accelerate.yaml") -> dict[str, Any]:
    result = resolve(folder, text, "--output-format", "json", name=name)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def values(report: dict[str, Any], part: str) -> dict[str, object]:
    """What is told of each name; "?" where that is not known."""
    return {row["name"]: row["value"] if row["known"] else "?" for row in report[part]}


def test_the_table(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    result = resolve(tmp_path, LAYOUT)
    assert result.exit_code == 0
    assert result.stdout == snapshot


def test_what_is_exported_and_what_a_worker_makes_of_it(tmp_path: Path) -> None:
    report = as_json(tmp_path, LAYOUT)
    assert list(report) == ["version", "file", "keys", "environment", "plugin", "parallelism"]
    environment, plugin, layout = (values(report, part) for part in list(report)[3:])
    assert environment["FSDP_RESHARD_AFTER_FORWARD"] == "false", "the environment holds text"
    assert environment["PARALLELISM_CONFIG_CP_SIZE"] == "2"
    assert plugin["reshard_after_forward"] is False
    assert (layout["dp_shard_size"], layout["cp_size"], layout["total_size"]) == (4, 2, 8)
    sources = {row["name"]: row["from"] for row in report["plugin"]}
    assert sources["reshard_after_forward"] == "fsdp_config.reshard_after_forward"
    assert sources["cpu_offload"] == "default"


def test_a_placeholder_is_open_wherever_it_goes(tmp_path: Path) -> None:
    report = as_json(tmp_path, LAYOUT)
    (key,) = [row for row in report["keys"] if row["key"] == "fsdp_config.state_dict_type"]
    assert (key["value"], key["known"], key["origin"], key["line"]) == (None, False, "open", 7)
    assert values(report, "environment")["FSDP_STATE_DICT_TYPE"] == "?"
    assert values(report, "plugin")["state_dict_type"] == "?"
    assert values(report, "plugin")["sharding_strategy"] is None, "null is known"
    table = resolve(tmp_path, LAYOUT).stdout
    assert "${STATE_DICT}" not in table
    filled = as_json(tmp_path, LAYOUT.replace("${STATE_DICT}", "SHARDED_STATE_DICT"))
    assert values(filled, "environment")["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"
    assert values(filled, "plugin")["state_dict_type"] == "SHARDED_STATE_DICT"


def test_a_launch_with_deepspeed(tmp_path: Path) -> None:
    report = as_json(tmp_path, ZERO)
    assert "parallelism" not in report
    assert values(report, "environment")["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    plugin = values(report, "plugin")
    assert (plugin["zero_stage"], plugin["zero3_init_flag"]) == (3, True)


def test_a_launch_of_neither_has_no_plugin(tmp_path: Path) -> None:
    report = as_json(tmp_path, "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    assert {"plugin", "parallelism"} & set(report) == set()
    assert values(report, "environment")["ACCELERATE_MIXED_PRECISION"] == "no"


def test_arguments_of_trainer(tmp_path: Path) -> None:
    text = '{"output_dir": "o", "fsdp": true, "fsdp_config": {"fsdp_version": 2, "cpu_offload": "false"}}'
    report = as_json(tmp_path, text, name="args.json")
    assert list(report) == ["version", "file", "keys", "plugin"], "nothing is launched"
    fields = {row["name"]: (row["value"], row["from"]) for row in report["plugin"]}
    assert fields["cpu_offload"] == (True, "fsdp_config.cpu_offload")
    assert fields["reshard_after_forward"] == (True, "default")
    keys = {row["key"]: row for row in report["keys"]}
    assert keys["fsdp_config.cpu_offload"]["value"] is True, "any text counts as true"
    assert keys["fsdp_config.version"]["origin"] == "written"
    assert keys["fsdp_config.auto_wrap_policy"]["value"] == "TRANSFORMER_BASED_WRAP"


def test_a_deepspeed_section_beside_a_trainer(tmp_path: Path) -> None:
    text = (
        "output_dir: o\nfsdp: true\nds_config: {train_micro_batch_size_per_gpu: 2, zero_optimization: {}}\n"
    )
    report = as_json(tmp_path, text, name="args.yaml")
    inside = {row["key"]: row["value"] for row in report["inside"]["deepspeed"]["keys"]}
    assert inside["train_micro_batch_size_per_gpu"] == 2
    assert {"fsdp", "output_dir"} <= {row["key"] for row in report["keys"]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("services: {web: {image: nginx}}\n", "it has no keys of"),
        ("base_model: m\nmicro_batch_size: 1\n", "an Axolotl config without settings for FSDP or DeepSpeed"),
        ("zero_optimization: {stage: 2}\n", "--consumer says who reads it"),
    ],
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_file_that_is_not_judged_is_not_shown(tmp_path: Path, text: str, reason: str, output: str) -> None:
    result = resolve(tmp_path, text, "--output-format", output)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


def test_broken_yaml_is_said(tmp_path: Path) -> None:
    result = resolve(tmp_path, "distributed_type: [FSDP\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "DS119" in result.stderr
