"""Verdicts that serve for other files: whatever was linted before, every file gets the findings that it gets alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from examples import EXAMPLES

from dsconf.config.context import Context
from dsconf.config.derive import facts_of
from dsconf.document.json_scanner import scan
from dsconf.lint import verdicts
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import lint_text
from dsconf.lint.evaluate import Scope
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules
from dsconf.lint.verdicts import Verdicts

RULES = load_rules()
CONTEXTS = [
    Context(),
    Context("deepspeed", 8),
    Context("trainer", 8),
    Context("accelerate", deepspeed_version="0.16.9"),
]
TEXTS = [example.text for example in EXAMPLES]
VALUES: list[Any] = [None, True, False, 0, 1, 3, -1, 0.5, "auto", "cpu", "${X}", [], {}, {"enabled": True}]


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_remembered", [])


def forget() -> None:
    verdicts._remembered.clear()


def mutants(seed: int) -> Iterator[str]:
    """The examples with some keys gone and others changed."""
    random = Random(seed)

    def changed(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: random.choice(VALUES) if random.random() < 0.15 else changed(below)
            for key, below in value.items()
            if random.random() < 0.95
        }

    for text in TEXTS:
        try:
            config = json.loads(text)
        except ValueError:
            continue
        yield json.dumps(changed(config), indent=2)


def lint(text: str, context: Context) -> Result:
    return lint_text("config.json", text, RULES, context, recognise=False)._replace(documents=())


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: str(context.consumer))
def test_the_files_before_change_nothing(context: Context) -> None:
    texts = [*TEXTS, *mutants(1)]
    Random(2).shuffle(texts)
    together = [lint(text, context) for text in texts]
    for text, result in zip(texts, together, strict=True):
        forget()
        assert lint(text, context) == result, text


def test_contexts_do_not_mix() -> None:
    text = '{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}'
    worlds = [Context("deepspeed", size) for size in (None, 8, 12)]
    for _ in range(3):
        codes = [{finding.code for finding in lint(text, context).findings} for context in worlds]
    assert ["batch-product-mismatch" in lint(text, world).undecided for world in worlds] == [
        True,
        False,
        False,
    ]
    assert codes[1] != codes[2]


class Counted(Scope):
    """Counts the conditions that are evaluated."""

    number = 0

    def value(self, code: list[Any]) -> object:
        Counted.number += 1
        return super().value(code)


def evaluated(text: str) -> int:
    """How many expressions the verdicts over a file take."""
    config = config_of(scan("config.json", text), Context("deepspeed", 8))
    facts = facts_of(config)
    found = Verdicts(config, lambda: Counted(config, facts))
    Counted.number = 0
    for rule in RULES:
        if rule["kind"] == "when" and config.format in rule["formats"]:
            found.of(rule)
    return Counted.number


def test_most_conditions_are_evaluated_once() -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    alone, learning, known = (evaluated(text) for _ in range(3))
    assert known < learning / 3
    assert known < alone / 3


def test_another_rule_of_the_same_name_is_another_rule() -> None:
    first = {"name": "own", "when": ["==", ["path", "steps_per_print"], ["literal", 10]]}
    second = {"name": "own", "when": ["!=", ["path", "steps_per_print"], ["literal", 10]]}
    config = config_of(scan("config.json", "{}"), Context("deepspeed"))
    rules = (first, first, second, second, first)
    values = [Verdicts(config, lambda: Scope(config, facts_of(config))).of(rule).value for rule in rules]
    assert values in ([True, True, False, False, True], [False, False, True, True, False])


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (
            '{"bfloat16": {"enabled": true}, "steps_per_print": 1}',
            {"bf16", "bf16.enabled", "steps_per_print"},
        ),
        ('{"zero_optimization": true}', None),
        ('{"zero_optimization": "${ZERO}"}', None),
        ('{"train_batch_size": "${SIZE}"}', {"train_batch_size"}),
        ('{"optimizer": null}', None),
    ],
)
def test_what_a_file_has_to_do_with(text: str, paths: set[str] | None) -> None:
    assert config_of(scan("config.json", text), Context()).paths == paths


def test_circumstances_are_forgotten_in_time() -> None:
    for size in range(1, 3 * verdicts._MOST):
        lint("{}", Context("deepspeed", size))
    assert len(verdicts._remembered) == verdicts._MOST
