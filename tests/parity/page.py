"""Measures the parity matrix and shows it as a table: `./dev parity` for the cells of the tests, `--full` for more.

--full writes docs/parity.md; with $DSCONF_DEEPSPEEDS, a folder with older versions of DeepSpeed, it has a part about
one of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from dsconf.formats.outcome import FIDELITY

from .compare import Crash, Verdict
from .matrix import (
    DIMENSIONS,
    EXCLUSIONS,
    OLDER,
    OLDER_CELLS,
    STEPS,
    TIERS,
    Combination,
    Exclusion,
    cells,
    ci_cells,
)
from .measure import Measurement, measure, older_deepspeed

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
FULL = 200

INTRODUCTION = """\
# Parity with DeepSpeed

What `dsconf translate` makes of a config is trained beside the real DeepSpeed: same model, same data, {steps} optimizer
steps on 2 ranks (CPU, gloo), with a non-finite loss at one of them. The table says how far the two are apart: **loss**
is the largest difference of a loss, **update** the distance of the final weights in units of how far DeepSpeed moved
them, **norm** and **lr** the largest relative differences of gradient norm and learning rate. 0 means equal bit for
bit. **Overall** is what the report of the translation claims of the config.

Where there is no precision section, a model trains in the dtype that it was loaded in; a claim that holds `if loaded in
fp32` has a wider bound in its note for one that was loaded in bf16. At stage 0 DeepSpeed trains such a model without
fp32 masters, so that updates below the last bit of its weights are lost; the emitted code keeps them.

A cell has a tier, computed from its settings, which says how close it has to be; `tests/parity/matrix.py` holds the
rules, `tests/parity/test_matrix.py` measures the first {ci} cells again, and fails where a report claims more than its
cell shows.

Measured with DeepSpeed {deepspeed} and torch {torch}. Written by `./dev parity --full`.
"""

LEGEND = """\
- **precision**: gradients are added up and reduced in the dtype of the model, as DeepSpeed does by default; `sum32`:
  added up in fp32; `all32`: reduced in fp32, too. fp16 has a dynamic loss scale, or a static one.
- **clip**: `far` is a bound that no norm reaches, `active` one that each norm exceeds, `absent` DeepSpeed's default.
- **kernels**: whether DeepSpeed ran torch's Adam and F.linear (`torch_adam`, `memory_efficient_linear`), or its own.
- **loaded**: the dtype of the model before either side got it.
- **pytorch**: how far the module of `--numerics pytorch` is from the module itself.
"""

FIGURES = ("loss", "update", "norm", "lr")
PYTORCH = ("loss", "update")


def main() -> int:
    """Measure, and print or write; exit status 1 where a cell is not as close as it has to be."""
    parser = argparse.ArgumentParser(description="Measure the parity matrix.")
    parser.add_argument("--full", action="store_true", help=f"{FULL} cells, and write docs/parity.md")
    full = parser.parse_args().full
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(cells(FULL) if full else ci_cells(), Path(folder), pytorch=full)
    older: list[Measurement] = []
    if older_deepspeed() is not None:
        with tempfile.TemporaryDirectory() as folder:
            older = measure(OLDER_CELLS, Path(folder), older=True)
    text = page(measured, older)
    if full:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    failed = [each for each in [*measured, *older] if not each.passed]
    for each in failed:
        print(f"{each.cell.id}: {each.verdict}", file=sys.stderr)
    return 1 if failed else 0


def page(measured: Sequence[Measurement], older: Sequence[Measurement]) -> str:
    """The whole page."""
    introduction = INTRODUCTION.format(
        steps=STEPS,
        ci=len(ci_cells()),
        deepspeed=version("deepspeed"),
        torch=version("torch").partition("+")[0],
    )
    parts = [introduction, "## Summary", _tiers(measured), _claims(measured)]
    parts += ["Not compared:", "\n".join(f"- {_settings(each)}: {each.reason}" for each in EXCLUSIONS)]
    if older:
        parts += [f"## DeepSpeed {OLDER}", f"Translated with `--deepspeed-version {OLDER}`.", _cells(older)]
    parts += ["## Cells", LEGEND, _cells(sorted(measured, key=lambda each: _order(each.cell)))]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _order(cell: Combination) -> tuple[int, ...]:
    return tuple(DIMENSIONS[name].index(value) for name, value in cell._asdict().items())


def settings_of(cell: Combination) -> str:
    """The columns with the settings of a cell."""
    return " | ".join(map(str, cell))


def _settings(exclusion: Exclusion) -> str:
    return ", ".join(f"{name} {' or '.join(map(str, values))}" for name, values in exclusion.settings.items())


def _tiers(measured: Sequence[Measurement]) -> str:
    """How close the cells of each tier have to be, and are."""
    rows = []
    for tier, bounds in TIERS.items():
        found = [each for each in measured if each.tier == tier]
        if found:
            pairs = [
                f"{_number(most)} of {_number(getattr(bounds, name))}" for name, most in _most(found).items()
            ]
            rows.append([tier, str(len(found)), *pairs])
    return _table(["tier", "cells", *(f"largest {name}, of at most" for name in FIGURES)], rows)


def _claims(measured: Sequence[Measurement]) -> str:
    """What the reports claim, and the largest differences beside it."""
    rows = []
    for claim in sorted(
        {each.claim for each in measured}, key=lambda claim: (FIDELITY.index(claim[0]), claim[1])
    ):
        found = [each for each in measured if each.claim == claim]
        rows.append([" ".join(claim).strip(), str(len(found)), *map(_number, _most(found).values())])
    return _table(["overall", "cells", *(f"largest {name}" for name in FIGURES)], rows)


def _most(measured: Sequence[Measurement]) -> dict[str, float]:
    found = [each.differences for each in measured if each.differences]
    return {name: max((getattr(each, name) for each in found), default=float("nan")) for name in FIGURES}


def _cells(measured: Sequence[Measurement]) -> str:
    compared = any(each.pytorch for each in measured)
    rows = []
    for each in measured:
        claim = " ".join(each.claim).strip()
        row = [settings_of(each.cell), each.tier, claim, *_figures(each.verdict, FIGURES)]
        rows.append(row + _figures(each.pytorch, PYTORCH) if each.pytorch else row)
    chosen = [f"pytorch {name}" for name in PYTORCH] if compared else []
    return _table([*DIMENSIONS, "tier", "overall", *FIGURES, *chosen], rows)


def _figures(verdict: Verdict, names: Sequence[str]) -> list[str]:
    if isinstance(verdict, Crash):
        return ["crash"] * len(names)
    return [_number(getattr(verdict.differences, name)) for name in names]


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+")


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
