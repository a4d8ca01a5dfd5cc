"""A DeepSpeed config that is written from a Plan has that Plan again, or the landings say why it has not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from configs import config_of as config_from
from corpus import configs, named, needs_corpus
from filling import values_for
from plans import Difference, differences, effective, random_plan

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.read import read
from dsconf.formats.deepspeed.write import write
from dsconf.formats.fsdp2 import read as fsdp2
from dsconf.formats.outcome import Landing
from dsconf.formats.reading import Reading
from dsconf.formats.writing import Request, Writing
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import lint_config, open_document
from dsconf.lint.index import load_rules
from dsconf.plan import Plan

FIXTURES = Path(__file__).parents[2] / "fixtures" / "fsdp2"
SEEDS = range(1000)
RULES = load_rules()
NOT_SAID = {"sharding.own_linear", "clipping.skips_not_finite", "checkpoint.weights"}
"""Fields whose None is not a setting of its own."""
LANDED = {
    "optimizer": "optimizer.name",
    "optimizer.own_kernel": "optimizer.name",
    "optimizer.sign_of_zero": "optimizer.name",
    "schedule": "schedule.name",
    "precision.steps_before": "sharding.partition",
    "precision.scaling": "precision.autocast",
}
"""Fields that land with another one."""
ELSEWHERE = (
    "wrapping.",
    "launch.",
    "batch.world_size",
    "recompute",
    "parallelism.context",
    "parallelism.block_styles",
    "parallelism.root_styles",
)
"""What no DeepSpeed config holds, or no reader of one takes."""


def written(plan: Plan) -> Writing:
    return write(plan, Request("", {}))


def unsaid(plan: Plan, writing: Writing) -> list[tuple[Difference, Landing | None]]:
    """The fields that came back as something else, and whose landing says that they are the same."""
    back = read(config_from(writing.text)).plan
    found = []
    for each in differences(effective(plan), effective(back)):
        landing = writing.landings.get(LANDED.get(each.field, each.field))
        told = landing is not None and (landing.outcome != "exact" or landing.action is not None)
        not_said = each.field in NOT_SAID and each.one is None
        # Only a class of torch has it; that of DeepSpeed stands for its own kernel in FSDP2 code.
        not_said |= (
            each.field == "optimizer.fused" and back.optimizer is not None and back.optimizer.own_kernel
        )
        if not (told or not_said or each.field.startswith(ELSEWHERE)):
            found.append((each, landing))
    return found


def complaints(text: str) -> list[str]:
    """The errors and warnings of lint."""
    result = lint_config(config_from(text), RULES)
    return [
        f"{each.code} {each.message}" for each in result.findings if each.severity in ("error", "warning")
    ]


def test_every_difference_of_a_random_plan_is_told() -> None:
    for seed in SEEDS:
        plan = random_plan(Random(seed))
        assert unsaid(plan, written(plan)) == [], seed


def test_no_random_plan_becomes_a_config_that_lint_complains_of() -> None:
    for seed in SEEDS:
        text = written(random_plan(Random(seed))).text
        assert complaints(text) == [], (seed, text)


def test_random_plans_differ_enough_to_find_something() -> None:
    """A good part of them comes back whole, and every way to land occurs."""
    plans = [random_plan(Random(seed)) for seed in SEEDS]
    writings = [written(plan) for plan in plans]
    outcomes = {landing.outcome for writing in writings for landing in writing.landings.values()}
    assert outcomes >= {"exact", "close", "approximate", "unsupported", "no-effect"}
    assert len({writing.text for writing in writings}) > 900


def test_what_was_read_from_a_config_is_written_the_same_again() -> None:
    for seed in SEEDS[:300]:
        first = read(config_from(written(random_plan(Random(seed))).text)).plan
        second = read(config_from(written(first).text)).plan
        assert written(second).text == written(first).text, seed


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.py")), ids=lambda path: path.stem)
def test_every_difference_of_code_written_by_hand_is_told(path: Path) -> None:
    plan = fsdp2.read(path.read_text(encoding="utf-8"), str(path)).plan
    assert unsaid(plan, written(plan)) == []
    assert complaints(written(plan).text) == []


@pytest.fixture(scope="module")
def corpus() -> dict[str, tuple[Plan, Writing]]:
    """The Plan of every public config that reads without unsupported items, and what is written of it."""
    found = {}
    for path in configs():
        reading = _reading(path)
        if reading is not None and all(item.outcome != "unsupported" for item in reading.items):
            found[named(path)] = (reading.plan, written(reading.plan))
    return found


def _reading(path: Path) -> Reading | None:
    try:
        return read(config_of(open_document(str(path), Context()), Context(), values_for(path)))
    except Unusable:
        return None


CHANGED = {
    "sharding.partition": "fp16 without ZeRO, which DeepSpeed does not scale",
    "optimizer.lr": "a rate that the schedule replaces",
    "batch.total": "tensor parallelism",
    "batch.world_size": "tensor parallelism",
}
"""The fields that may change, each told by its landing, and where."""


@needs_corpus
def test_every_public_config_comes_back(corpus: dict[str, tuple[Plan, Writing]]) -> None:
    assert len(corpus) > 200
    changed = 0
    for name, (plan, writing) in corpus.items():
        fields = {each.field for each in differences(plan, read(config_from(writing.text)).plan)}
        assert fields <= set(CHANGED), name
        assert unsaid(plan, writing) == [], name
        changed += bool(fields)
    assert changed < len(corpus) / 5


@needs_corpus
def test_lint_complains_of_no_public_config_that_is_written_again(
    corpus: dict[str, tuple[Plan, Writing]],
) -> None:
    for name, (_, writing) in corpus.items():
        assert complaints(writing.text) == [], name


@needs_corpus
def test_every_field_of_a_public_config_lands(corpus: dict[str, tuple[Plan, Writing]]) -> None:
    for path in configs():
        reading = _reading(path) if named(path) in corpus else None
        if reading is not None:
            missing = set(reading.fields.values()) - set(corpus[named(path)][1].landings)
            written_keys = {key for key, field in reading.fields.items() if field in missing}
            assert not written_keys & set(reading.written), (named(path), missing)
