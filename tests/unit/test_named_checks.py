"""The named checks over files of Accelerate and of trainers: what examples of rules don't show."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from examples import lint_json

FSDP = (
    "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
)
CLASSES = FSDP + "  fsdp_transformer_layer_cls_to_wrap: "
WHOLE = FSDP + "  fsdp_offload_params: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n"
ZERO = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: "
GOOD = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
SMALL = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 1000, "tie_word_embeddings": True,
}  # fmt: skip


def found(folder: Path, rule: str, text: str, *args: str, **files: object) -> list[dict[str, Any]]:
    """The findings of a rule over a config, beside JSON files of these names."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    path = folder / ("a.json" if text.startswith("{") else "a.yaml")
    path.write_text(text, encoding="utf-8")
    options = [str(folder / arg) if arg.endswith(".json") else arg for arg in args]
    return [each for each in lint_json(path, *options)[1]["findings"] if each["rule"] == rule]


@pytest.mark.parametrize(
    ("written", "model", "severity", "words"),
    [
        ("LlamaDecodeLayer", {"model_type": "llama"}, "error", "llama has no such layer"),
        ("LlamaDecodeLayer", {"model_type": "llama", "architectures": ["Own"]}, "error", "Own has no such layer"),
        ("llamadecoderlayer", {"model_type": "llama"}, "error", "llama has no such layer"),
        ("Block", {"model_type": "llama"}, "warning", "none of the layers of llama"),
        ("LlamaDecoderLayer", {"model_type": "llama"}, None, ""),
        ("Block", {"model_type": "nobody_knows_it"}, None, ""),
        ("Block", {"hidden_size": 64}, None, ""),
        ("[1]", {"model_type": "llama"}, None, ""),
    ],
)  # fmt: skip
def test_classes(
    written: str, model: dict[str, Any], severity: str | None, words: str, tmp_path: Path
) -> None:
    said = found(tmp_path, "fsdp-wrap-class", CLASSES + written, "--model", "m.json", m=model)
    assert [each["severity"] for each in said] == ([severity] if severity else [])
    assert all(words in each["message"] for each in said)


def test_a_list_of_classes_is_for_trainer(tmp_path: Path) -> None:
    assert len(found(tmp_path, "fsdp-wrap-class", CLASSES + "[A, B]")) == 1
    section = {"transformer_layer_cls_to_wrap": ["A", " B"]}
    assert found(tmp_path, "fsdp-wrap-class", json.dumps({"fsdp": True, "fsdp_config": section})) == []


@pytest.mark.parametrize(
    ("args", "severity"),
    [
        ([], "info"),
        (["--host-memory", "1"], "info"),
        (["--model", "m.json"], "info"),
        (["--model", "m.json", "--host-memory", "1"], "info"),
        (["--model", "m.json", "--host-memory", "0.001"], "warning"),
    ],
)
def test_whole_checkpoints_are_weighed(args: list[str], severity: str, tmp_path: Path) -> None:
    (said,) = found(tmp_path, "full-state-dict-with-offload", WHOLE, *args, m=SMALL)
    assert said["severity"] == severity
    assert ("0.00 billion" in said["message"]) == ("--model" in args)
    assert said["line"] == 7


def test_a_default_is_shown_at_its_section(tmp_path: Path) -> None:
    text = json.dumps({"fsdp": True, "fsdp_config": {"cpu_offload": True}})
    (said,) = found(tmp_path, "full-state-dict-with-offload", text)
    assert text[said["column"] - 1 : said["end_column"] - 1] == '"fsdp_config"'


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("nowhere.json", True),
        ("folder/nowhere", True),
        ("here.json", False),
        ("'{\"gradient_clipping\": 1.5}'", False),
        (base64.b64encode(json.dumps(GOOD).encode()).decode(), False),
        ("''", False),
    ],
)
def test_files(name: str, missing: bool, tmp_path: Path) -> None:
    assert bool(found(tmp_path, "accelerate-ds-file-missing", ZERO + name, here=GOOD)) == missing


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ("", None),
        ("\n  zero3_init_flag: true", None),
        ("\n  zero_stage: null", "zero_stage beside"),
        ("\n  zero_stage: 2\n  gradient_clipping: 1", "gradient_clipping, zero_stage beside"),
        ("\nmixed_precision: bf16", "mixed_precision beside"),
        ("\nmixed_precision: null", None),
    ],
)
def test_what_may_not_stand_beside_a_file(more: str, fields: str | None, tmp_path: Path) -> None:
    said = found(tmp_path, "accelerate-ds-file-conflict", f"{ZERO}here.json{more}\n", here=GOOD)
    assert [each["message"].split(" deepspeed_config_file")[0] for each in said] == (
        [fields] if fields else []
    )
    for each in said:
        places = {(Path(place["file"]).name, place["message"]) for place in each["related"]}
        assert ("a.yaml", "the file") in places
        assert (("here.json", "where zero_stage belongs") in places) == ("zero_stage" in each["message"])


def test_a_file_without_zero(tmp_path: Path) -> None:
    rule = "accelerate-needs-zero-block"
    (said,) = found(tmp_path, rule, f"{ZERO}here.json\n", here={"train_batch_size": 8})
    assert Path(said["related"][0]["file"]).name == "here.json"
    assert found(tmp_path, rule, f"{ZERO}here.json\n", here=GOOD) == []
    other = ZERO.replace("DEEPSPEED", "MULTI_GPU")
    assert found(tmp_path, rule, f"{other}here.json\n", here={"train_batch_size": 8}) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{num_processes: 64}\nnum_processes: 8", "overwrites the one of the top level"),
        ("{num_processes: 64}", "sets the argument --num_processes"),
        ("{num_processes: 8}\nnum_processes: 8", None),
        ("{num_processes: null}\nnum_processes: 8", None),
        ("null\nnum_processes: 8", None),
    ],
)
def test_arguments_in_sections(text: str, message: str | None, tmp_path: Path) -> None:
    said = found(
        tmp_path, "accelerate-key-overwrites", f"distributed_type: DEEPSPEED\ndeepspeed_config: {text}\n"
    )
    assert [message in each["message"] for each in said if message] == ([True] if message else [])
    assert len(said) == (message is not None)
    assert [len(each["related"]) for each in said] == ([int("top" in message)] if message else [])
