"""`--deepspeed-version`: which version is meant, the key table of an older one, and what the commands make of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from configs import config_of
from examples import lint_json

from dsconf.cli import main
from dsconf.config.coerce import Invalid, coerce
from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.config.tables import spec_at
from dsconf.document.json_scanner import scan
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.history import known_version, load_history, optimizers_of, overlaid
from dsconf.formats.deepspeed.keys import NEWEST, load_keys
from dsconf.formats.deepspeed.optimizers import optimizer_known
from dsconf.lint.optimizers import nearest_optimizer

HISTORY = load_history()
OLDER = HISTORY["versions"][:-1]

# ---- which version ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "stands_for"),
    [
        ("0.14.5", "0.14.5"),
        ("0.14", "0.14.5"),
        ("0.14.99", "0.14.99"),
        ("0.015.02", "0.15.2"),
        ("0.19.5", "0.19.5"),
        ("0.19", NEWEST),
        ("0.18", "0.18.9"),
        ("1.0", NEWEST),
        ("99.99.99", NEWEST),
    ],
)
def test_the_version_that_stands_for_one(written: str, stands_for: str) -> None:
    assert known_version(written) == stands_for


def test_a_key_that_came_between_two_is_no_mistake() -> None:
    """Whether 0.17.3 has what 0.17.6 has, and 0.17.0 has not, was not read."""
    assert HISTORY["keys"]["torch_autocast"] == {"since": "0.17.6"}
    for version, known in (("0.17.0", False), ("0.17.3", True), ("0.17.6", True)):
        assert ("torch_autocast" in load_keys(known_version(version))["keys"]) == known


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0",
        "0.",
        "0.19.",
        "v0.19.8",
        "0.19.8.1",
        "0.19.8rc1",
        "0,19",
        "-1.2",
        " 0.19",
        "0.19\n",
        "٠.١٩",
        "0." + "9" * 5000,
    ],
)
def test_nonsense_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="is no version of DeepSpeed"):
        known_version(text)


@pytest.mark.parametrize("text", ["0.0", "0.9.3", "0.14.4", "0.13"])
def test_what_is_too_old_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=f"DeepSpeed {text} is too old: dsconf knows 0.14.5 and later"):
        known_version(text)


# ---- the overlay -----------------------------------------------------------------------------------

TABLE: dict[str, Any] = {
    "type": "object",
    "keys": {
        "old": {"type": "int", "default": 1},
        "new": {"type": "int"},
        "other": {"alias": "new"},
        "gone": {"type": "any", "status": "removed"},
        "part": {"type": "object", "reader": "pydantic", "keys": {"inner": {"type": "int", "min": 0}}},
        "late": {"type": "object", "keys": {"inner": {"type": "int"}}},
    },
}
CHANGES: dict[str, Any] = {
    "versions": ["1.0.0", "1.1.0", "1.2.0", "1.3.0"],
    "pydantic_1": "1.0.0",
    "optimizers": {},
    "keys": {
        "old": {
            "was": [{"until": "1.0.0", "set": {"default": 3}}, {"until": "1.1.0", "set": {"default": 2}}]
        },
        "new": {"since": "1.2.0"},
        "gone": {"was": [{"until": "1.2.0", "set": {"type": "bool"}, "drop": ["status"]}]},
        "part.inner": {"was": [{"until": "1.1.0", "drop": ["min"]}]},
        "late": {"since": "1.1.0"},
        "late.inner": {"was": [{"until": "1.1.0", "set": {"type": "float"}}]},
        "lost": {"until": "1.1.0", "was": [{"until": "1.1.0", "set": {"type": "str"}}]},
    },
}


def test_an_overlay() -> None:
    before = copy.deepcopy(TABLE)
    tables = {version: overlaid(TABLE, CHANGES, version) for version in CHANGES["versions"]}
    assert before == TABLE
    assert tables["1.3.0"] == TABLE
    assert tables["1.2.0"]["keys"] == {**TABLE["keys"], "gone": {"type": "bool"}}
    assert tables["1.1.0"]["keys"] == {
        "old": {"type": "int", "default": 2},
        "gone": {"type": "bool"},
        "part": {"type": "object", "reader": "pydantic", "keys": {"inner": {"type": "int"}}},
        "late": {"type": "object", "keys": {"inner": {"type": "float"}}},
        "lost": {"type": "str"},
    }
    assert tables["1.0.0"]["keys"] == {
        "old": {"type": "int", "default": 3},
        "gone": {"type": "bool"},
        "part": {"type": "object", "reader": "pydantic", "keys": {"inner": {"type": "int", "pydantic": 1}}},
        "lost": {"type": "str"},
    }


def test_an_overlay_shares_nothing() -> None:
    first = overlaid(TABLE, CHANGES, "1.1.0")
    first["keys"]["lost"]["type"] = "changed"
    assert overlaid(TABLE, CHANGES, "1.1.0")["keys"]["lost"] == {"type": "str"}


def test_the_history_is_of_this_table() -> None:
    assert overlaid(load_keys(), HISTORY, NEWEST) == load_keys()
    assert all(load_keys(version) != load_keys() for version in OLDER)
    for path, changes in HISTORY["keys"].items():
        assert set(changes) <= {"since", "until", "was"}
        if "until" not in changes:
            spec_at(load_keys(), path)
        for earlier in changes.get("was", ()):
            assert set(earlier) <= {"until", "set", "drop"}
            assert len(earlier) > 1
            assert earlier["until"] in OLDER


@pytest.mark.parametrize("version", OLDER)
def test_every_node_of_an_older_table_is_whole(version: str) -> None:
    def walk(section: dict[str, Any]) -> None:
        for node in section["keys"].values():
            assert "alias" in node or "type" in node
            if "alias" in node:
                assert node["alias"] in section["keys"]
            walk(node if "keys" in node else {"keys": {}})

    walk(load_keys(version))


# What the release notes and the packages say.
@pytest.mark.parametrize(
    ("path", "field", "values"),
    [
        ("gradient_clipping", "default", {"0.19.2": 0.0, "0.19.3": 1.0}),
        ("zero_optimization.reduce_bucket_size", "min", {"0.19.5": 0, "0.19.6": None}),
        ("zero_optimization.reduce_bucket_size", "exclusive_min", {"0.19.5": None, "0.19.6": 0}),
        ("zero_optimization.offload_optimizer.pin_memory", "default", {"0.19.4": False, "0.19.5": True}),
        ("bf16.check_grad_overflow", "default", {"0.19.2": False, "0.19.3": True}),
        ("nebula", "status", {"0.14.5": None, "0.19.6": None, "0.19.7": "removed"}),
        ("elasticity", "status", {"0.19.7": None, NEWEST: "removed"}),
        ("zero_optimization.mics_shard_size", "status", {"0.19.6": None, "0.19.7": "removed"}),
        ("fp16", "reader", {"0.16.9": None, "0.17.6": "pydantic"}),
        ("steps_per_print", "default", {"0.14.5": 10, "0.15.4": None}),
        ("scheduler.params.warmup_num_steps", "int_only", {"0.19.2": None, "0.19.3": True}),
    ],
)
def test_known_changes(path: str, field: str, values: dict[str, object]) -> None:
    assert {version: spec_at(load_keys(version), path)[1].get(field) for version in values} == values


def test_optimizers_come_and_go() -> None:
    assert optimizer_known("OneBitAdam", "0.19.6")
    assert not optimizer_known("OneBitAdam", "0.19.7")
    assert not optimizer_known("Muon", "0.16.9")
    assert optimizer_known("Muon", "0.17.6")
    assert nearest_optimizer("my_muon", "0.17.6") == "Muon"
    assert nearest_optimizer("my_muon", "0.16.9") != "Muon"
    assert optimizers_of(["adam", "muon"], "0.14.5") == {"adam", "onebitadam", "onebitlamb", "zerooneadam"}


# ---- pydantic 1 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "value", "kept"),
    [
        ({"type": "int", "min": 0}, "5", 5),
        ({"type": "int", "min": 0}, 1.9, 1),
        ({"type": "int", "min": 0}, True, 1),
        ({"type": "int", "min": 0}, -1, None),
        ({"type": "int"}, "5.0", None),
        ({"type": "int"}, float("inf"), None),
        ({"type": "int"}, None, None),
        ({"type": "float", "max": 1}, " .5 ", 0.5),
        ({"type": "float", "max": 1}, 2, None),
        ({"type": "bool"}, "oN", True),
        ({"type": "bool"}, 2, None),
        ({"type": "bool"}, [], None),
        ({"type": "int", "values": [0, 1, 2, 3]}, 3.0, 3),
        ({"type": "int", "values": [0, 1, 2, 3]}, "3", None),
        ({"type": "str", "values": ["none", "cpu"]}, "cpu", "cpu"),
        ({"type": "str", "values": ["none", "cpu"]}, {}, None),
        ({"type": "str"}, "a", "a"),
        ({"type": "str"}, 5, "5"),
        ({"type": "str"}, True, "True"),
        ({"type": "str"}, [], None),
        ({"type": "list"}, [1, "a"], [1, "a"]),
        ({"type": "list"}, "a", None),
        ({"type": "object", "keys": {}}, [], {}),
        ({"type": "object", "keys": {}}, "x", None),
    ],
)
def test_pydantic_1(node: dict[str, Any], value: object, kept: object) -> None:
    result = coerce({**node, "pydantic": 1}, "pydantic", value)
    if kept is None:
        assert isinstance(result, Invalid)
    else:
        assert (type(result), result) == (type(kept), kept)


# ---- the commands ----------------------------------------------------------------------------------


def lint(tmp_path: Path, config: dict[str, Any], *args: str) -> list[tuple[str, str, str]]:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, **config}), encoding="utf-8")
    return [(each["code"], each["severity"], each["key"]) for each in lint_json(path, *args)[1]["findings"]]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"log_level": "info"}, {"0.19.2": [("DS126", "warning", "log_level")], "0.19.3": []}),
        (
            {"fp16": {"x": 1}},
            {"0.16.9": [("DS105", "warning", "fp16.x")], "0.17": [("DS105", "error", "fp16.x")]},
        ),
        (
            {"zero_optimization": {"stage": 3, "zenflow": {"x": 1}}},
            {
                "0.16": [("DS126", "error", "zero_optimization.zenflow")],
                "0.18": [("DS105", "error", "zero_optimization.zenflow.x")],
            },
        ),
        ({"zero_optimization": {"mics_shard_size": 8}}, {"0.18": []}),
        (
            {"zero_optimization": {"stage": "3"}},
            {"0.14": [("DS106", "error", "zero_optimization.stage")], "0.15": []},
        ),
        ({"nebula": {"enabled": True}}, {"0.18": []}),
        *(
            (
                {"fp16": {"enabled": enabled, "initial_scale_power": power}},
                {"0.16.9": [("DS303", "error", "fp16.initial_scale_power")] if enabled and refused else []},
            )
            for power, refused in (("16", True), (None, True), (2000.0, True), (8, False), (8.5, False))
            for enabled in (True, False)
        ),
        (
            {"zero_optimization": {"stage": 1}, "fp16": {"fp16_master_weights_and_grads": True}},
            {"0.16.9": [], "0.17.6": [("DS308", "error", "fp16.fp16_master_weights_and_grads")]},
        ),
        (
            {"zero_optimization": {"stage": 1, "offload_optimizer": {"ratio": 0.5}}},
            {"0.14.5": [], "0.15.0": [("DS505", "error", "zero_optimization.offload_optimizer.ratio")]},
        ),
        (
            {"optimizer": {"type": "OneBitAdam", "params": {}}},
            {"0.19.6": [], "0.19.7": [("DS601", "error", "optimizer.type")]},
        ),
    ],
)
def test_lint_judges_as_that_version_does(
    tmp_path: Path, config: dict[str, Any], found: dict[str, list[tuple[str, str, str]]]
) -> None:
    assert {version: lint(tmp_path, config, "--deepspeed-version", version) for version in found} == found


def test_the_newest_is_the_default(tmp_path: Path) -> None:
    config = {"optimizer": {"type": "OneBitAdam", "params": {}}, "fp16": {"x": 1}}
    assert lint(tmp_path, config) == lint(tmp_path, config, "--deepspeed-version", NEWEST)
    assert lint(tmp_path, config) == lint(tmp_path, config, "--deepspeed-version", "2.0")


@pytest.mark.parametrize("command", [["lint", "ds.json"], ["translate", "ds.json", "--to", "fsdp2"]])
@pytest.mark.parametrize(
    ("version", "why"), [("latest", "is no version of DeepSpeed"), ("0.9.5", "is too old")]
)
def test_an_unusable_version_is_an_unusable_option(command: list[str], version: str, why: str) -> None:
    result = CliRunner().invoke(main, [*command, "--deepspeed-version", version])
    assert result.exit_code == 2
    assert "--deepspeed-version" in result.output
    assert why in result.output


def test_a_key_that_an_older_version_lacks_has_no_value() -> None:
    older = Config(scan("ds.json", "{}"), load_keys("0.16.9"), Context(deepspeed_version="0.16.9"))
    assert older.value("zero_optimization.zenflow.topk_ratio") is UNKNOWN
    assert older.value("gradient_clipping") == 0.0
    with pytest.raises(KeyError):
        config_of("{}").value("zero_optimization.no_such_key")


def translate(tmp_path: Path, config: dict[str, Any], *args: str) -> tuple[int, str, dict[str, Any]]:
    path, report = tmp_path / "ds.json", tmp_path / "report.json"
    path.write_text(json.dumps({**TRANSLATABLE, **config}), encoding="utf-8")
    result = CliRunner().invoke(
        main, ["translate", str(path), "--to", "fsdp2", "--report", str(report), *args]
    )
    return result.exit_code, result.stdout, json.loads(report.read_text(encoding="utf-8"))


TRANSLATABLE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
    "zero_optimization": {"stage": 3},
}


def items(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["key"]: item for item in report["items"]}


def test_translate_takes_the_defaults_of_that_version(tmp_path: Path) -> None:
    _, newest, report = translate(tmp_path, {})
    assert "gradient_clipping" in items(report)
    assert "scheduler.params.warmup_max_lr" not in items(report)
    assert "with DeepSpeed" not in report["overall"]["note"]
    status, older, report = translate(tmp_path, {}, "--deepspeed-version", "0.16.9")
    assert status == 0
    assert "clip_grad_norm_" in newest
    assert "clip_grad_norm_" not in older
    assert "gradient_clipping" not in items(report)
    assert items(report)["scheduler.params.warmup_max_lr"]["value"] == 0.001
    assert report["overall"]["note"].endswith(f", with DeepSpeed {NEWEST}")


def test_translate_says_what_that_version_ignores_or_refuses(tmp_path: Path) -> None:
    config = {"torch_autocast": {"enabled": True}, "nebula": {"enabled": False}}
    _, _, report = translate(tmp_path, config)
    keys = ("torch_autocast.enabled", "nebula")
    assert [items(report)[key]["outcome"] for key in keys] == ["unsupported", "rejected-by-source"]
    _, _, report = translate(tmp_path, config, "--deepspeed-version", "0.16.9")
    assert [items(report)[key]["outcome"] for key in config] == ["no-effect", "unsupported"]
    _, _, report = translate(tmp_path, config, "--deepspeed-version", "0.19.7")
    assert items(report)["nebula"]["note"] == "DeepSpeed 0.19.7 has removed this key"


def test_set_knows_the_keys_of_that_version(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    command = ["translate", str(path), "--to", "fsdp2", "--set", "log_level=info", "--deepspeed-version"]
    result = CliRunner().invoke(main, [*command, "0.16"])
    assert result.exit_code == 2
    assert "can have no key 'log_level'" in result.output
    assert CliRunner().invoke(main, [*command, "0.19.8"]).exit_code == 0


@pytest.mark.parametrize(
    ("path", "release"),
    sorted((path, change["since"]) for path, change in load_history()["keys"].items() if "since" in change),
)
def test_a_newer_key_says_which_version_has_it(tmp_path: Path, path: str, release: str) -> None:
    versions = load_history()["versions"]
    older = versions[versions.index(release) - 1]
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 4}
    *above, name = path.split(".")
    section = config
    for each in above:
        section = section.setdefault(each, {})
    section[name] = {}
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(config), encoding="utf-8")

    def said(version: str) -> list[dict[str, Any]]:
        findings = lint_json(file, "--deepspeed-version", version)[1]["findings"]
        return [each for each in findings if each["rule"] == "key-needs-version"]

    assert said(release) == []
    if spec_at(load_keys(), path)[1].get("status") == "removed":
        assert said(older) == []
    else:
        (finding,) = said(older)
        assert f"{path}.".startswith(f"{finding['key']}.")
        assert f"DeepSpeed {release} has it" in finding["message"]
        assert older in finding["message"]
