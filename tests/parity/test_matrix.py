"""The parity matrix: what each cell differs by, that its settings act, and that no report claims more than that."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import pytest

from dsconf.formats.deepspeed.notes import NOT_FINITE as NOT_FINITE_NOTE
from dsconf.formats.outcome import FIDELITY
from dsconf.translate.run import Refused

from .bench import NEEDS_DEEPSPEED, Bench
from .compare import Parity, Record
from .matrix import (
    CLIP_NORMS,
    DIMENSIONS,
    EXCLUSIONS,
    NOT_FINITE,
    OLDER_CELLS,
    TIERS,
    Combination,
    cells,
    ci_cells,
    config_of,
    excluded,
    not_finite_at,
    tier_of,
)
from .measure import Measurement, measure, older_deepspeed, promise_of
from .page import FULL, PAGE, settings_of

CELLS = {cell.id: cell for cell in ci_cells()}


# ---- the cells themselves --------------------------------------------------------------------------------------


def possible() -> list[Combination]:
    every = (Combination(*values) for values in product(*DIMENSIONS.values()))
    return [cell for cell in every if excluded(cell._asdict()) is None]


def test_the_matrix_is_large_enough() -> None:
    assert len(ci_cells()) >= 60
    assert len(set(cells(FULL))) == len({cell.id for cell in cells(FULL)}) == FULL >= 200
    assert cells(FULL)[: len(ci_cells())] == ci_cells()


def test_every_pair_of_settings_has_a_cell() -> None:
    def pairs(found: list[Combination]) -> set[Any]:
        return {pair for cell in found for pair in combinations(cell._asdict().items(), 2)}

    assert pairs(list(ci_cells())) == pairs(possible())


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_has_cells(tier: str) -> None:
    assert tier in {tier_of(cell) for cell in ci_cells()}


@pytest.mark.parametrize("exclusion", EXCLUSIONS, ids=lambda exclusion: exclusion.reason)
def test_what_is_left_out_can_not_be_compared(exclusion: Any, tmp_path: Any) -> None:
    """DeepSpeed refuses it, or the report says that it has no effect, or that DeepSpeed does something else."""
    plain = Combination(3, "fp32", 3, "AdamW", "decay", "off", "none", "torch", "float32")
    for values in product(*exclusion.settings.values()):
        cell = plain._replace(**dict(zip(exclusion.settings, values, strict=True)))
        bench = Bench(tmp_path)
        try:
            bench.emit(cell.id, config_of(cell), {}, "")
        except (Refused, AssertionError):
            continue
        items = bench.reports[cell.id].items
        idle = any(item.outcome == "no-effect" for item in items if "offload" in item.key)
        differs = any(
            "does not scale the loss" in item.note for item in items if item.outcome == "approximate"
        )
        assert idle or differs


def test_the_page_holds_these_cells() -> None:
    """docs/parity.md is of the cells that the generator gives: if not, ./dev parity --full writes it anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert [cell.id for cell in cells(FULL) if f"| {settings_of(cell)} |" not in page] == []


# ---- measured ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    """The measurements of all cells, run in one launch a side."""
    return {each.cell.id: each for each in measure(CELLS.values(), tmp_path_factory.mktemp("matrix"))}


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    """The measurements of the cells that an older DeepSpeed is asked about."""
    found = measure(OLDER_CELLS, tmp_path_factory.mktemp("older"), older=True)
    return {each.cell.id: each for each in found}


def needs_deepspeed(test: Any) -> Any:
    for mark in NEEDS_DEEPSPEED:
        test = mark(test)
    return test


def needs_older_deepspeed(test: Any) -> Any:
    missing = older_deepspeed() is None
    return needs_deepspeed(pytest.mark.skipif(missing, reason="needs DSCONF_DEEPSPEEDS")(test))


def check_claim(each: Measurement) -> None:
    """What the report says of the whole holds in the cell."""
    assert each.differences is not None, each.verdict
    assert FIDELITY.index(each.report.overall) <= FIDELITY.index("approximate")
    bounds = promise_of(each)
    for figure in ("loss", "update", "norm", "lr"):
        assert getattr(each.differences, figure) <= getattr(bounds, figure), (each.report.overall, bounds)


def check_activity(each: Measurement) -> None:
    """The rate changes, the norm is above or below the bound, a step is skipped: what is to be seen of the settings."""
    record, cell = each.reference, each.cell
    assert isinstance(record, Record)
    assert len(set(record.lrs)) >= 3
    assert [step for step, skipped in enumerate(record.skipped) if skipped] == (
        [] if not_finite_at(cell) is None else [NOT_FINITE]
    )
    norms = [norm for norm in record.norms if norm is not None and math.isfinite(norm)]
    bound = CLIP_NORMS[cell.clip]
    if norms:  # without ZeRO, DeepSpeed tells none in fp32
        assert cell.clip != "active" or min(norms) > bound
        assert (
            cell.clip != "absent" or cell.accumulation > 1 or max(norms) > bound
        )  # the mean of more has less
        assert cell.clip != "far" or max(norms) < bound
    assert bool(record.scales) == cell.precision.startswith("fp16")


@needs_deepspeed
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_as_close_as_its_tier(measured: dict[str, Measurement], name: str) -> None:
    assert isinstance(measured[name].verdict, Parity), measured[name].verdict


@needs_deepspeed
@pytest.mark.parametrize("name", CELLS)
def test_a_report_claims_no_more_than_its_cell_shows(measured: dict[str, Measurement], name: str) -> None:
    check_claim(measured[name])


@needs_deepspeed
@pytest.mark.parametrize("name", CELLS)
def test_a_report_claims_as_much_as_its_cell_shows(measured: dict[str, Measurement], name: str) -> None:
    """Where no setting rounds or moves memory, the outcome is exact."""
    each = measured[name]
    cell = each.cell
    if (
        tier_of(cell) == "exact"
        and cell.clip == "off"
        and cell.precision != "fp16"
        and cell.offload != "optimizer"
    ):
        assert each.report.overall == "exact"


@needs_deepspeed
@pytest.mark.parametrize("name", CELLS)
def test_every_setting_of_a_cell_acts(measured: dict[str, Measurement], name: str) -> None:
    check_activity(measured[name])


@needs_older_deepspeed
@pytest.mark.parametrize("name", [cell.id for cell in OLDER_CELLS])
def test_an_older_deepspeed(older: dict[str, Measurement], name: str) -> None:
    """Without a bound it does not clip, and the module does not, either; the report tells of the skipped steps."""
    each = older[name]
    assert any(NOT_FINITE_NOTE in item.note for item in each.report.items)
    assert isinstance(each.verdict, Parity), each.verdict
    check_claim(each)
