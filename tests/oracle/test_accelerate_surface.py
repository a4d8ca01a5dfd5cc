"""The keys of the table are those of the real classes and of the real launcher's arguments."""

from __future__ import annotations

import dataclasses
import importlib

import pytest

from dsconf.formats.accelerate.keys import load_keys

pytestmark = pytest.mark.oracle

FROM_PYTHON = {"fsdp_ignored_modules"}
"""Read from a file, though there is no such argument."""
OLD = {"fp16", "dynamo_backend"}
"""The loader makes something else of these."""


def arguments() -> set[str]:
    launch = importlib.import_module("accelerate.commands.launch")
    return set(vars(launch.launch_command_parser().parse_args(["train.py"])))


def test_top_level() -> None:
    real = importlib.import_module("accelerate.commands.config.config_args").ClusterConfig
    assert set(load_keys()["keys"]) == {field.name for field in dataclasses.fields(real)} | OLD


@pytest.mark.parametrize("prefix", ["fsdp", "dynamo", "fp8", "parallelism_config"])
def test_sections_with_a_prefix(prefix: str) -> None:
    section = prefix if prefix.endswith("_config") else f"{prefix}_config"
    written = {name for name in load_keys()["keys"][section]["keys"] if name.startswith(f"{prefix}_")}
    assert written - FROM_PYTHON == {name for name in arguments() if name.startswith(f"{prefix}_")}


def test_deepspeed() -> None:
    launch = importlib.import_module("accelerate.commands.launch")
    group = next(
        group
        for group in launch.launch_command_parser()._action_groups
        if group.title == "DeepSpeed Arguments"
    )
    real = {action.dest for action in group._group_actions}
    assert set(load_keys()["keys"]["deepspeed_config"]["keys"]) == real
