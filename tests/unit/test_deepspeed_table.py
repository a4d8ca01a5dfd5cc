"""The key table and the editor schema: complete, up to date, and right in a few places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.deepspeed.model import DeepSpeedConfig
from dsconf.formats.table import FORMATS, artefacts, editor_schema, key_table


def node_at(path: str) -> dict[str, Any]:
    node = load_keys()
    for name in path.split(".") if path else ():
        node = node["keys"][name]
    return node


@pytest.mark.parametrize("path", artefacts(), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == artefacts()[path], "run python -m dsconf.formats.table"


def test_table_text_is_the_table() -> None:
    assert load_keys() == key_table(DeepSpeedConfig)


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("zero_optimization.stage", {"type": "int", "values": [0, 1, 2, 3], "default": 0}),
        ("zero_optimization.reduce_bucket_size", {"type": "int", "exclusive_min": 0, "unit": "elements"}),
        ("zero_optimization.offload_optimizer.ratio", {"type": "float", "min": 0, "max": 1, "default": 1.0}),
        ("zero_optimization.zenflow.update_interval", {"type": ["int", "str"], "values": ["auto"], "min": 1}),
        ("zero_optimization.leaf_module", {"type": "object", "nullable": True, "default": {}}),
        ("zero_optimization.offload_param", {"nullable": True, "default": None, "unknown": "raises"}),
        ("zero_optimization.overlap_comm", {"type": "bool", "nullable": True, "default": None}),
        ("zero_optimization.cpu_offload", {"status": "deprecated"}),
        ("zero_optimization.allgather_partitions", {"status": "inert"}),
        ("zero_optimization.prefetch_bucket_size", {"alias": "stage3_prefetch_bucket_size"}),
        ("zero_optimization", {"type": ["object", "bool"], "reader": "pydantic", "unknown": "raises"}),
        ("bfloat16", {"alias": "bf16", "nullable": False}),
        ("amp", {"type": "any", "status": "removed"}),
        ("aio", {"type": "object", "default": {}, "nullable": True}),
        ("checkpoint.parallel_write.pipeline_stage", {"type": "bool", "values": [True, False]}),
        ("compile.passes", {"type": "list", "items": "str", "item_values": ["z1", "z3", "autosp", "autotp"]}),
        ("expert_parallel.load_balance_coeff", {"type": "null", "nullable": True, "wrong_fails": "parse"}),
        ("tensor_parallel.partition_config.layer_specs", {"type": "list", "items": "object", "default": []}),
        ("weight_quantization.post_init_quant", {"type": "object", "open": True}),
        ("optimizer.params", {"type": "object", "unknown": "depends"}),
        (
            "optimizer.params.betas",
            {"type": "list", "items": "float", "filled_by": {"trainer": "adam_beta1, adam_beta2"}},
        ),
        ("scheduler.params.warmup_num_steps", {"type": "int", "int_only": True, "quoted_fails": "init"}),
        (
            "gradient_clipping",
            {
                "default": 1.0,
                "filled_by": {"trainer": "max_grad_norm", "accelerate": "1.0"},
                "quoted_fails": "step",
            },
        ),
    ],
)
def test_nodes(path: str, node: dict[str, Any]) -> None:
    assert node.items() <= node_at(path).items()


def test_absent_keys_without_a_value_have_no_default() -> None:
    assert "default" not in node_at("scheduler.params.total_num_steps")
    assert "default" not in node_at("sequence_parallel_size")
    assert node_at("optimizer")["default"] is None
    assert "nullable" not in node_at("optimizer")
    assert "default" not in node_at("expert_parallel.expert_w3")
    assert node_at("expert_parallel.expert_w3")["nullable"]


def test_every_key_is_described() -> None:
    schema = editor_schema(*FORMATS["deepspeed"])
    objects = [schema, *schema["$defs"].values()]
    assert all(part["description"] for part in objects)
    assert [
        name for part in objects for name, key in part["properties"].items() if not key["description"]
    ] == []


def test_the_schema_is_a_schema_of_its_dialect() -> None:
    Draft202012Validator.check_schema(editor_schema(*FORMATS["deepspeed"]))
    assert editor_schema(*FORMATS["deepspeed"])["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


GOOD: dict[str, Any] = {
    "$schema": "./deepspeed.schema.json",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 1,
    "steps_per_print": None,
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95], "fused": True}},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 5e8,
        "prefetch_bucket_size": 1000,
        "offload_param": {"device": "cpu"},
        "leaf_module": None,
        "zenflow": {"update_interval": 4},
    },
    "tensorboard": {"enabled": True},
}


def curriculum(metrics: dict[str, Any]) -> dict[str, Any]:
    return {"curriculum_learning": {"enabled": True, "curriculum_metrics": metrics}}


def test_the_schema_takes_a_good_file() -> None:
    assert list(Draft202012Validator(editor_schema(*FORMATS["deepspeed"])).iter_errors(GOOD)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"train_batch_size": "32"},
        {"train_batch_size": 0},
        {"amp": {"enabled": False}},
        {"optimizer": None},
        {"sequence_parallel_size": None},
        {"gradient_allreduce_op": "median"},
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"stag": 3}},
        {"zero_optimization": {"mics_shard_size": 8}},
        {"zero_optimization": {"sub_group_size": "auto"}},
        {"zero_optimization": {"prefetch_bucket_size": "auto"}},
        {"zero_optimization": {"offload_param": {"device": "CPU"}}},
        {"zero_optimization": {"zenflow": {"update_interval": 0}}},
        {"fp16": {"loss_scale": -1}},
        {"tensorboard": []},
        {"tensorboard": {"enable": True}},
        {"checkpoint": {"parallel_write": {"pipeline_stage": 1}}},
        {"compile": {"passes": ["z2"]}},
        {"tensor_parallel": {"dtype": "bf16"}},
        {"tensor_parallel": {"partition_config": {"layer_specs": [{"patterns": "x"}]}}},
        {"expert_parallel": {"load_balance_coeff": 0.1}},
        {
            "data_efficiency": {
                "data_sampling": {
                    "curriculum_learning": {"curriculum_metrics": {"a": {"max_difficulty": "5"}}}
                }
            }
        },
    ],
    ids=str,
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    assert not Draft202012Validator(editor_schema(*FORMATS["deepspeed"])).is_valid(GOOD | change)


FIXTURES = Path(__file__).parents[2] / "fixtures"
# Comments, and values that DeepSpeed converts: the schema wants the right type.
NOT_FOR_EDITORS = {"hjson.json", "other_spellings.json"}
FAULTS = {
    "crlf.json": {"train_micro_batch_size_per_gpu"},
    "minified.json": {"optimizer.params.lr", "zero_optimization"},
    "sections.json": {
        "compile",
        "tensor_parallel.tp",
        "timers.throughput",
        "wandb",
        "checkpoint.writer.io_buffer_size",
    },
    "tabs.json": {
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "zero_optimization.reduce_bucket_size",
        "optimizer.params.lr",
    },
    "wide.json": {"optimizer.params.lr", "bf16"},
}
"""By file of fixtures/err: where the schema finds the wrong types and the keys that a section refuses."""


def faults(file: Path) -> set[str]:
    """Where the schema finds a fault."""
    content = json.loads(file.read_text(encoding="utf-8"))
    errors = Draft202012Validator(editor_schema(*FORMATS["deepspeed"])).iter_errors(content)
    return {".".join(map(str, place)) for error in errors for place in places(error)}


def places(error: ValidationError) -> Iterator[tuple[str | int, ...]]:
    """Where a fault stands: in a union inside the branch that the value is meant for, where that can be told."""
    place = tuple(error.absolute_path)
    inside = [
        inner
        for inner in error.context or ()
        if tuple(inner.absolute_path) != place or inner.validator == "additionalProperties"
    ]
    if not inside:
        yield place
    for inner in inside:
        yield from places(inner)


@pytest.mark.parametrize("file", sorted((FIXTURES / "ok").glob("*.json")), ids=lambda file: file.name)
def test_the_schema_takes_the_good_fixtures(file: Path) -> None:
    if file.name not in NOT_FOR_EDITORS:
        assert faults(file) == set()


@pytest.mark.parametrize("name", FAULTS)
def test_the_schema_finds_the_faults_of_the_fixtures(name: str) -> None:
    assert faults(FIXTURES / "err" / name) == FAULTS[name]


def test_the_schema_marks_what_is_old_or_filled() -> None:
    zero = editor_schema(*FORMATS["deepspeed"])["$defs"]["Zero"]["properties"]
    assert zero["cpu_offload"]["deprecated"]
    assert zero["cpu_offload"]["x-replacement"] == "zero_optimization.offload_optimizer"
    assert zero["stage"]["x-auto-filled-by"].keys() == {"trainer", "accelerate"}
    assert "x-auto-filled-by" not in zero["prefetch_bucket_size"]
    assert zero["mics_shard_size"]["x-status"] == "removed"


def test_the_models_can_be_used() -> None:
    config = DeepSpeedConfig.model_validate({"train_batch_size": 8, "zero_optimization": {"stage": 2}})
    assert config.train_batch_size == 8
    assert not isinstance(config.zero_optimization, bool)
    assert config.zero_optimization.stage == 2
