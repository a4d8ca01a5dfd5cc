"""Which rules run, by codes, beginnings, names and ALL."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import dsconf, lint, write

from dsconf.lint.index import load_rules
from dsconf.lint.selection import ALWAYS, Choice, exactness

RULES = load_rules()
TWO = '{"train_micro_batch_size_per_gpu": "4", "gradient_cliping": 0.5}'
BROKEN = "{"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write({"a.json": TWO, "broken.json": BROKEN})


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ([], ["DS106", "DS104"]),
        (["--select", "DS104"], ["DS104"]),
        (["--select", "unknown-top-level-key"], ["DS104"]),
        (["--select", "DS104,DS106"], ["DS106", "DS104"]),
        (["--select", "DS104", "--select", "DS106"], ["DS106", "DS104"]),
        (["--select", "DS2"], []),
        (["--ignore", "DS"], []),
        (["--ignore", "ALL"], []),
        (["--ignore", "DS104"], ["DS106"]),
        (["--ignore", "DS10", "--select", "DS104"], ["DS104"]),
        (["--select", "DS10", "--ignore", "DS104"], ["DS106"]),
        (["--select", "DS104", "--ignore", "DS104"], []),
        (["--select", "DS104", "--ignore", "unknown-top-level-key"], []),
        (["--select", "ALL", "--ignore", "DS1", "--select", "DS10"], ["DS106", "DS104"]),
    ],
)
def test_the_more_exact_one_counts(args: list[str], found: list[str]) -> None:
    assert lint("a.json", *args) == [*(f"a.json:1 {code}" for code in found), str(int(bool(found)))]


@pytest.mark.parametrize(
    ("settings", "args", "found"),
    [
        ('select = ["DS104"]', [], ["DS104"]),
        ("select = []", [], []),
        ('select = ["DS104"]', ["--select", "DS106"], ["DS106"]),
        ('ignore = ["DS104"]', ["--ignore", "DS106"], []),
        ('ignore = ["DS104"]', ["--select", "DS10"], ["DS106"]),
        ('ignore = ["DS104"]', ["--select", "DS104"], ["DS104"]),
        ('ignore = ["DS104"]\nselect = ["DS104"]', [], []),
        ('select = ["DS106"]', ["--ignore", "DS1"], ["DS106"]),
    ],
)
def test_the_command_line_is_the_later_layer(settings: str, args: list[str], found: list[str]) -> None:
    write({"dsconf.toml": settings})
    assert lint("a.json", *args) == [*(f"a.json:1 {code}" for code in found), str(int(bool(found)))]


@pytest.mark.parametrize("option", ["--select", "--ignore"])
@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("DS999", ""),
        ("D9", ""),
        ("ds104", ': did you mean "DS104"?'),
        ("unknown-top-levle-key", ': did you mean "unknown-top-level-key"?'),
        ("zzz", ""),
        ("DS-104", ""),
        ("", ""),
    ],
)
def test_unknown_ones(option: str, selector: str, hint: str) -> None:
    result = dsconf("lint", "a.json", option, "DS104,", option, selector)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f'Invalid value for {option}: no rule is called "{selector}"{hint}\n' in result.stderr


@pytest.mark.parametrize("args", [["--ignore", "ALL"], ["--ignore", "json-syntax"], ["--select", "DS2"]])
def test_a_file_that_cannot_be_read_is_always_said(args: list[str]) -> None:
    assert lint("broken.json", *args) == ["broken.json:1 DS101", "2"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["code"]))
def test_every_rule_can_be_named(rule: dict[str, str]) -> None:
    ranks = [
        exactness(selector, rule) for selector in ("ALL", rule["code"][:2], rule["code"][:3], rule["code"])
    ]
    assert ranks == sorted(set(ranks))
    assert exactness(rule["name"], rule) == ranks[-1]
    assert exactness("", rule) == exactness(rule["code"] + "0", rule) == -1
    only = Choice((None, ()), ([rule["name"]], ()))
    assert [other for other in RULES if only.runs(other) and other["name"] not in ALWAYS] == (
        [rule] if rule["name"] not in ALWAYS else []
    )
