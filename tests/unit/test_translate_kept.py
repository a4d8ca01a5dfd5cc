"""Where source and target both train with DeepSpeed, its config is kept as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.context import Context
from dsconf.translate.run import Translation, translate

ZERO3: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 1000000,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"},
        "zero_quantized_weights": True,
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
    "wall_clock_breakdown": True,
}
"""Much of it has no counterpart in FSDP2."""
REFUSED = {"nebula": {"enabled": False}}
"""A key that DeepSpeed has removed."""


def run(folder: Path, name: str, source: dict[str, Any], target: str) -> Translation:
    path = folder / name
    path.write_text(json.dumps(source), encoding="utf-8")
    return translate(str(path), target, Context(), {}, ())


def outcomes(done: Translation) -> dict[str, str]:
    return {item.key: item.outcome for item in done.report.items}


def test_a_config_stays_what_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, "ds_config.json", ZERO3, "deepspeed")
    assert json.loads(done.text) == ZERO3, "nothing is written out, such as the default of clipping"
    assert set(outcomes(done).values()) == {"exact"}
    assert done.report.overall == "exact"
    assert all(item.written for item in done.report.items)
    assert not any("FSDP2" in item.note for item in done.report.items)


@pytest.mark.parametrize("target", ["accelerate-deepspeed", "trainer-deepspeed"])
def test_a_file_is_named(target: str, tmp_path: Path) -> None:
    done = run(tmp_path, "ds_config.json", ZERO3, target)
    assert str(tmp_path / "ds_config.json") in done.text
    assert not done.beside


@pytest.mark.parametrize("target", ["deepspeed", "accelerate-deepspeed", "trainer-deepspeed"])
def test_a_removed_key_is_left_out(target: str, tmp_path: Path) -> None:
    done = run(tmp_path, "ds_config.json", ZERO3 | REFUSED, target)
    assert outcomes(done)["nebula"] == "rejected-by-source"
    written = [done.text.partition("\n\n")[2] if target != "deepspeed" else done.text, *done.beside.values()]
    assert not any("nebula" in text for text in written)
    assert str(tmp_path) not in done.text, "the file still has it"


def test_a_removed_key_within_arguments_is_left_out(tmp_path: Path) -> None:
    arguments = {"output_dir": "o", "per_device_train_batch_size": 2, "deepspeed": ZERO3 | REFUSED}
    done = run(tmp_path, "arguments.yaml", arguments, "deepspeed")
    assert outcomes(done)["deepspeed.nebula"] == "rejected-by-source"
    assert "nebula" not in json.loads(done.text)


def test_what_stands_beside_the_config_is_added(tmp_path: Path) -> None:
    """Trainer builds the optimizer that its DeepSpeed config does not have."""
    config = {key: value for key, value in ZERO3.items() if key != "optimizer"}
    arguments = {
        "output_dir": "o",
        "per_device_train_batch_size": 2,
        "learning_rate": 3e-4,
        "deepspeed": config,
    }
    done = run(tmp_path, "arguments.yaml", arguments, "deepspeed")
    written = json.loads(done.text)
    assert written["optimizer"]["params"]["lr"] == 3e-4
    assert {key: written[key] for key in config} == config
    assert outcomes(done)["deepspeed.zero_optimization.zero_quantized_weights"] == "exact"


def test_outcomes_of_other_keys_stay(tmp_path: Path) -> None:
    launch = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 2,
        "gpu_ids": "0,1",
        "deepspeed_config": {
            "zero_stage": 3,
            "offload_optimizer_device": "cpu",
            "zero3_init_flag": True,
        },
    }
    done = run(tmp_path, "accelerate.yaml", launch, "deepspeed")
    found = outcomes(done)
    assert found["gpu_ids"] == "no-effect"
    assert found["deepspeed_config.zero3_init_flag"] == "no-effect"
    assert found["deepspeed_config.offload_optimizer_device"] == "exact"
    assert json.loads(done.text)["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def arguments(folder: Path, deepspeed: object, **overrides: object) -> tuple[str, Path]:
    """What becomes of training arguments, and the DeepSpeed config that they may name."""
    beside = folder / "zero3.json"
    beside.write_text(json.dumps(ZERO3), encoding="utf-8")
    source = {"output_dir": "o", "per_device_train_batch_size": 2, "deepspeed": deepspeed or str(beside)}
    path = folder / "arguments.json"
    path.write_text(json.dumps(source | {"bf16": True, "learning_rate": 0.001}), encoding="utf-8")
    return translate(str(path), "trainer-deepspeed", Context(), overrides, ()).text, beside


def test_a_file_that_arguments_name_stays_named(tmp_path: Path) -> None:
    text, beside = arguments(tmp_path, None)
    assert f"deepspeed: {beside}" in text


def test_a_config_within_arguments_stays_within(tmp_path: Path) -> None:
    text, _ = arguments(tmp_path, ZERO3)
    assert "arguments.json  #" not in text
    assert "deepspeed:  #" in text
    assert "zero_quantized_weights: true" in text


def test_a_file_with_another_value_is_no_longer_named(tmp_path: Path) -> None:
    text, beside = arguments(tmp_path, None, **{"zero_optimization.reduce_bucket_size": 7})
    assert str(beside) not in text
    assert "reduce_bucket_size: 7" in text
