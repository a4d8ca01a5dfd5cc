"""The declared keys are exactly those that the real DeepSpeed reads: its own code is asked which."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
from typing import Any
from unittest import mock

import pytest

from dsconf.formats.deepspeed.keys import load_keys

from .declared import NODES, SECTIONS, found, with_value
from .judge import Config, World, ds_config

pytestmark = pytest.mark.oracle


class Recorder(dict[str, Any]):
    """A section that notes every key it is asked for."""

    def __init__(self, values: Config, path: str, asked: set[str]) -> None:
        self.path, self.asked = path, asked
        super().__init__({key: self._wrapped(key, value) for key, value in values.items()})

    def _at(self, key: object) -> str:
        return f"{self.path}.{key}" if self.path else str(key)

    def _wrapped(self, key: object, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrapped(f"{key}.0", item) for item in value]
        return Recorder(value, self._at(key), self.asked) if isinstance(value, dict) else value

    def _note(self, key: object) -> None:
        self.asked.add(self._at(key))

    def __copy__(self) -> Recorder:
        return Recorder(self, self.path, self.asked)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def keys(self) -> Any:
        return self


def declared(node: Config | None = None, above: str = "") -> set[str]:
    """Every declared path, other spellings included; "0" stands for a free name and for an item of a list."""
    node = node or load_keys()
    found = set()
    for name, below in node.get("keys", {"0": node.get("each")}).items():
        path = f"{above}.{name}" if above else name
        found.add(path)
        if "keys" in below or "each" in below:
            found |= declared(below, path)
    return found


def everything() -> Config:
    """A config with every section, and with all that has to be on before DeepSpeed reads the rest."""
    config: Config = {"train_batch_size": 1}
    for path in SECTIONS:
        if path and not path.endswith(".0"):
            config = with_value(config, path, {})
    learning = "data_efficiency.data_sampling.curriculum_learning"
    for path, value in {
        f"{learning}.enabled": True,
        f"{learning}.curriculum_metrics": {},
        "data_efficiency.data_sampling.dynamic_batching": {"enabled": True, "max_tokens": 8},
        "data_efficiency.data_routing.random_ltd.enabled": True,
        "torch_autocast.lower_precision_safe_modules": [],
        "expert_parallel.enabled": False,
    }.items():
        config = with_value(config, path, value)
    return config


def parsed(config: Config) -> set[str]:
    """What DeepSpeedConfig asks for in its raw sections, and the fields of its pydantic models."""
    asked: set[str] = set()
    with mock.patch.object(ds_config, "dist", World(1)):
        result = ds_config.DeepSpeedConfig(Recorder(config, "", asked))
    for path in SECTIONS:
        if path and NODES[path][0].get("reader") == "pydantic":
            model = type(found(result, path)[1])
            for name, field in getattr(model, "model_fields", {}).items():
                asked |= {f"{path}.{spelling}" for spelling in (name, field.alias) if spelling}
    return asked


def surface() -> set[str]:
    """All that is read as the config is parsed: some keys only where others are absent."""
    full = everything()
    return parsed(full) | parsed({**full, "bf16": None}) | parsed({**full, "zero_optimization": True})


def partition_config() -> set[str]:
    asked: set[str] = set()
    path = "tensor_parallel.partition_config"
    module = importlib.import_module("deepspeed.module_inject.autotp_config")
    module.AutoTPConfig.from_dict(Recorder({"layer_specs": [{}]}, path, asked))
    return asked | {f"{path}.layer_specs.0"}


def curriculum() -> set[str]:
    asked: set[str] = set()
    path = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.0"
    numbers = {
        "difficulty": [1, 2],
        "max_step": [1],
        "total_curriculum_step": 8,
        "difficulty_step": 8,
        "root_degree": 2,
    }
    module = importlib.import_module("deepspeed.runtime.data_pipeline.curriculum_scheduler")
    for kind in NODES[f"{path}.schedule_type"][0]["values"]:
        metric: Config = {"min_difficulty": 1, "max_difficulty": 2, "schedule_type": kind}
        metric["schedule_config"] = {**numbers, "root_degree": 2}
        module.CurriculumScheduler(Recorder(metric, path, asked))
    return asked | {path}


def schedules() -> set[str]:
    module = importlib.import_module("deepspeed.runtime.lr_schedules")
    kinds = [getattr(module, name) for name in module.VALID_LR_SCHEDULES]
    names = {name for kind in kinds for name in inspect.signature(kind).parameters}
    return {f"scheduler.params.{name}" for name in names - {"optimizer"}}


def texts(*modules: str) -> set[str]:
    """Every string and every name of an argument in the source of some modules."""
    nodes = [
        node
        for module in modules
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module))))
    ]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return strings | {node.arg for node in nodes if isinstance(node, ast.arg)}


LATER = {
    "data_efficiency.": ("deepspeed.runtime.data_pipeline.constants",),
    "data_parallel_size": ("deepspeed",),
    "optimizer.params.": (
        "deepspeed", "deepspeed.runtime.engine", "deepspeed.runtime.config",
        "deepspeed.runtime.zero.muon.muon_optimizer", "deepspeed.runtime.zero.muon.original_muon",
        "deepspeed.ops.adam.fused_adam", "deepspeed.ops.adam.cpu_adam",
        "deepspeed.ops.lamb.fused_lamb", "torch.optim.adam",
    ),
    "pipeline.": ("deepspeed.runtime.pipe.engine", "deepspeed.runtime.config"),
}  # fmt: skip
"""By the beginning of a path: the modules that look at keys after the config is parsed, and name them."""


def test_every_key_that_deepspeed_reads_is_declared() -> None:
    assert (surface() | partition_config() | curriculum() | schedules()) - declared() == set()


def test_every_declared_key_is_read_by_deepspeed() -> None:
    unread = declared() - surface() - partition_config() - curriculum() - schedules()
    known = {beginning: texts(*modules) for beginning, modules in LATER.items()}
    assert {
        path
        for path in unread
        if not any(
            path.startswith(start) and path.rpartition(".")[2] in names for start, names in known.items()
        )
    } == set()


def test_the_recorder_hears_an_unknown_key() -> None:
    asked: set[str] = set()
    section = Recorder({"a": {"b": 1}}, "", asked)
    assert (section.keys().__contains__("c"), section["a"].get("d"), "e" in copy.copy(section)["a"]) == (
        False,
        None,
        False,
    )
    assert asked == {"c", "a", "a.d", "a.e"}
