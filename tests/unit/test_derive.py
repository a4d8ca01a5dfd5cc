"""Derived facts; the batch triangle is compared with DeepSpeed's own arithmetic, written down again here."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from configs import config_of

from dsconf.config.batch import Triangle
from dsconf.config.derive import FACTS, facts_of
from dsconf.config.effective import Derived, Facts
from dsconf.document.node import UNKNOWN

NAMES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def facts(*triangle: object, world_size: int | None = None, **keys: Any) -> Facts:
    """The facts of a config with these batch keys; None leaves one out."""
    written = {name: value for name, value in zip(NAMES, triangle, strict=False) if value is not None}
    return facts_of(config_of({**written, **keys}, world_size=world_size))


def deepspeed(total: float | None, micro: float | None, steps: float | None, world: float) -> object:
    """DeepSpeedConfig._set_batch_related_parameters and _batch_assertion: the three keys, or False."""
    if total is not None and micro is not None and steps is not None:
        pass
    elif total is not None and micro is not None:
        steps = total // micro
        steps //= world
    elif total is not None and steps is not None:
        micro = total // world
        micro //= steps
    elif micro is not None and steps is not None:
        total = micro * steps * world
    elif total is not None:
        steps = 1
        micro = total // world
    elif micro is not None:
        total = micro * world
        steps = 1
    else:
        return False
    assert total is not None
    assert micro is not None
    assert steps is not None
    if not (total > 0 and micro > 0 and steps > 0) or total != micro * steps * world:
        return False
    return total, micro, steps


NUMBERS = (None, 1, 2, 3, 4, 6, 8, 12, 24)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8, 64])
def test_with_a_world_size_it_is_as_deepspeed_computes(world: int) -> None:
    for total, micro, steps in product(NUMBERS, NUMBERS, NUMBERS):
        triangle = facts(total, micro, steps, world_size=world).value("batch")
        assert isinstance(triangle, Triangle)
        expected = deepspeed(total, micro, steps, world)
        assert (triangle.problem is None) == (expected is not False), (total, micro, steps)
        if expected is not False:
            assert triangle[:3] == expected


def test_without_a_world_size_it_says_what_holds_for_every_one() -> None:
    for total, micro, steps in product(NUMBERS, NUMBERS, NUMBERS):
        problem = facts(total, micro, steps).value("batch_problem")
        sound = [deepspeed(total, micro, steps, world) is not False for world in range(1, 25)]
        if problem is UNKNOWN:
            assert any(sound), (total, micro, steps)
            assert not all(sound), (total, micro, steps)
        elif problem is None:
            assert all(sound), (total, micro, steps)
        else:
            assert not any(sound), (total, micro, steps)


@pytest.mark.parametrize(
    ("triangle", "world", "problem"),
    [
        ((256, 4, 4), 8, "product"),
        ((128, 4, 4), 8, None),
        ((100, 8, 3), None, "product"),
        ((96, 8, 3), None, UNKNOWN),
        ((18,), 4, "indivisible"),
        ((30, 4), None, "indivisible"),
        ((64, None, 16), 8, "zero"),
        ((200, None, 16), 8, "indivisible"),
        ((4, 8), None, "zero"),
        ((2,), 4, "zero"),
        ((2, None, 4), 1, "zero"),
        ((), None, "missing"),
        ((None, None, 4), 8, "missing"),
        ((0,), 8, "not-positive"),
        ((-8, 1), 8, "not-positive"),
        ((8, 8, 0), None, "not-positive"),
        ((8.0, 4.0, 2.0), 1, None),
        ((8.5, 4.25, 2), 1, None),
        ((8.5,), 2, "indivisible"),
        ((True, 1, 1), 1, None),
        (("8", 4, 2), 1, UNKNOWN),
        (("auto", 4, 2), 1, UNKNOWN),
        ((8, "auto", "auto"), 8, UNKNOWN),
        (([8], 4, 2), 1, UNKNOWN),
        ((10**400, 10**400, 10**400), 8, UNKNOWN),
    ],
)
def test_problem(triangle: tuple[object, ...], world: int | None, problem: object) -> None:
    assert facts(*triangle, world_size=world).value("batch_problem") == problem


def test_infinity_is_unknown() -> None:
    found = facts_of(config_of('{"train_batch_size": 1e400}', world_size=8))
    assert {name: found.value(name) for name in ("batch_problem", "batch_nearest")} == {
        "batch_problem": UNKNOWN,
        "batch_nearest": UNKNOWN,
    }


def test_null_is_as_if_it_were_not_written() -> None:
    config = config_of({"train_batch_size": None, "train_micro_batch_size_per_gpu": 2}, world_size=4)
    assert facts_of(config).value("batch") == Triangle(8, 2, 1, None)


@pytest.mark.parametrize(
    ("triangle", "world", "micro", "steps"),
    [
        ((None, 4), None, 4, 1),
        ((None, 4, 2), None, 4, 2),
        ((32, 4), 2, 4, 4),
        ((32, None, 4), 2, 4, 4),
        ((32,), 2, 16, 1),
        ((32,), None, UNKNOWN, 1),
        ((32, 4), None, 4, UNKNOWN),
        ((32, None, 4), None, UNKNOWN, 4),
        (("auto", 4, 2), None, 4, 2),
        (("auto", "auto", 2), None, UNKNOWN, 2),
        (("auto", 4, "auto"), None, 4, UNKNOWN),
    ],
)
def test_micro_batch_and_accumulation(
    triangle: tuple[object, ...], world: int | None, micro: object, steps: object
) -> None:
    found = facts(*triangle, world_size=world)
    assert (found.value("micro_batch"), found.value("accumulation_steps")) == (micro, steps)


@pytest.mark.parametrize(
    ("keys", "world", "result"),
    [
        ({}, 8, 8),
        ({}, None, UNKNOWN),
        ({"sequence_parallel_size": 2}, 8, 4.0),
        ({"sequence_parallel_size": 2}, None, UNKNOWN),
        ({"sequence_parallel_size": 0}, 8, UNKNOWN),
        ({"sequence_parallel_size": -2}, 8, UNKNOWN),
        ({"sequence_parallel_size": "2"}, 8, UNKNOWN),
        ({"sequence_parallel_size": 2, "data_parallel_size": 3}, None, 3),
        ({"sequence_parallel_size": 2, "data_parallel_size": 0}, 8, UNKNOWN),
        ({"data_parallel_size": 3}, 8, 8),
    ],
)
def test_data_parallel_world(keys: dict[str, Any], world: int | None, result: object) -> None:
    found = facts(world_size=world, **keys).value("data_parallel_world")
    assert found == result
    assert type(found) is type(result)


def test_sequence_parallelism_divides_the_batch() -> None:
    keys = {"sequence_parallel_size": 2}
    assert facts(16, 4, 1, world_size=8, **keys).value("batch_problem") is None
    assert facts(32, 4, 1, world_size=8, **keys).value("batch_problem") == "product"
    assert facts(6, 4, 1, **keys).value("batch_problem") is UNKNOWN, "3 processes: 4 x 1 x 1.5"
    negative = facts(8, 2, sequence_parallel_size=1, data_parallel_size=-2)
    assert negative.value("batch_problem") == "indivisible", "2 x -2 x -2 is 8, and refused"


@pytest.mark.parametrize(
    ("triangle", "world", "unit", "words", "nearest"),
    [
        ((18,), 4, 4, "4 GPUs", "16 or 20"),
        ((3,), 4, 4, "4 GPUs", "4"),
        ((30, 4), None, 4, "4 samples per GPU", "28 or 32"),
        ((30, 4), 1, 4, "4 samples per GPU x 1 GPU", "28 or 32"),
        ((100, 8, 3), None, 24, "8 samples per GPU x 3 accumulation steps", "96 or 120"),
        ((18, 2.5), 2, 5, "2.5 samples per GPU x 2 GPUs", "15 or 20"),
        ((18, 2.5), None, 2.5, "2.5 samples per GPU", UNKNOWN),
        ((30, 1234567), None, 1234567, "1234567 samples per GPU", "1234567"),
        ((30, "auto"), 4, UNKNOWN, UNKNOWN, UNKNOWN),
        ((8.5,), None, 1, "1 sample", "8 or 9"),
        ((0.5,), None, 1, "1 sample", "1"),
        ((30, -4), 1, UNKNOWN, UNKNOWN, UNKNOWN),
    ],
)
def test_unit(
    triangle: tuple[object, ...], world: int | None, unit: object, words: object, nearest: object
) -> None:
    found = facts(*triangle, world_size=world)
    assert found.value("batch_unit") == unit
    assert found.value("batch_unit_words") == words
    assert found.value("batch_nearest") == nearest


@pytest.mark.parametrize(
    ("keys", "result"),
    [
        ({}, "fp32"),
        ({"bf16": {"enabled": True}}, "bf16"),
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"fp16": {"enabled": True}}, "fp16"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": True}}, "bf16"),
        ({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, UNKNOWN),
        ({"fp16": {"enabled": "perhaps"}}, UNKNOWN),
    ],
)
def test_precision(keys: dict[str, Any], result: object) -> None:
    assert facts(**keys).value("precision") == result


def test_a_fact_records_what_it_follows_from() -> None:
    found = facts(8).derived("batch_problem")
    world = {"sequence_parallel_size", "data_parallel_size"}
    assert found == Derived(UNKNOWN, frozenset({*NAMES, *world}), frozenset({"world_size"}))
    assert facts(world_size=2).derived("precision").paths == {"bf16.enabled", "fp16.enabled"}
    assert facts(8, world_size=8).derived("batch_problem").missing_context == set()


def test_every_fact_takes_an_empty_file() -> None:
    for world_size in (None, 8):
        for name in FACTS:
            facts(world_size=world_size).value(name)
    with pytest.raises(KeyError):
        facts().value("nonsense")
