"""Effective values and where they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from configs import config_of

from dsconf.config.context import CONSUMERS, Consumer
from dsconf.config.effective import Value
from dsconf.config.tables import spec_at
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.keys import load_keys

Z = "zero_optimization"


def effective(path: str, keys: dict[str, Any], consumer: Consumer | None = None) -> Value:
    return config_of(keys, consumer).effective(path)


@pytest.mark.parametrize(
    ("path", "keys", "value", "origin"),
    [
        ("gradient_clipping", {}, 1.0, "default"),
        ("gradient_clipping", {"gradient_clipping": 0.5}, 0.5, "written"),
        (f"{Z}.stage", {}, 0, "default"),
        (f"{Z}.stage", {Z: {}}, 0, "default"),
        (f"{Z}.stage", {Z: {"stage": "3"}}, 3, "written"),
        (f"{Z}.stage", {Z: {"stage": 2.0}}, 2, "written"),
        (f"{Z}.round_robin_gradients", {Z: {"round_robin_gradients": "auto"}}, False, "dropped"),
        (f"{Z}.stage", {Z: {"stage": 7}}, UNKNOWN, "invalid"),
        (f"{Z}.stage", {Z: {"stage": None}}, UNKNOWN, "invalid"),
        ("train_batch_size", {}, None, "default"),
        ("train_batch_size", {"train_batch_size": None}, None, "written"),
        ("train_batch_size", {"train_batch_size": "8"}, UNKNOWN, "invalid"),
        ("sequence_parallel_size", {}, UNKNOWN, "absent"),
        ("communication_data_type", {"communication_data_type": "FP16"}, "fp16", "written"),
        ("amp", {}, UNKNOWN, "absent"),
        ("amp", {"amp": {"enabled": True}}, UNKNOWN, "invalid"),
        ("fp16.loss_scale", {"fp16": {"loss_scale": "1e3"}}, 1000.0, "written"),
        ("optimizer.params.betas", {}, [0.9, 0.999], "default"),
    ],
)
def test_origin(path: str, keys: dict[str, Any], value: object, origin: str) -> None:
    found = effective(path, keys)
    assert found == Value(value, origin)  # type: ignore[arg-type]
    assert type(found.value) is type(value)


def test_absent_is_what_has_no_default() -> None:
    """Every key of the table has an effective value without being written, unless the table gives no default."""

    def walk(node: dict[str, Any], prefix: str) -> None:
        for name, spec in node.get("keys", {}).items():
            if "alias" in spec:
                continue
            path = f"{prefix}{name}"
            found = config_of({}).effective(path)
            expected = Value(spec["default"], "default") if "default" in spec else Value(UNKNOWN, "absent")
            assert found == expected
            walk(spec, f"{path}.")

    walk(load_keys(), "")


# --- "auto" ------------------------------------------------------------------------------------------------------

BOTH = ("trainer", "accelerate")


@pytest.mark.parametrize("consumer", [None, *CONSUMERS])
@pytest.mark.parametrize(
    ("path", "fillers", "otherwise"),
    [
        ("train_batch_size", BOTH, Value(UNKNOWN, "invalid")),
        ("gradient_clipping", BOTH, Value(UNKNOWN, "invalid")),
        ("optimizer.params.betas", ("trainer",), Value(UNKNOWN, "invalid")),
        (f"{Z}.reduce_bucket_size", BOTH, Value(500_000_000, "dropped")),
        ("fp16.enabled", BOTH, Value(False, "dropped")),
        (f"{Z}.stage", BOTH, Value(0, "dropped")),
        (f"{Z}.round_robin_gradients", (), Value(False, "dropped")),
        (f"{Z}.offload_param", (), Value(None, "dropped")),
        ("steps_per_print", BOTH, Value(UNKNOWN, "invalid")),
    ],
)
def test_auto(path: str, fillers: tuple[str, ...], otherwise: Value, consumer: Consumer | None) -> None:
    assert tuple(spec_at(load_keys(), path)[1].get("filled_by", ())) == fillers
    keys: Any = "auto"
    for name in reversed(path.split(".")):
        keys = {name: keys}
    filled = bool(fillers) and (consumer is None or consumer in fillers)
    assert effective(path, keys, consumer)._replace(value=None) == otherwise._replace(
        value=None, origin="filled" if filled else otherwise.origin
    )
    if not filled or path not in config_of(keys, consumer).fills:
        assert effective(path, keys, consumer).value == (UNKNOWN if filled else otherwise.value)


def test_auto_that_counts_as_true() -> None:
    """DeepSpeed asks only whether the value is true. Who reads the file before it may change that."""
    keys = {"prescale_gradients": "auto"}
    assert effective("prescale_gradients", keys, "deepspeed") == Value("auto", "written")
    for consumer in (None, "trainer", "accelerate"):
        assert effective("prescale_gradients", keys, consumer) == Value(UNKNOWN, "invalid")


def test_auto_that_is_a_value_of_the_key() -> None:
    keys = {"data_types": {"keep_in_fp32_modules": "auto"}}
    assert effective("data_types.keep_in_fp32_modules", keys) == Value("auto", "written")


# --- spellings and duplicates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prefetch_bucket_size", "stage3_prefetch_bucket_size"])
def test_both_spellings(name: str) -> None:
    config = config_of({Z: {"stage": 3, name: 7}})
    path = f"{Z}.stage3_prefetch_bucket_size"
    assert config.effective(path) == Value(7, "written")
    assert config.present(path)
    entry = config.entry(path)
    assert entry is not None
    assert entry.key == name


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_spellings_the_canonical_one_counts(order: int) -> None:
    written = dict([("stage3_prefetch_bucket_size", 7), ("prefetch_bucket_size", 9)][::order])
    assert effective(f"{Z}.stage3_prefetch_bucket_size", {Z: written}).value == 7
    sections = dict([("bf16", {"enabled": True}), ("bfloat16", {"enabled": False})][::order])
    assert effective("bf16.enabled", sections).value is True


def test_bfloat16() -> None:
    config = config_of({"bfloat16": {"enabled": True}})
    assert config.effective("bf16.enabled") == Value(True, "written")
    assert config.present("bf16.enabled")
    assert [item.path for item in config.written] == ["bf16", "bf16.enabled"]


def test_of_a_key_written_twice_the_last_counts() -> None:
    config = config_of('{"gradient_clipping": 0.1, "gradient_clipping": 0.2}')
    assert config.value("gradient_clipping") == 0.2
    assert [item.entry.node.scalar for item in config.written] == [0.2]


def test_a_section_written_twice_is_not_merged() -> None:
    text = '{"zero_optimization": {"stage": 3}, "zero_optimization": {"overlap_comm": true}}'
    config = config_of(text)
    assert json.loads(text)[Z] == {"overlap_comm": True}
    assert config.effective(f"{Z}.stage") == Value(0, "default")
    assert not config.present(f"{Z}.stage")
    assert [item.path for item in config.written] == [Z, f"{Z}.overlap_comm"]


# --- sections that are none --------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", [5, "x", [], True, None])
def test_the_keys_of_a_section_of_a_wrong_type_are_unknown(section: object) -> None:
    assert effective("fp16.enabled", {"fp16": section}) == Value(UNKNOWN, "invalid")


def test_the_keys_of_a_section_that_may_be_null_have_their_defaults() -> None:
    assert effective(f"{Z}.offload_param.device", {Z: {"offload_param": None}}) == Value("none", "default")
    assert effective(f"{Z}.offload_param.device", {Z: {"offload_param": "auto"}}) == Value("none", "default")
    assert effective(f"{Z}.offload_param.device", {Z: {"offload_param": True}}).origin == "invalid"


@pytest.mark.parametrize("on", [True, False])
def test_the_old_form_says_the_stage(on: bool) -> None:
    assert effective(Z, {Z: on}) == Value(on, "written")
    assert effective(f"{Z}.stage", {Z: on}) == Value(int(on), "written")
    assert effective(f"{Z}.reduce_scatter", {Z: on}) == Value(True, "default")
    assert effective(f"{Z}.offload_param.device", {Z: on}) == Value("none", "default")


# --- overrides -----------------------------------------------------------------------------------------------------


def test_overrides_win() -> None:
    config = config_of({"gradient_clipping": 0.5}, overrides={"gradient_clipping": 2, f"{Z}.stage": "3"})
    assert config.effective("gradient_clipping") == Value(2, "overridden")
    assert config.effective(f"{Z}.stage") == Value(3, "overridden")
    assert config.raw(f"{Z}.stage") == "3"
    assert config.present(f"{Z}.stage")
    assert config.entry(f"{Z}.stage") is None


def test_overrides_are_judged() -> None:
    config = config_of({}, "deepspeed", overrides={f"{Z}.stage": 9, f"{Z}.reduce_scatter": "auto"})
    assert config.effective(f"{Z}.stage") == Value(UNKNOWN, "invalid")
    assert config.effective(f"{Z}.reduce_scatter") == Value(True, "dropped")


# --- what is written ---------------------------------------------------------------------------------------------


def test_written() -> None:
    config = config_of(
        '{"b": {"x": 1}, "fp16": {"enabled": true, "y": 2}, "tensorboard": {"z": 3}, '
        '"optimizer": 1, "weight_quantization": {"post_init_quant": {"free": 1}}}'
    )
    assert [(item.path, item.spec is not None) for item in config.written] == [
        ("b", False),
        ("fp16", True),
        ("fp16.enabled", True),
        ("fp16.y", False),
        ("tensorboard", True),
        ("tensorboard.z", False),
        ("optimizer", True),
        ("weight_quantization", True),
        ("weight_quantization.post_init_quant", True),
    ]


CURRICULUM = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics"
SPECS = "tensor_parallel.partition_config.layer_specs"


def test_free_names_and_items_of_lists() -> None:
    config = config_of(
        {
            "tensor_parallel": {
                "partition_config": {"layer_specs": [{"patterns": ["a"]}, 5, {"pattern": []}]}
            },
            "data_efficiency": {
                "data_sampling": {
                    "curriculum_learning": {"curriculum_metrics": {"seqlen": {"max_difficulty": 8}}}
                }
            },
        }
    )
    declared = {item.path: item.spec is not None for item in config.written}
    assert declared[f"{SPECS}.0.patterns"]
    assert not declared[f"{SPECS}.2.pattern"]
    assert declared[f"{CURRICULUM}.seqlen"]
    assert config.effective(f"{CURRICULUM}.seqlen.max_difficulty") == Value(8, "written")
    assert config.effective(f"{SPECS}.0.partition_type") == Value("column", "default")
    assert config.value(f"{SPECS}.0.patterns") == ["a"]


# --- other spellings and strict sections --------------------------------------------------------------------------


def test_null_in_another_spelling() -> None:
    assert config_of({"bf16": None}).effective("bf16.enabled") == Value(False, "default")
    assert config_of({"bfloat16": None}).effective("bf16") == Value(UNKNOWN, "invalid")
    assert config_of({"bfloat16": None}).effective("bf16.enabled") == Value(UNKNOWN, "invalid")
    assert config_of({"bf16": {}, "bfloat16": None}).effective("bf16.enabled") == Value(False, "default")


@pytest.mark.parametrize(
    ("written", "path", "origin"),
    [
        (
            {"zero_optimization": {"stage3_prefetch_bucket_size": "auto"}},
            f"{Z}.stage3_prefetch_bucket_size",
            "filled",
        ),
        (
            {"zero_optimization": {"prefetch_bucket_size": "auto"}},
            f"{Z}.stage3_prefetch_bucket_size",
            "dropped",
        ),
        ({"bf16": {"enabled": "auto"}}, "bf16.enabled", "filled"),
        ({"bfloat16": {"enabled": "auto"}}, "bf16.enabled", "dropped"),
    ],
)
def test_auto_is_not_filled_in_other_spellings(written: dict[str, object], path: str, origin: str) -> None:
    for consumer in (None, "trainer", "accelerate"):
        assert config_of(written, consumer).effective(path).origin == origin


def test_a_strict_section_does_not_drop_auto() -> None:
    config = config_of(
        {"zero_optimization": {"strict": 1, "stage": "auto", "sub_group_size": "auto"}}, "deepspeed"
    )
    assert config.effective(f"{Z}.stage") == Value(UNKNOWN, "invalid")
    assert config.effective(f"{Z}.sub_group_size") == Value(UNKNOWN, "invalid")
    relaxed = config_of({"zero_optimization": {"strict": False, "sub_group_size": "auto"}}, "deepspeed")
    assert relaxed.effective(f"{Z}.sub_group_size") == Value(1_000_000_000, "dropped")
    # A strict section that takes any text keeps the word.
    kept = config_of({"wandb": {"strict": True, "project": "auto"}}, "deepspeed")
    assert kept.effective("wandb.project") == Value("auto", "written")


@pytest.mark.parametrize("path", ["nonsense", f"{Z}.nonsense", "gradient_clipping.x", "", "bf16..x"])
def test_unknown_paths(path: str) -> None:
    with pytest.raises(KeyError):
        config_of({}).effective(path)
    assert config_of({}).raw(path) is None
