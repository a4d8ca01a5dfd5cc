"""What `tools/history.py` makes of what the versions say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle.grid import VALUES, Observed, same

from dsconf.config.coerce import Invalid, coerce
from tools.history import changes_of, history, knows, merged, optimizers, smallest, text_of

PATH = "zero_optimization.sub_group_size"


def said(node: dict[str, Any] | None, default: object = 1_000_000_000, **more: Any) -> dict[str, Any]:
    """What a version would say that reads one key as `node` has it, or does not have it."""
    results = [coerce(node, "pydantic", value) if node else Invalid("parse", "nothing") for value in VALUES]
    seen = [
        Observed("refused") if isinstance(result, Invalid) else Observed(None, True, result)
        for result in results
    ]
    return {
        "pydantic": {"zero_optimization": {"sub_group_size": "sub_group_size"} if node else {}},
        "pydantic_version": 2,
        "plain": ["zero_optimization"],
        "literals": [],
        "initialize": [],
        "raises": {},
        "optimizers": ["adam"],
        "schedules": {},
        "lengths": {},
        "defaults": {PATH: default} if node else {},
        "values": {PATH: seen} if node else {},
        **more,
    }


NOW = {"type": "int", "min": 0, "default": 1_000_000_000}
SIGNED = {"type": "int", "default": 1_000_000_000}
ABOVE = {"type": "int", "exclusive_min": 0, "default": 5}


@pytest.mark.parametrize(
    ("versions", "changes"),
    [
        ([said(NOW), said(NOW)], {}),
        ([said(None), said(NOW), said(NOW)], {"since": "1"}),
        ([said(SIGNED), said(SIGNED), said(NOW)], {"was": [{"until": "1", "drop": ["min"]}]}),
        (
            [said(None), said(ABOVE, 5), said(SIGNED), said(NOW)],
            {
                "since": "1",
                "was": [
                    {"until": "1", "set": {"default": 5, "exclusive_min": 0}, "drop": ["min"]},
                    {"until": "2", "drop": ["min"]},
                ],
            },
        ),
    ],
)
def test_the_changes_of_a_key(versions: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    assert changes_of(PATH, {str(number): each for number, each in enumerate(versions)}) == changes


def test_a_key_that_is_gone_is_like_those_that_are_there() -> None:
    """A key of which the table has nothing is described by a plain node, or by that of another key of its section."""
    path = "zero_optimization.lost"
    old = said(NOW)
    old["pydantic"]["zero_optimization"] = {"lost": "lost"}
    old["values"], old["defaults"] = {path: old["values"][PATH]}, {path: 7}
    changes = changes_of(path, {"0": old, "1": said(NOW)})
    assert changes["until"] == "0"
    assert changes["was"] == [{"until": "0", "set": {"type": "int", "min": 0, "default": 7}}]


def test_a_name_counts_where_nothing_looks_it_up() -> None:
    newest = said(NOW, plain=["log_level"])
    assert knows("log_level", said(NOW, plain=["log_level"]), newest)
    assert not knows("log_level", said(NOW, literals=["log_level"]), newest)
    assert knows("log_level", said(NOW, initialize=["log_level"]), newest)
    assert knows("data_parallel_size", said(NOW, literals=["data_parallel_size"]), newest)
    assert not knows("data_parallel_size", said(NOW), newest)


def test_the_smallest_change() -> None:
    tried: list[dict[str, Any]] = []

    def wrong(node: dict[str, Any]) -> list[str]:
        tried.append(node)
        return [field for field in ("python_number", "quoted_fails") if field in node]

    seed = {"type": "float", "python_number": True, "quoted_fails": "step"}
    assert smallest("a.b", [seed], wrong) == {"type": "float"}
    assert tried[0] == seed


def test_what_nothing_repeats_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    node = smallest("a.b", [{"type": "any"}], lambda node: ["one"] if "nullable" in node else ["one", "two"])
    assert node == {"type": "any", "nullable": True}
    assert capsys.readouterr().err.startswith("a.b is not quite {'type': 'any', 'nullable': True}: ['one']")


def test_spans_of_optimizers() -> None:
    names = (["adam", "old"], ["adam", "some"], ["adam", "new", "some"], ["adam", "new"])
    assert optimizers({str(number): said(NOW, optimizers=each) for number, each in enumerate(names)}) == {
        "new": {"since": "2"},
        "old": {"until": "0"},
        "some": {"since": "1", "until": "2"},
    }


def test_merged_keeps_a_default_of_null() -> None:
    assert merged({"a": 1, "default": 2}, {"a": None, "default": None}) == {"default": None}


def test_the_text_has_a_line_per_key() -> None:
    written = {"versions": ["1"], "keys": {"a": {"since": "1"}, "b": {}}}
    assert json.loads(text_of(written)) == written
    assert text_of(written).count("\n") == 5


def test_nan_is_nan() -> None:
    assert same(float("nan"), float("nan"))
    assert not same(float("nan"), 1.0)
    assert not same(1, 1.0)


def test_what_came_with_its_section_has_no_since_of_its_own() -> None:
    section, key = "zero_optimization.zenflow", "zero_optimization.zenflow.steps_per_epoch"
    schedules = {"WarmupLR": {"warmup_max_lr": None}}
    old, new = said(NOW, schedules=schedules), said(NOW, schedules=schedules)
    new["pydantic"]["zero_optimization"]["zenflow"] = "zenflow"
    new["pydantic"][section] = {"steps_per_epoch": "steps_per_epoch"}
    keys = history({"0": old, "1": new})["keys"]
    assert keys[section] == {"since": "1"}
    assert key not in keys
    old["literals"] = ["steps_per_epoch", "bucket_size"]
    assert not knows(key, old, new)
