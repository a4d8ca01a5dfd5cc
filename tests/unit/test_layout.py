"""Sizes of ParallelismConfig: their product is the number of ranks, or what does not divide is said."""

from __future__ import annotations

import math

import pytest

from dsconf.formats.layout import layout_of
from dsconf.plan import Launch, Parallelism, Plan, Sharding


def layout(world: int | None, tensor: int, context: int, group: int | None) -> tuple[int | None, ...]:
    found = layout_of(
        Plan(
            sharding=Sharding(partition="parameters", group=group),
            parallelism=Parallelism(tensor=tensor, context=context),
            launch=Launch(world_size=world),
        )
    )
    assert not found.misfit
    return found[:4]


def misfit(world: int | None, tensor: int, context: int, group: int | None) -> str:
    sharding = Sharding(partition="parameters", group=group)
    parallelism = Parallelism(tensor=tensor, context=context)
    return layout_of(Plan(sharding=sharding, parallelism=parallelism, launch=Launch(world_size=world))).misfit


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((8, 1, 1, None), (1, 1, 8, 1)),
        ((8, 1, 1, 4), (1, 1, 4, 2)),
        ((8, 2, 1, None), (2, 1, 4, 1)),
        ((8, 1, 2, None), (1, 2, 4, 1)),
        ((16, 2, 2, 4), (2, 2, 2, 2)),
        ((4, 1, 4, None), (1, 4, 1, 1)),
    ],
)
def test_the_sizes_multiply_to_the_number_of_ranks(
    given: tuple[int, int, int, int | None], sizes: tuple[int, ...]
) -> None:
    assert layout(*given) == sizes
    assert math.prod(sizes) == given[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((12, 2, 1, 4), "12 ranks don't divide into groups of 8"),
        ((6, 4, 1, None), "6 ranks don't divide into groups of 4"),
        ((2, 4, 1, None), "2 ranks don't divide into groups of 4"),
        ((6, 1, 4, None), "6 ranks don't divide into groups of 4"),
        ((12, 1, 4, 6), "groups of 6 ranks don't divide by context parallelism over 4"),
        ((None, 1, 4, 6), "groups of 6 ranks don't divide by context parallelism over 4"),
    ],
)
def test_ranks_that_do_not_divide_are_said(given: tuple[int | None, int, int, int | None], said: str) -> None:
    assert misfit(*given) == said


def test_without_the_number_of_ranks_only_a_group_is_known() -> None:
    assert layout(None, 1, 2, 8) == (1, 2, 4, None)
    assert layout(None, 2, 1, None) == (2, 1, None, None)
