"""What follows from training arguments and from configs of Axolotl and LLaMA-Factory, and what isn't determined."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.context import Context
from dsconf.config.effective import Config, Facts
from dsconf.config.trainer_values import WAYS
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.formats.axolotl.keys import load_keys as axolotl_keys
from dsconf.formats.key import Way
from dsconf.formats.trainer.keys import load_keys, table_for
from dsconf.lint.formats import format_named


def config_of(format_: str, settings: dict[str, Any]) -> Config:
    document = scan("config.json", json.dumps(settings))
    return Config(document, format_named(format_).table_for(document, Context()), Context(), format=format_)


def fact(format_: str, name: str, settings: dict[str, Any]) -> object:
    return Facts(config_of(format_, settings), format_named(format_).facts).value(name)


def fsdp(words: object = True, **section: object) -> dict[str, Any]:
    return {"output_dir": "o", "fsdp": words, "fsdp_config": section}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("whole_arguments", {"fsdp_config": {}}, False),
        ("whole_arguments", {"fsdp_config": {}, "max_steps": 1}, True),
        ("fsdp_on", {"fsdp_config": {"version": 2}}, True),
        ("fsdp_on", {"output_dir": "o", "fsdp_config": {"version": 2}}, False),
        ("fsdp_on", fsdp(""), False),
        ("fsdp_on", {"output_dir": "o", "fsdp": True, "fsdp_config": "fsdp.json"}, UNKNOWN),
        ("fsdp_on", fsdp(xla=True), UNKNOWN),
        ("fsdp_version", fsdp(), 2),
        ("fsdp_version", fsdp(fsdp_version="1"), 1),
        ("fsdp_version", fsdp(version=3), UNKNOWN),
        ("fsdp_version", fsdp(False, version=1), UNKNOWN),
        ("fsdp_words", fsdp("FULL_SHARD auto_wrap"), ["full_shard", "auto_wrap"]),
        ("fsdp_words", fsdp(["offload"]), ["offload"]),
        ("fsdp_words", fsdp(), []),
        ("fsdp_text", fsdp("full_shard"), True),
        ("fsdp_text", fsdp(), False),
        ("fsdp_text", fsdp("full_shrad"), False),
        ("fsdp_problem", fsdp("full_shrad"), "full_shrad"),
        ("fsdp_problem", fsdp("FULL_SHARD"), "FULL_SHARD"),
        ("fsdp_problem", fsdp("FULL_SHARD", version=1), "none"),
        ("fsdp_offload", fsdp("full_shard offload"), True),
        ("fsdp_offload", fsdp("full_shard offload", cpu_offload=False), False),
        ("fsdp_offload", fsdp(cpu_offload="false"), True),
        ("offload_text", fsdp(cpu_offload="false"), True),
        ("offload_text", fsdp(cpu_offload="true"), False),
        ("offload_text_written", fsdp(cpu_offload="no"), "no"),
        ("wrap_policy", fsdp(), "TRANSFORMER_BASED_WRAP"),
        ("wrap_policy", fsdp(auto_wrap_policy="no_wrap"), UNKNOWN),
        ("min_num_params", fsdp(min_num_params=5), 5),
        ("min_num_params", fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=-1), 0),
        ("min_num_params", fsdp(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=1e8), UNKNOWN),
        ("state_dict_type", fsdp(), "FULL_STATE_DICT"),
        ("state_dict_type", fsdp(state_dict_type=None), "SHARDED_STATE_DICT"),
        ("state_dict_type", fsdp(state_dict_type="3"), "SHARDED_STATE_DICT"),
        ("strategy_refused", fsdp(version=1, reshard_after_forward=True), True),
        ("strategy_refused", fsdp(version=1, reshard_after_forward="5"), False),
        ("strategy_refused", fsdp(version=1), False),
        ("strategy_refused", fsdp(reshard_after_forward="maybe"), UNKNOWN),
        ("reshard_problem", fsdp(reshard_after_forward="FULL_SHARD"), "strategy"),
        ("empty_section", fsdp(), True),
        ("empty_section", fsdp(version=2), False),
        ("deepspeed_on", {"deepspeed": "ds.json"}, True),
        ("deepspeed_on", {"deepspeed": None}, False),
    ],
)
def test_training_arguments(name: str, settings: dict[str, Any], expected: object) -> None:
    assert fact("trainer", name, settings) == expected


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("fsdp_on", {}, False),
        ("fsdp_on", {"fsdp": None, "fsdp_config": {}}, False),
        ("fsdp_on", {"fsdp": ["full_shard"]}, True),
        ("fsdp_on", {"fsdp_config": {"anything": 1}}, True),
        ("fsdp_version", {"fsdp_version": 2}, UNKNOWN),
        ("fsdp_version", {"fsdp_config": {"offload_params": True}}, 1),
        ("fsdp_version", {"fsdp_version": "2", "fsdp_config": {"offload_params": True}}, 2),
        ("fsdp_version", {"fsdp_config": {"fsdp_version": 2}}, 2),
        ("fsdp_version", {"fsdp_version": 1, "fsdp_config": {"fsdp_version": 2}}, UNKNOWN),
        ("fsdp_version", {"fsdp_version": 3, "fsdp_config": {"offload_params": True}}, UNKNOWN),
        ("fsdp_offload", {"fsdp_config": {"fsdp_offload_params": "yes"}}, True),
        ("fsdp_offload", {"fsdp_config": {"version": 2}}, False),
        ("wrap_policy", {"fsdp_config": {"version": 2, "auto_wrap_policy": None}}, "TRANSFORMER_BASED_WRAP"),
        ("wrap_policy", {"fsdp_config": {"auto_wrap_policy": "NO_WRAP"}}, UNKNOWN),
        ("state_dict_type", {"fsdp_config": {"version": 2}}, "FULL_STATE_DICT"),
        ("deepspeed_on", {"deepspeed": {"zero_optimization": {}}}, True),
    ],
)
def test_axolotl(name: str, settings: dict[str, Any], expected: object) -> None:
    assert fact("axolotl", name, settings) == expected


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("fsdp_on", {"dist_config": {"name": "fsdp2"}}, True),
        ("fsdp_on", {"dist_config": {"name": "deepspeed", "config_file": "ds.json"}}, False),
        ("fsdp_on", {"dist_config": None}, False),
        ("deepspeed_on", {"dist_config": {"name": "deepspeed"}}, True),
        ("fsdp_version", {"dist_config": {"name": "fsdpturbo"}}, 2),
        ("fsdp_version", {"dist_config": {"name": "deepspeed"}}, UNKNOWN),
        ("fsdp_offload", {"dist_config": {"name": "fsdp2", "offload_params": True}}, True),
        ("fsdp_offload", {"dist_config": {"name": "fsdp2"}}, False),
    ],
)
def test_llamafactory(name: str, settings: dict[str, Any], expected: object) -> None:
    assert fact("llamafactory", name, settings) == expected


@pytest.mark.parametrize(
    ("name", "settings", "checked"),
    [
        ("min_num_params", fsdp(min_num_params="1e8"), False),
        ("min_num_params", fsdp(min_num_params="1e8", auto_wrap_policy="SIZE_BASED_WRAP"), True),
        ("forward_prefetch", fsdp(forward_prefetch="maybe"), False),
        ("forward_prefetch", fsdp(forward_prefetch="maybe", version=1), True),
        ("transformer_layer_cls_to_wrap", fsdp(transformer_layer_cls_to_wrap=1), True),
        (
            "transformer_layer_cls_to_wrap",
            fsdp(transformer_layer_cls_to_wrap=1, fsdp_auto_wrap_policy="NO_WRAP"),
            False,
        ),
        ("version", {"fsdp_config": {"version": "two"}}, True),
        ("version", {"output_dir": "o", "fsdp_config": {"version": "two"}}, False),
        ("state_dict_type", fsdp(state_dict_type="whole"), True),
        ("state_dict_type", fsdp(state_dict_type="whole", xla=True), False),
    ],
)
def test_what_nobody_reads_is_not_wrong(name: str, settings: dict[str, Any], checked: bool) -> None:
    section = table_for(scan("arguments.json", json.dumps(settings)))["keys"]["fsdp_config"]
    value = settings["fsdp_config"][name]
    assert isinstance(coerce(section["keys"][name], section["reader"], value), Invalid) is checked


def test_auto_is_a_word_as_any_other_to_axolotl() -> None:
    section = axolotl_keys()["keys"]["fsdp_config"]
    for name in ("offload_params", "auto_wrap_policy", "min_num_params"):
        assert isinstance(coerce(section["keys"][name], section["reader"], "auto"), Invalid)


def test_the_sections_of_all_formats_have_the_same_names() -> None:
    """But for offload, so that one rule about FSDP serves them all."""
    sections = {
        name: {key for key, spec in table["keys"]["fsdp_config"]["keys"].items() if "alias" not in spec}
        for name in ("accelerate", "trainer", "axolotl")
        for table in (format_named(name).table_for(None, Context()),)
    }
    assert sections["trainer"] - sections["accelerate"] == {
        "cpu_offload", "limit_all_gathers", "xla", "xla_fsdp_settings", "xla_fsdp_grad_ckpt", "xla_fsdp_v2",
    }  # fmt: skip
    assert sections["axolotl"] - sections["accelerate"] == {
        "cpu_offload_pin_memory", "final_state_dict_type", "mixed_precision_policy",
    }  # fmt: skip


def test_the_other_arguments_may_be_anything() -> None:
    for table in (load_keys(), axolotl_keys()):
        assert table["open"]
        assert "open" not in table["keys"]["fsdp_config"]


def test_every_way_to_read_a_value_is_used() -> None:
    keys = load_keys()["keys"]
    used = {spec["way"] for spec in (*keys.values(), *keys["fsdp_config"]["keys"].values()) if "way" in spec}
    assert used == set(WAYS)
    assert used <= set(get_args(Way))
