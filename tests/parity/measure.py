"""Measures cells of the parity matrix: what each pair differs by, and what the report of its translation claims."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dsconf.translate.report import Report

from .bench import Bench, Translator, translator
from .compare import EXACT, Crash, Differences, Parity, Tolerance, Verdict, judge
from .matrix import OLDER, STEPS, TIERS, Combination, Tier, config_of, not_finite_at, tier_of
from .run import Case, Result, run_cells

VARIANTS: Mapping[str, Translator] = {}
"""Other translations, by the title of their column: each is compared with the module of the usual translation."""

_BOUND = re.compile(r"loss within (\d\S*)")
_LOADED = re.compile(r"\(of one loaded in bf16: loss within (\S+)\)")
_ANY = Tolerance(*[float("inf")] * 4)


class Measurement(NamedTuple):
    """One cell, measured."""

    cell: Combination
    tier: Tier
    report: Report
    verdict: Verdict
    """Of the module against DeepSpeed, within the tolerance of the cell's tier."""
    reference: Result
    """What DeepSpeed did."""
    variants: Mapping[str, Verdict]
    """Of the modules of other translations against the module, by title; no tolerance."""

    @property
    def differences(self) -> Differences | None:
        """How far the module is from DeepSpeed; None after a crash."""
        return None if isinstance(self.verdict, Crash) else self.verdict.differences

    @property
    def passed(self) -> bool:
        """Whether the cell is as close as its tier wants."""
        return isinstance(self.verdict, Parity)


def older_deepspeed() -> Path | None:
    """The folder with the older version among those of $DSCONF_DEEPSPEEDS; None without it."""
    folder = os.environ.get("DSCONF_DEEPSPEEDS")
    package = Path(folder) / OLDER if folder else None
    return package if package is not None and (package / "deepspeed").is_dir() else None


def measure(
    cells: Iterable[Combination],
    folder: Path,
    *,
    older: bool = False,
    variants: Mapping[str, Translator] = VARIANTS,
) -> list[Measurement]:
    """Train each cell with DeepSpeed and with its module (and with those of `variants`), and compare them.

    With `older`, translate for the older DeepSpeed, and run that; it has to be there.
    """
    todo = list(cells)
    bench = Bench(folder, translator(deepspeed_version=OLDER if older else None))
    cases = [_case(bench, cell, older) for cell in todo]
    others = {title: _bench(folder / title.replace(" ", "-"), how) for title, how in variants.items()}
    twins = {title: [_case(other, cell, older) for cell in todo] for title, other in others.items()}
    runs = [case.cell(role) for case in cases for role in ("deepspeed", "module")]
    runs += [twin.cell("module", title) for title, made in twins.items() for twin in made]
    records = run_cells(runs, deepspeed=older_deepspeed() if older else None, timeout=3600)
    measured = []
    for number, (cell, case) in enumerate(zip(todo, cases, strict=True)):
        reference, candidate = (records[case.cell(role).id] for role in ("deepspeed", "module"))
        compared = {
            title: judge(candidate, records[made[number].cell("module", title).id], _ANY)
            for title, made in twins.items()
        }
        verdict = judge(reference, candidate, case.tolerance)
        measured.append(
            Measurement(cell, tier_of(cell, older), bench.reports[cell.id], verdict, reference, compared)
        )
    return measured


def _bench(folder: Path, how: Translator) -> Bench:
    folder.mkdir()
    return Bench(folder, how)


def _case(bench: Bench, cell: Combination, older: bool) -> Case:
    return bench.case(
        cell.id,
        config_of(cell),
        exact=False,  # the config says itself what DeepSpeed runs
        steps=STEPS,
        inf_at=not_finite_at(cell, older),
        load_dtype=cell.loaded,
        tolerance=TIERS[tier_of(cell, older)],
    )


def promise_of(each: Measurement) -> Tolerance:
    """The bounds that the report of a cell names for its overall outcome; the others are those of the tier."""
    report = each.report
    loaded = _LOADED.search(report.note) if each.cell.loaded == "bfloat16" else None
    if loaded:
        return replace(TIERS[each.tier], loss=float(loaded[1]))
    if report.overall == "exact":
        return EXACT
    named = _BOUND.findall(" ".join([_LOADED.sub("", report.note), *(item.note for item in report.items)]))
    assert named or report.overall == "approximate", f"{report.overall}, and no bound: {report.note}"
    return replace(TIERS[each.tier], loss=max(map(float, named))) if named else TIERS[each.tier]
