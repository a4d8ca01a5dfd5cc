"""What is wrong with a number where an integer belongs, by who reads it."""

from __future__ import annotations

import pytest

import dsconf.config.environment  # noqa: F401
from dsconf.lint.wrong_value import wrong_value

SIZE = {"type": "int", "way": "integer", "min": 1}
VERSION = {"type": "int", "way": "integer", "values": [1, 2]}


@pytest.mark.parametrize(
    ("spec", "value", "problem", "nearest"),
    [
        (SIZE, 2.0, "fraction", 2),
        (SIZE, 1e8, "fraction", 10**8),
        (SIZE, 2.5, "fraction", 2),
        (SIZE, 0.2, "fraction", 1),
        (SIZE, 0.0, "bounds", None),
        (SIZE, 0, "bounds", None),
        (SIZE, float("inf"), "bounds", None),
        (VERSION, 2.0, "fraction", 2),
        (VERSION, 3.0, "bounds", None),
    ],
)
def test_a_fraction_in_the_environment(
    spec: dict[str, object], value: float, problem: str, nearest: int | None
) -> None:
    found = wrong_value(spec, "environment", value)
    assert found is not None
    assert (found["problem"], found["nearest"]) == (problem, nearest)


@pytest.mark.parametrize("value", [1, 2, "2"])
def test_an_integer_there_is_good(value: object) -> None:
    assert wrong_value(SIZE, "environment", value) is None
