"""Configs over which a rule keeps silent though most of its condition holds, each for one part of the condition."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from examples import EXAMPLES, Example, lint_json

from dsconf.config.fsdp import STRATEGIES
from dsconf.config.tables import spec_at
from dsconf.formats.accelerate.keys import load_keys as accelerate_keys
from dsconf.formats.trainer.keys import load_keys as trainer_keys
from dsconf.lint import recognise

FSDP1 = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 1\n"
FSDP2 = FSDP1.replace("version: 1", "version: 2")
ZERO = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: "
FP8 = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfp8_config: {fp8_backend: "


LAYOUT = "parallelism_config:\n  parallelism_config_"
ONE = "distributed_type: 'NO'\n"


def arguments(**values: Any) -> str:
    return json.dumps({"output_dir": "o", **values})


SILENT: list[tuple[str, str, tuple[str, ...]]] = [
    ("AC102", "distributed_type: MULTI_GPU\nnum_processes: 0\n", ()),
    ("AC103", "compute_environment: AMAZON_SAGEMAKER\n", ()),
    ("AC105", FSDP2 + "num_machines: 1\n", ()),
    ("AC105", "distributed_type: XLA\nnum_processes: 8\nnum_machines: 2\n", ()),
    ("AC111", FSDP1 + LAYOUT + "dp_replicate_size: 8\n", ()),
    ("AC111", FSDP2 + LAYOUT + "cp_size: 8\n", ()),
    ("AC112", FSDP1 + LAYOUT + "tp_size: 1\n", ()),
    ("AC113", ONE + LAYOUT + "cp_size: 2\n  parallelism_config_sp_size: 2\n", ()),
    ("AC114", ONE + LAYOUT + "tp_size: 2\n  parallelism_config_dp_replicate_size: 2\n", ()),
    ("AC121", ZERO + "2\n  offload_param_device: cpu\n  deepspeed_config_file: ds.json\n", ()),
    ("AC122", ZERO + "2\n  zero3_init_flag: true\n  deepspeed_config_file: ds.json\n", ()),
    ("AC122", ZERO + "3\n  zero3_init_flag: true\n", ()),
    ("AC123", ZERO + "3\n  zero3_save_16bit_model: false\n  deepspeed_config_file: ds.json\n", ()),
    ("AC125", ZERO + "2\n  deepspeed_exclusion_filter: a\n  deepspeed_inclusion_filter: null\n", ()),
    ("AC125", ZERO + "2\n  deepspeed_exclusion_filter: null\n  deepspeed_inclusion_filter: a\n", ()),
    ("AC127", ZERO + "2\n  gradient_accumulation_steps: 4\n", ("--consumer", "accelerate")),
    ("AC129", FP8 + "MSAMP}\nfsdp_config: {fsdp_version: 2}\n", ()),
    (
        "AC130",
        "distributed_type: 'NO'\nparallelism_config:\n  parallelism_config_cp_comm_strategy: alltoall\n",
        (),
    ),
    ("FS102", FSDP2 + "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_reshard_after_forward: true\n", ()),
    ("FS104", FSDP2 + "  fsdp_use_orig_params: null\n", ()),
    ("FS104", FSDP2 + "  fsdp_sharding_strategy: FULL_SHARD\n", ()),
    ("FS104", FSDP1 + "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_reshard_after_forward: true\n", ()),
    (
        "FS104",
        arguments(fsdp=True, fsdp_config={"version": 2, "sharding_strategy": "FULL_SHARD", "reshard_after_forward": 1}),
        (),
    ),
    ("FS105", FSDP1 + "  fsdp_sync_module_states: 'false'\n", ()),
    ("FS108", FSDP1 + "  fsdp_auto_wrap_policy: NO_WRAP\n", ()),
    ("FS114", FSDP1 + "  fsdp_state_dict_type: sharded_state_dict\n", ()),
    ("FS115", FSDP1.replace("fsdp_config", "fp8_config") + "  fp8_margin: 0\n  margin: 1\n", ()),
    ("FS116", FSDP2 + "  fsdp_reshard_after_forward: true\n", ()),
    ("FS116", FSDP1 + "  fsdp_reshard_after_forward: FULL_SHARD\n", ()),
    ("FS116", FSDP1 + "  fsdp_reshard_after_forward: false\n", ()),
    ("FS117", FP8 + "AO}\nfsdp_config: {fsdp_version: 2}\n", ()),
    ("TR101", arguments(fsdp=True, fsdp_config={"activation_cpu_offload": True}), ()),
    ("TR102", arguments(fsdp=True, fsdp_config={"reshard_after_forward": "FULL_SHARD"}), ()),
    ("TR104", arguments(fsdp="hybrid_shard", fsdp_config={"version": 1}), ()),
    ("TR105", arguments(fsdp="hybrid_shard"), ()),
    ("TR106", arguments(fsdp="shard_grad_op"), ()),
    ("TR107", arguments(deepspeed="ds.json"), ()),
    ("TR107", json.dumps({"transformer_layer_cls_to_wrap": "A"}), ()),
    ("TR107", arguments(fsdp_config={}), ()),
    ("TR112", arguments(fsdp=True, save_only_model=True, fsdp_config={"state_dict_type": "SHARDED_STATE_DICT"}), ()),
    ("TR114", arguments(auto_find_batch_size=True, deepspeed={"zero_optimization": {"stage": 2}}), ()),
    ("TR114", arguments(auto_find_batch_size=False, deepspeed={"zero_optimization": {"stage": 3}}), ()),
    ("TR115", arguments(fsdp=False, save_only_model=True, load_best_model_at_end=True), ()),
]  # fmt: skip
"""The code of the rule, a config, and options."""


def codes(folder: Path, text: str, *args: str) -> set[str]:
    path = folder / ("a.json" if text.startswith("{") else "a.yaml")
    path.write_text(text, encoding="utf-8")
    report = lint_json(path, *args)[1]
    assert not report["skipped"]
    return {finding["code"] for finding in report["findings"]}


@pytest.mark.parametrize(("code", "text", "args"), SILENT)
def test_silent(code: str, text: str, args: tuple[str, ...], tmp_path: Path) -> None:
    assert code not in codes(tmp_path, text, *args)


OF_ANY_TYPE = {
    "AC101": "the top level is always read",
    "AC102": "the top level is always read",
    "AC103": "it is about the type",
    "AC104": "all types have processes",
    "AC105": "all types have machines",
    "AC106": "it is about the type",
    "AC107": "the top level is always read",
    "AC113": "a layout is for all types",
    "AC114": "a layout is for all types",
    "AC130": "a layout is for all types",
    "AC131": "keys of all sections are arguments",
    "FS115": "whichever counts, the two contradict each other",
}
"""Rules that speak whatever distributed_type is, with the reason."""


@pytest.mark.parametrize(
    "example",
    [
        example
        for example in EXAMPLES
        if example.section == "Bad"
        and example.page.stem.startswith(("AC", "FS"))
        and example.page.stem[:5] not in OF_ANY_TYPE
        and re.match(r"distributed_type: (FSDP|DEEPSPEED)\n", example.text)
    ],
    ids=lambda example: example.id,
)
def test_nothing_is_said_of_a_section_that_does_not_count(example: Example, tmp_path: Path) -> None:
    args = example.write(tmp_path / "written.yaml")
    text = re.sub(r"distributed_type: \w+", "distributed_type: MULTI_GPU", example.text)
    assert example.page.stem[:5] not in codes(tmp_path, text, *args)


@pytest.mark.parametrize(
    "example",
    [
        example
        for example in EXAMPLES
        if example.section == "Bad"
        and re.match(r"(FS1(?!15)|TR1(02|03|04|05|06|09|10|11|12|13|16|17))", example.page.stem)
        and '"fsdp":' in example.text
    ],
    ids=lambda example: example.id,
)
def test_nothing_is_said_of_fsdp_where_it_is_off(example: Example, tmp_path: Path) -> None:
    args = example.write(tmp_path / "written.json")
    text = json.dumps({**json.loads(example.text), "fsdp": False})
    assert example.page.stem[:5] not in codes(tmp_path, text, *args)


@pytest.mark.parametrize("keys", [accelerate_keys, trainer_keys])
def test_a_file_with_any_keys_of_fsdp_config_is_one(keys: Any) -> None:
    for name, spec in keys()["keys"]["fsdp_config"]["keys"].items():
        if "alias" not in spec:
            assert recognise._is_fsdp_key(name), name
        assert recognise._is_fsdp_key(f"fsdp_{name}")


def test_the_strategies_are_those_of_the_key() -> None:
    assert tuple(spec_at(accelerate_keys(), "fsdp_config.sharding_strategy")[1]["values"]) == STRATEGIES
