"""What DeepSpeed refuses: a clear meaning is translated and told, an open one stops the translation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dsconf.cli import main
from dsconf.lint.index import load_rules
from dsconf.translate import refusals

BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
ADAM: dict[str, Any] = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, [*args])


def translate(changes: dict[str, Any], *args: str) -> tuple[Result, dict[str, Any]]:
    Path("ds_config.json").write_text(json.dumps(BASE | changes), encoding="utf-8")
    done = run("translate", "ds_config.json", "--to", "fsdp2", "--report", "report.json", *args)
    if not Path("report.json").exists():
        return done, {}
    items = json.loads(Path("report.json").read_text(encoding="utf-8"))["items"]
    return done, {item["key"]: item for item in items}


@pytest.mark.parametrize(
    ("changes", "key", "outcome", "code"),
    [
        ({"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}, "optimizer.type", "exact", "DS602"),
        (
            ADAM | {"scheduler": {"type": "StepLR", "params": {"step_size": 9}}},
            "scheduler.type",
            "exact",
            "DS621",
        ),
        (
            {"optimizer": {"type": "OneBitAdam", "params": {"lr": 0.1}}},
            "optimizer.type",
            "unsupported",
            "DS601",
        ),
        ({"gradient_predivide_factor": 2.0}, "gradient_predivide_factor", "no-effect", "DS405"),
        ({"steps_per_print": 0}, "steps_per_print", "no-effect", "DS825"),
        (
            {
                "optimizer": {"type": "Muon", "params": {"lr": 0.1}},
                "zero_optimization": {"stage": 3, "reduce_scatter": True},
            },
            "zero_optimization.reduce_scatter",
            "no-effect",
            "DS606",
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
            "zero_optimization.offload_param.device",
            "unsupported",
            "DS502",
        ),
    ],
)
def test_a_clear_meaning_is_translated_and_told(
    changes: dict[str, Any], key: str, outcome: str, code: str
) -> None:
    done, items = translate(changes)
    assert done.exit_code == (1 if outcome == "unsupported" else 0)
    assert items[key]["outcome"] == outcome
    assert f"itself refuses it ({code})" in items[key]["note"]
    linted = run("lint", "ds_config.json", "--consumer", "deepspeed")
    assert (linted.exit_code, code in linted.stdout) == (1, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"type": "Adamm", "params": {"lr": 0.1}}},
        ADAM | {"scheduler": {"type": "WarmupLR", "params": {"warmup": 3}}},
        {"fp16": {"enabled": True}},
        {"zero_optimization": {"stage": "three"}},
    ],
)
def test_an_open_meaning_stops_the_translation(changes: dict[str, Any]) -> None:
    done, items = translate(changes)
    assert (done.exit_code, done.stdout, items) == (2, "", {})
    assert "error" in done.stderr


def test_a_refusal_that_set_has_mended_is_not_told() -> None:
    sgd = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    done, items = translate(sgd, "--set", "zero_allow_untested_optimizer=true")
    assert done.exit_code == 0
    assert "refuses" not in items["optimizer.type"]["note"]


def test_the_rules_that_stop_nothing_exist() -> None:
    severities = {rule["name"]: rule["severity"] for rule in load_rules()}
    assert all(severities[name] == [[None, "error"]] for name in refusals._CLEAR)
