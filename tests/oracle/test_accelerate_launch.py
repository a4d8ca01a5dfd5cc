"""Whole configs through `accelerate launch`: the environment, the plugins and the facts against the real ones."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS, needs_corpus

from dsconf.config.effective import Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.facts import FACTS

from .accelerate_answers import config_of, differences, fields
from .accelerating import launched, one_machine

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


def fsdp(more: dict[str, object] | None = None, **section: object) -> dict[str, object]:
    return {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": section, **(more or {})}


def deepspeed(more: dict[str, object] | None = None, **section: object) -> dict[str, object]:
    return {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": section, **(more or {})}


CONFIGS: dict[str, dict[str, Any]] = {
    "nothing": {"distributed_type": "NO"},
    "gpus": {"distributed_type": "MULTI_GPU", "num_processes": 2, "mixed_precision": "BF16"},
    "cpus": {"distributed_type": "MULTI_CPU", "num_processes": 2, "use_cpu": True, "debug": True},
    "sections-that-do-not-count": {
        **deepspeed(zero_stage=1),
        "fsdp_config": {"fsdp_version": 3, "fsdp_state_dict_type": "no such type"},
    },
    "fsdp1": fsdp(fsdp_version=1, fsdp_reshard_after_forward="SHARD_GRAD_OP"),
    "fsdp1-bf16": fsdp({"mixed_precision": "bf16"}, fsdp_version=1),
    "fsdp2-fp16": fsdp({"mixed_precision": "fp16"}, fsdp_version=2),
    "old-fp16": fsdp({"fp16": True}, fsdp_version=2),
    "old-fp16-beside-null": fsdp({"fp16": True, "mixed_precision": None}, fsdp_version=2),
    "no-prefixes": fsdp(
        version=2, offload_params=True, state_dict_type="FULL_STATE_DICT", reshard_after_forward=0
    ),
    "classes": fsdp(
        fsdp_auto_wrap_policy="transformer_based_wrap", fsdp_transformer_layer_cls_to_wrap="A, B"
    ),
    "sizes": fsdp(fsdp_version=2, fsdp_auto_wrap_policy="SIZE_BASED_WRAP"),
    "sync-forced": fsdp(fsdp_version=1, fsdp_sync_module_states="false"),
    "sync-conflict": fsdp(fsdp_version=2, fsdp_sync_module_states=False),
    "sync-conflict-in-text": fsdp(fsdp_cpu_ram_efficient_loading="false", fsdp_sync_module_states=False),
    "sync-without-loading": fsdp(fsdp_cpu_ram_efficient_loading=False, fsdp_sync_module_states=False),
    "layout": fsdp(
        {
            "parallelism_config": {
                "parallelism_config_dp_shard_size": "2",
                "parallelism_config_cp_size": 2,
                "parallelism_config_tp_size": 2,
            }
        },
        fsdp_version=2,
    ),
    "layout-without-prefixes": fsdp({"parallelism_config": {"tp_size": 2}}, fsdp_version=2),
    "layout-sp": deepspeed({"parallelism_config": {"parallelism_config_sp_size": 4}}, zero_stage=3),
    "dynamo": fsdp({"dynamo_config": {"backend": "inductor", "dynamo_mode": "max-autotune"}}, fsdp_version=2),
    "fp8": {
        "distributed_type": "MULTI_GPU",
        "num_processes": 2,
        "mixed_precision": "FP8",
        "fp8_config": {"backend": "TE", "override_linear_precision": [True, False, True]},
    },
    "old-dynamo": fsdp({"dynamo_backend": "INDUCTOR", "dynamo_config": {"dynamo_mode": "max-autotune"}}),
    "old-dynamo-no": {"distributed_type": "NO", "dynamo_backend": "NO"},
    "zero2": deepspeed(gradient_accumulation_steps=4, gradient_clipping="1"),
    "zero3": deepspeed(
        zero_stage=3, zero3_init_flag=False, zero3_save_16bit_model="yes", offload_param_device="CPU"
    ),
    "zero1-init": deepspeed(zero_stage=1, zero3_init_flag=True, offload_optimizer_nvme_path="/nvme"),
    "zero-bf16": deepspeed({"mixed_precision": "bf16"}, zero_stage=2),
    "ds-file": deepspeed(deepspeed_config_file='{"zero_optimization": {"stage": 2}}'),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_configs(name: str, tmp_path: Path) -> None:
    config, real = config_of(CONFIGS[name]), launched(CONFIGS[name], tmp_path)
    facts = Facts(config, FACTS)
    conflict = facts.value("loading_conflict")
    assert real.fails == ("launch" if conflict else None), real.error
    assert differences(config, real) is None
    if conflict:
        return
    if real.fsdp is not None:
        told = {
            "fsdp_version": facts.value("fsdp_version"),
            "state_dict_type": facts.value("state_dict_type"),
            "cpu_offload": facts.value("fsdp_offload"),
            "cpu_ram_efficient_loading": facts.value("ram_efficient"),
        }
        real.fsdp.mixed_precision_policy, real.fsdp.auto_wrap_policy = None, None
        got = fields(real.fsdp, [*told, "mixed_precision_policy", "auto_wrap_policy"])
        assert {name: got[name] for name in told} == told
    assert (real.fsdp is not None) == facts.value("fsdp_on")
    assert (real.deepspeed is not None) == facts.value("deepspeed_on")
    assert facts.value("mixed_precision") == real.env["ACCELERATE_MIXED_PRECISION"]
    assert facts.value("mesh_product") == (real.layout.total_size if real.layout else None)
    stage = facts.value("zero_stage")
    assert stage is UNKNOWN or stage == real.deepspeed.zero_stage
    assert (stage is not UNKNOWN) == (name.startswith(("zero", "layout-sp", "sections")))


@needs_corpus
def test_public_configs(tmp_path: Path) -> None:
    yaml = importlib.import_module("yaml")
    wrong: dict[str, object] = {}
    launches = 0
    for path in sorted((Path(CORPUS or "") / "accelerate_yaml").glob("*.y*ml")):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(settings, dict) or "distributed_type" not in settings:
            continue
        config, real = config_of(settings), launched(settings, tmp_path)
        known = [item.path for item in config.written if item.spec is not None]
        refused = [place for place in known if config.effective(place).origin == "invalid"]
        launches += bool(real.env)
        found = differences(config, real)
        if found is not None or (refused and not real.fails):
            wrong[path.name] = (found, refused, real.fails)
    assert wrong == {}
    assert launches > 50
