"""`dsconf resolve` and `dsconf schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from configs import ALL_AUTO, config_of

from dsconf.cli import main
from dsconf.config.context import Consumer
from dsconf.config.resolve import Row, resolve
from dsconf.document.node import UNKNOWN

ZERO3: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": "3"},
}


def rows(
    source: dict[str, Any], consumer: Consumer | None = None, world_size: int | None = None
) -> dict[str, Row]:
    return {row.path: row for row in resolve(config_of(source, consumer, world_size))}


def test_written_and_default_values() -> None:
    found = rows(ZERO3)
    assert found["zero_optimization.stage"][:3] == ("zero_optimization.stage", 3, "written")
    assert found["gradient_clipping"][1:3] == (1.0, "default")
    assert found["zero_optimization.stage"].line == 1


def test_derived_values_name_what_they_come_from() -> None:
    found = rows(ZERO3, world_size=8)
    assert found["train_batch_size"][1:3] == (16, "derived")
    assert "train_micro_batch_size_per_gpu" in found["train_batch_size"].note
    assert found["zero_optimization.overlap_comm"][1:4] == (True, "derived", "from zero_optimization.stage")
    assert found["communication_data_type"][1:3] == ("bf16", "derived")
    assert found["data_types.grad_accum_dtype"][1:3] == ("bf16", "derived")


def test_what_depends_on_the_world_size_is_open_without_it() -> None:
    assert rows(ZERO3)["train_batch_size"].origin == "default"
    total_only = rows({"train_batch_size": 16})
    assert total_only["train_micro_batch_size_per_gpu"].value is None
    assert rows({"train_batch_size": 16}, world_size=4)["train_micro_batch_size_per_gpu"].value == 4


@pytest.mark.parametrize(
    ("optimizer", "decay"),
    [
        ({"type": "AdamW", "params": {"lr": 0.1}}, 0.0),
        ({"type": "AdamW", "params": {"torch_adam": True}}, 0.01),
        ({"type": "Adam", "params": {"torch_adam": True, "adam_w_mode": False}}, 0.0),
        ({"type": "AdamW", "params": {"torch_adam": True, "weight_decay": 0.5}}, 0.5),
    ],
)
def test_weight_decay_depends_on_the_class(optimizer: dict[str, Any], decay: float) -> None:
    assert rows(ZERO3 | {"optimizer": optimizer})["optimizer.params.weight_decay"].value == decay


@pytest.mark.parametrize(
    ("scheduler", "peak"),
    [
        ({"type": "WarmupLR", "params": {}}, 0.1),
        ({"type": "WarmupDecayLR", "params": {"total_num_steps": 5}}, 0.001),
        ({"type": "WarmupDecayLR", "params": {"total_num_steps": 5, "warmup_max_lr": None}}, 0.1),
        ({"type": "WarmupLR", "params": {"warmup_max_lr": 0.2}}, 0.2),
    ],
)
def test_the_peak_of_the_schedule(scheduler: dict[str, Any], peak: float) -> None:
    source = ZERO3 | {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "scheduler": scheduler}
    assert rows(source)["scheduler.params.warmup_max_lr"].value == peak


def test_auto_by_consumer() -> None:
    for consumer, origin in ((None, "filled"), ("trainer", "filled"), ("deepspeed", "dropped")):
        found = rows(ALL_AUTO, consumer)["bf16.enabled"]  # type: ignore[arg-type]
        assert found.origin == origin
        assert (found.value is UNKNOWN) == (origin == "filled")
        assert found.note
    assert rows(ALL_AUTO, "deepspeed")["gradient_clipping"].origin == "invalid"


def test_a_section_that_is_off_has_one_row() -> None:
    found = rows(ZERO3)
    assert found["zero_optimization.zenflow"].value is None
    assert "zero_optimization.zenflow.topk_ratio" not in found
    zenflow = ZERO3 | {"zero_optimization": {"stage": 2, "zenflow": {}}}
    assert rows(zenflow)["zero_optimization.zenflow.topk_ratio"].value == 0.1


def test_a_removed_key_appears_where_it_is_written() -> None:
    assert "amp" not in rows(ZERO3)
    assert rows(ZERO3 | {"amp": {}})["amp"].origin == "invalid"


@pytest.fixture
def path(tmp_path: Path) -> str:
    target = tmp_path / "ds_config.json"
    target.write_text(json.dumps(ALL_AUTO, indent=2), encoding="utf-8")
    return str(target)


def test_the_table(path: str) -> None:
    result = CliRunner().invoke(main, ["resolve", path])
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert (
        '"auto": Trainer puts learning_rate; Accelerate puts the lr of DummyOptim'
        in lines["optimizer.params.lr"]
    )
    assert "Accelerate" not in lines["optimizer.params.betas"]
    assert lines["zero_optimization.stage"].split()[1:] == ["3", "written", "line", "28"]
    assert "fp16.enabled" not in lines
    everything = CliRunner().invoke(main, ["resolve", path, "--all"])
    assert "fp16.enabled" in everything.stdout


def test_the_json(path: str) -> None:
    result = CliRunner().invoke(main, ["resolve", path, "--output-format", "json"])
    report = json.loads(result.stdout)
    keys = {key["key"]: key for key in report["keys"]}
    assert report["version"] == 1
    assert keys["optimizer.params.lr"]["known"] is False
    assert keys["optimizer.params.lr"]["value"] is None
    assert keys["fp16.loss_scale"] == {
        "key": "fp16.loss_scale",
        "value": 0,
        "known": True,
        "origin": "default",
        "note": "",
        "line": None,
    }


def test_an_unusable_source(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["resolve", str(tmp_path / "nothing.json")])
    assert result.exit_code == 2
    assert "DS100" in result.stderr


def test_the_schema_is_the_committed_one() -> None:
    committed = Path(__file__).parents[2] / "schemas" / "deepspeed.schema.json"
    result = CliRunner().invoke(main, ["schema", "deepspeed"])
    assert result.stdout == committed.read_text(encoding="utf-8")
    assert CliRunner().invoke(main, ["schema", "nothing"]).exit_code == 2


def test_the_values_of_an_older_deepspeed(path: str) -> None:
    def keys(*args: str) -> dict[str, object]:
        result = CliRunner().invoke(main, ["resolve", path, "--output-format", "json", *args])
        return {row["key"]: row["value"] for row in json.loads(result.stdout)["keys"]}

    assert keys()["steps_per_print"] is None
    older = keys("--deepspeed-version", "0.14.5")
    assert older["steps_per_print"] == 10
    assert "expert_parallel" in keys()
    assert "expert_parallel" not in older
