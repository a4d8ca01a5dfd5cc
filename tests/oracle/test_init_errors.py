"""Errors that lint says to stop deepspeed.initialize: the real one is run over a sample of them, and stops."""

from __future__ import annotations

from collections import Counter

import pytest

from .engine import initialize
from .judge import Config, hjson, torch
from .linting import lint
from .mutants import BASES, contradict, mutants

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("process_group")]

SAMPLE = 300
MOST_OF_A_RULE = 40
TRIED = 12_000
NEEDS_DATA = ("curriculum-metric-incomplete",)
"""What stops deepspeed.initialize only with training data, which has a test of its own."""


def stops(config: Config) -> bool:
    """Whether deepspeed.initialize raises; of a file without an optimizer the script has one of its own."""
    own = None if config.get("optimizer", {}).get("type") else torch.optim.AdamW
    return isinstance(initialize(config, optimizer=own), Exception)


def accepted_bases() -> list[tuple[Config, list[int]]]:
    """Those of our configs that deepspeed.initialize takes on one CPU."""
    return [(base, [1]) for base in BASES if not stops(base)]


def test_they_stop_initialize() -> None:
    bases = accepted_bases()
    assert len(bases) >= len(BASES) / 2
    counts: Counter[str] = Counter()
    wrong = []
    for mutant in mutants(TRIED, seed=6, bases=bases, damages=[contradict]):
        if counts.total() >= SAMPLE:
            break
        errors = [each for each in lint(mutant.text, "deepspeed", 1).findings if each.severity == "error"]
        said = [each.rule for each in errors if each.fails == "init" and each.rule not in NEEDS_DATA]
        if not said or any(each.fails == "parse" for each in errors):
            continue
        if all(counts[rule] >= MOST_OF_A_RULE for rule in said):
            continue
        counts.update(said)
        if not stops(hjson.loads(mutant.text)):
            wrong.append((mutant.text, said))
    assert wrong == []
    assert counts.total() >= SAMPLE, counts
