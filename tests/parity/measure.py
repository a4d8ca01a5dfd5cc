"""Measures cells of the parity matrix: what each pair differs by, and what the report of its translation claims."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dsconf.config.context import Context
from dsconf.formats.choices import Numerics
from dsconf.formats.outcome import Outcome
from dsconf.translate.report import Report

from .bench import Bench
from .compare import EXACT, Crash, Differences, Parity, Tolerance, Verdict, judge
from .matrix import OLDER, STEPS, TIERS, Combination, Tier, config_of, not_finite_at, tier_of
from .run import Case, Result, run_cells

_BOUND = re.compile(r"loss within (\d\S*)")
_LOADED = re.compile(r"; loss within (\S+) where the model is loaded in bf16")
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
    pytorch: Verdict | None
    """Of the module with `--numerics pytorch` against the module, without a tolerance; None where it did not run."""

    @property
    def differences(self) -> Differences | None:
        """How far the module is from DeepSpeed; None after a crash."""
        return None if isinstance(self.verdict, Crash) else self.verdict.differences

    @property
    def claim(self) -> tuple[Outcome, str]:
        """The overall outcome of the report, and the condition that it has and this cell does not meet."""
        met = self.cell.loaded == "float32" or not _LOADED.search(self.report.note)
        return self.report.overall, "" if met else "(if loaded in fp32)"

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
    cells: Iterable[Combination], folder: Path, *, older: bool = False, pytorch: bool = False
) -> list[Measurement]:
    """Train each cell with DeepSpeed and as translated (with `pytorch`, for both choices of numerics), and compare.

    With `older`, translate for the older DeepSpeed, and run that; it has to be there.
    """
    todo = list(cells)
    bench = Bench(folder, Context(deepspeed_version=OLDER if older else None))
    kept = {cell: _case(bench, cell, older, "deepspeed") for cell in todo}
    chosen = {cell: _case(bench, cell, older, "pytorch") for cell in todo if pytorch}
    runs = [case.cell(role) for case in kept.values() for role in ("deepspeed", "module")]
    runs += [case.cell("module") for case in chosen.values()]
    records = run_cells(runs, deepspeed=older_deepspeed() if older else None, timeout=3600)
    measured = []
    for cell, case in kept.items():
        reference, candidate = (records[case.cell(role).id] for role in ("deepspeed", "module"))
        other = judge(candidate, records[chosen[cell].cell("module").id], _ANY) if pytorch else None
        verdict = judge(reference, candidate, case.tolerance)
        report = bench.reports[case.id]
        measured.append(Measurement(cell, tier_of(cell, older), report, verdict, reference, other))
    return measured


def _case(bench: Bench, cell: Combination, older: bool, numerics: Numerics) -> Case:
    return bench.case(
        f"{cell.id} {numerics}",
        config_of(cell),
        numerics=numerics,
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
