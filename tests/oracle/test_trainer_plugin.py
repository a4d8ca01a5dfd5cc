"""What `dsconf resolve` says of the FSDP plugin of Trainer, against the plugin that TrainingArguments lead to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsconf.formats.trainer.plugin import plugin

from .arguing import one_machine, outcome
from .test_trainer_fsdp import config_of, offloads, policy_of

pytestmark = pytest.mark.oracle

ARGUMENTS: list[dict[str, Any]] = [
    {"fsdp": True},
    {"fsdp": True, "fsdp_config": {"reshard_after_forward": False, "cpu_offload": True}},
    {"fsdp": "shard_grad_op offload"},
    {"fsdp": ["full_shard", "auto_wrap"], "fsdp_config": {"transformer_layer_cls_to_wrap": "A"}},
    {"fsdp": True, "fsdp_config": {"transformer_layer_cls_to_wrap": ["A", "B"]}},
    {"fsdp": True, "fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT"}},
    {"fsdp": True, "fsdp_config": {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 2000}},
    {"fsdp": True, "fsdp_config": {"fsdp_version": 1, "use_orig_params": False, "fsdp_forward_prefetch": True}},
    {"fsdp": "shard_grad_op", "fsdp_config": {"version": 1, "activation_checkpointing": True}},
    {"fsdp": True, "fsdp_config": {"cpu_ram_efficient_loading": "yes", "auto_wrap_policy": "NO_WRAP"}},
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


def really(real: Any, name: str) -> object:
    """A field of the plugin as `resolve` shows it."""
    if name == "cpu_offload":
        return offloads(real)
    if name == "auto_wrap_policy":
        return policy_of(real)
    value = getattr(real, name)
    return getattr(value, "name", value)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_fields(arguments: dict[str, Any], tmp_path: Path) -> None:
    real = outcome(arguments, str(tmp_path))
    assert real.error is None
    rows = {row.name: row.value for row in plugin(config_of(arguments))}
    assert {name: really(real.plugin, name) for name in rows} == rows
    assert len(rows) >= 7


def test_there_is_none_without_fsdp() -> None:
    assert plugin(config_of({"output_dir": "o"})) == []
