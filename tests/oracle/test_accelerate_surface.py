"""The keys of the table are those of the real classes and of the real launcher's arguments."""

from __future__ import annotations

import dataclasses
import importlib
import inspect

import pytest

from dsconf.formats.accelerate.arguments import ARGUMENTS, OWN, overwritten
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


def test_arguments_of_no_section() -> None:
    sections = [node["keys"] for node in load_keys()["keys"].values() if "keys" in node]
    declared = {name for keys in sections for name in keys}
    script = {"nondefault", "training_script", "training_script_args"}
    real = {name for name in arguments() if not name.startswith("megatron_lm_")}
    assert real - script - (declared - FROM_PYTHON) - ARGUMENTS == set()
    assert real >= ARGUMENTS


@pytest.mark.parametrize(
    ("section", "key", "argument"),
    [
        ("deepspeed_config", "num_processes", "num_processes"),
        ("deepspeed_config", "mixed_precision", "mixed_precision"),
        ("parallelism_config", "num_machines", "num_machines"),
        ("fsdp_config", "num_processes", None),
        ("dynamo_config", "mixed_precision", None),
        ("parallelism_config", "tp_size", None),
    ],
)
def test_a_key_of_a_section_may_overwrite_an_argument(section: str, key: str, argument: str | None) -> None:
    launch = importlib.import_module("accelerate.commands.launch")
    parsed = launch.launch_command_parser().parse_args(["train.py"])
    config = importlib.import_module("accelerate.commands.config.config_args").ClusterConfig(
        compute_environment="LOCAL_MACHINE",
        distributed_type="DEEPSPEED",
        mixed_precision="no",
        use_cpu=False,
        debug=False,
        num_processes=8,
        **{section: {key: 6}},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "load_config_from_file", lambda _: config)
        parsed.config_file = "any"
        merged, _, _ = launch._validate_launch_command(parsed)
    changed = next((name for name in ARGUMENTS if getattr(merged, name, None) == 6), None)
    assert overwritten(section, key) == argument == changed


def test_an_argument_that_is_a_key_of_its_section() -> None:
    """`accelerate config` writes it there."""
    cluster = importlib.import_module("accelerate.commands.config.cluster")
    for section, name in OWN.items():
        assert f'{section}["{name}"] = ' in inspect.getsource(cluster)
        assert overwritten(section, name) is None
        assert overwritten("deepspeed_config", name) == name
