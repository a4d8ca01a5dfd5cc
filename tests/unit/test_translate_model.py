"""What `dsconf translate --model config.json` makes of the model, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from dsconf.cli import main
from dsconf.formats.transformers import architectures

ZERO3: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 8}
TENSOR = ZERO3 | {
    "tensor_parallel": {"autotp_size": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "train_batch_size": 8,
    "gradient_accumulation_steps": 1,
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def translate(source: dict[str, Any], model: dict[str, Any] | None, *args: str) -> Result:
    Path("ds_config.json").write_text(json.dumps(source), encoding="utf-8")
    if model is not None:
        Path("config.json").write_text(json.dumps(model), encoding="utf-8")
        args = ("--model", "config.json", *args)
    return CliRunner().invoke(main, ["translate", "ds_config.json", "--to", "fsdp2", *args])


def item(key: str, source: dict[str, Any], model: dict[str, Any] | None, *args: str) -> dict[str, Any]:
    translate(source, model, "--report", "report.json", *args)
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = next(each for each in report["items"] if each["key"] == key)
    return found


def line_of(code: str, name: str) -> str:
    return next(line for line in code.splitlines() if line.startswith(f"{name} = "))


def test_the_blocks_of_a_known_model() -> None:
    result = translate(ZERO3, LLAMA, "--report", "report.json")
    assert line_of(result.stdout, "BLOCK_CLASSES") == (
        "BLOCK_CLASSES = ('LlamaDecoderLayer',)  # --model config.json: llama"
    )
    assert "Sharded one by one: LlamaDecoderLayer (--model config.json: llama)" in result.stderr
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert report["blocks"] == {"classes": ["LlamaDecoderLayer"], "source": "--model config.json: llama"}
    assert "Sharded one by one" in translate(ZERO3, LLAMA, "--report", "report.md").stderr


def test_blocks_that_are_given_count_instead() -> None:
    result = translate(ZERO3, LLAMA, "--blocks", "Mine")
    assert line_of(result.stdout, "BLOCK_CLASSES") == "BLOCK_CLASSES = ('Mine',)  # --blocks"


@pytest.mark.parametrize(
    ("parts", "classes"),
    [
        ({}, ["CLIPEncoderLayer", "LlamaDecoderLayer"]),
        ({"text_config": {"model_type": "mistral"}}, ["CLIPEncoderLayer", "MistralDecoderLayer"]),
        ({"text_config": {"hidden_size": 8}}, ["CLIPEncoderLayer", "LlamaDecoderLayer"]),
    ],
)
def test_the_parts_of_a_model_bring_their_blocks(parts: dict[str, Any], classes: list[str]) -> None:
    code = translate(ZERO3, {"model_type": "llava", **parts}).stdout
    assert repr(tuple(classes)) in line_of(code, "BLOCK_CLASSES")


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"model_type": "mine"}, "no blocks are known of model_type 'mine' (transformers 5.24.0)"),
        ({"hidden_size": 8}, "the file of --model has no model_type"),
        ({"model_type": 3}, "the file of --model has no model_type"),
        (
            {"model_type": "llava", "text_config": {"model_type": "mine"}},
            "no blocks are known of model_type 'llava'",
        ),
    ],
)
def test_an_unknown_model_is_said_to_be_one(model: dict[str, Any], why: str) -> None:
    result = translate(ZERO3, model)
    assert result.exit_code == 0
    assumed = next(line for line in result.stderr.splitlines() if "outermost nn.ModuleLists" in line)
    assert assumed.startswith("Assumed: ")
    assert why in assumed
    assert "BLOCK_CLASSES" not in result.stdout
    assert result.stdout == translate(ZERO3, None).stdout


UNUSED = "set_reduce_scatter_unused_params(True)"


@pytest.mark.parametrize(
    ("model_type", "args", "written"),
    [
        ("llama", (), False),
        ("mixtral", (), True),
        ("mixtral", ("--transformers-version", "4.57"), True),
        ("mixtral", ("--transformers-version", "5.24"), False),
        ("switch_transformers", ("--transformers-version", "5.24"), True),
    ],
)
def test_experts_that_a_rank_leaves_unused(model_type: str, args: tuple[str, ...], written: bool) -> None:
    code = translate(ZERO3, {"model_type": model_type}, *args).stdout
    assert (UNUSED in code) == written
    assert ("torch >= 2.13" in code) == written


def test_an_older_torch_can_not_leave_experts_unused() -> None:
    found = item("zero_optimization.stage", ZERO3, {"model_type": "mixtral"}, "--torch-version", "2.9")
    assert found["outcome"] == "unsupported"
    assert "an expert without tokens has no gradient on its rank" in found["note"]
    assert "exists since torch 2.13" in found["note"]


# ---- tensor parallelism ------------------------------------------------------------------------------


def test_layers_are_divided_by_the_plan_of_the_model(snapshot: SnapshotAssertion) -> None:
    result = translate(TENSOR, LLAMA)
    assert result.exit_code == 0
    assert result.stdout.split("def find_blocks")[0] == snapshot
    assert "divide the layers among them" in result.stdout
    assert line_of(result.stdout, "WORLD_SIZE").startswith("WORLD_SIZE = 8 ")


def test_a_tied_head_is_not_divided() -> None:
    assert line_of(translate(TENSOR, LLAMA | {"tie_word_embeddings": True}).stdout, "ROOT_STYLES").startswith(
        "ROOT_STYLES = {}"
    )


@pytest.mark.parametrize(
    ("model", "changes", "args", "why", "action"),
    [
        (None, {}, (), "depends on the model", "--model"),
        ({"model_type": "gpt2"}, {}, (), "has no plan of tensor parallelism for gpt2", "ZeRO-3"),
        ({"model_type": "mine"}, {}, (), "has no plan of tensor parallelism for mine", "ZeRO-3"),
        (
            {"model_type": "mixtral"},
            {},
            (),
            "torch has no counterpart of moe_tp_experts, packed_colwise",
            "ZeRO-3",
        ),
        ({"model_type": "phi3"}, {}, (), "torch has no counterpart of rowwise_split_input", "ZeRO-3"),
        (LLAMA, {}, ("--blocks", "Mine"), "for blocks of class LlamaDecoderLayer", "--blocks"),
        (
            LLAMA | {"num_key_value_heads": 3},
            {},
            (),
            "8 and 3 attention heads don't divide by 2",
            "autotp_size",
        ),
        (LLAMA | {"architectures": ["LlamaModel"]}, {}, (), "not of LlamaModel", "ZeRO-3"),
        (LLAMA, {"fp16": {"enabled": True}}, (), "together with fp16 it was never compared", "ZeRO-3"),
        (
            LLAMA,
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
            (),
            "together with offload it was never compared",
            "ZeRO-3",
        ),
    ],
)
def test_what_is_refused_says_why_and_what_to_do(
    model: dict[str, Any] | None, changes: dict[str, Any], args: tuple[str, ...], why: str, action: str
) -> None:
    found = item("tensor_parallel.autotp_size", TENSOR | changes, model, *args)
    assert found["outcome"] == "unsupported"
    assert why in found["note"]
    assert action in found["action"]


@pytest.mark.parametrize(
    ("section", "outcome"),
    [
        ({"autotp_size": 1}, "no-effect"),
        ({"autotp_size": 0}, "no-effect"),
        ({"autotp_size": 2}, "close"),
        ({"autotp_size": 2, "tp": {"tp_size": 2}}, "close"),
    ],
)
def test_sizes(section: dict[str, Any], outcome: str) -> None:
    assert (
        item("tensor_parallel.autotp_size", TENSOR | {"tensor_parallel": section}, LLAMA)["outcome"]
        == outcome
    )


def test_the_table_is_read_for_a_translation_only() -> None:
    Path("ds_config.json").write_text(json.dumps(ZERO3), encoding="utf-8")
    Path("config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    architectures._table.cache_clear()
    assert CliRunner().invoke(main, ["lint", "ds_config.json", "--model", "config.json"]).exit_code == 0
    assert translate(ZERO3, None).exit_code == 0
    assert architectures._table.cache_info().currsize == 0
    assert translate(ZERO3, LLAMA).exit_code == 0
    assert architectures._table.cache_info().currsize == 1
