"""Judge what one side of a parity run did against the other.  Pure Python: needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Parameters = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Record:
    """What one side did in one run: per micro step, per optimizer step, and at the end."""

    losses: Sequence[float]  # one per micro step, the mean over the ranks
    norms: Sequence[float | None]  # before clipping
    lrs: Sequence[float]  # the ones the steps used
    skipped: Sequence[bool]
    start: Parameters  # rank 0's, as loaded
    params: Parameters
    scales: Sequence[float] = ()  # of the loss, in fp16
    moments: float = 0.0  # elements of the optimizer's first moments, over all ranks
    problems: Sequence[str] = ()  # faults the worker itself saw, such as ranks that disagree


PADDING = 0.1
"""The part of the optimizer's state that may be padding of its shards: copies of it are whole multiples."""


@dataclass(frozen=True)
class Tolerance:
    """The largest differences that still count as parity.  Zero asks for bit equality."""

    loss: float = 0.0
    update: float = 0.0
    norm: float = 1e-6
    lr: float = 1e-12
    moments: float = PADDING


EXACT = Tolerance()


@dataclass(frozen=True)
class Differences:
    """How far the candidate is from the reference.

    `loss` is absolute, `norm`, `lr` and `moments` (how many elements the optimizer holds) are relative
    (absolute where the reference is 0), and `update` is |candidate - reference| / |reference - start|
    over all final parameters.
    `faults` are what no tolerance excuses.
    """

    loss: float
    update: float
    norm: float
    lr: float
    moments: float = 0.0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parity:
    """The candidate trained as the reference did."""

    differences: Differences


@dataclass(frozen=True)
class Mismatch:
    """Both sides ran, and the candidate did something else."""

    reasons: tuple[str, ...]
    differences: Differences


@dataclass(frozen=True)
class Crash:
    """A side did not get to the end."""

    side: str
    text: str


Verdict = Parity | Mismatch | Crash


def _gap(reference: float, candidate: float) -> float:
    """Absolute difference, 0 for equal infinities and inf for any other non-finite pair."""
    if reference == candidate:
        return 0.0
    gap = abs(reference - candidate)
    return gap if math.isfinite(gap) else math.inf


def _relative_gap(reference: float, candidate: float) -> float:
    gap = _gap(reference, candidate)
    return gap / abs(reference) if math.isfinite(gap) and reference else gap


def _update(reference: Record, candidate: Record, names: Iterable[str]) -> float:
    """Distance of the final parameters in units of how far the reference moved."""
    missed = moved = 0.0
    for name in names:
        triples = zip(reference.start[name], reference.params[name], candidate.params[name], strict=True)
        for start, want, got in triples:
            missed += (got - want) ** 2
            moved += (want - start) ** 2
    if not math.isfinite(missed) or not math.isfinite(moved):
        return math.inf
    if not moved:
        return math.inf if missed else 0.0
    return math.sqrt(missed / moved)


def _nan_faults(side: str, record: Record) -> list[str]:
    faults = []
    if any(map(math.isnan, record.losses)):
        faults.append(f"{side}: a loss is NaN")
    # A skipped step has no finite norm, and inf or NaN is all the same there.
    steps = zip(record.norms, record.skipped, strict=False)
    if any(norm is not None and math.isnan(norm) and not skipped for norm, skipped in steps):
        faults.append(f"{side}: a norm is NaN on a step that was not skipped")
    if any(map(math.isnan, record.lrs)):
        faults.append(f"{side}: a learning rate is NaN")
    spoilt = [name for name, values in record.params.items() if any(map(math.isnan, values))]
    return faults + [f"{side}: {name} has NaN" for name in spoilt]


def _norm(reference: Record, candidate: Record, faults: list[str]) -> float:
    worst = 0.0
    steps = zip(reference.norms, candidate.norms, reference.skipped, candidate.skipped, strict=False)
    for step, (want, got, *skips) in enumerate(steps):
        if want is None:
            continue
        if got is None:
            faults.append(f"step {step}: no grad norm, where the reference has {want:.6g}")
        elif not (all(skips) and not math.isfinite(want) and not math.isfinite(got)):
            worst = max(worst, _relative_gap(want, got))
    return worst


def compare(reference: Record, candidate: Record) -> Differences:
    """Measure how far `candidate` is from `reference`."""
    faults = [*candidate.problems, *_nan_faults("reference", reference), *_nan_faults("candidate", candidate)]
    for what in ("losses", "norms", "lrs", "skipped"):
        want, got = len(getattr(reference, what)), len(getattr(candidate, what))
        if want != got:
            faults.append(f"{got} {what}, where the reference has {want}")
    for step, (want, got) in enumerate(zip(reference.skipped, candidate.skipped, strict=False)):
        if want != got:
            faults.append(f"step {step}: {'skipped' if got else 'applied'}, unlike the reference")
    if list(reference.scales) != list(candidate.scales):
        faults.append(f"loss scales {candidate.scales}, where the reference has {reference.scales}")
    faults += [f"{name} is missing" for name in reference.params if name not in candidate.params]
    faults += [f"{name} is not in the reference" for name in candidate.params if name not in reference.params]
    norm = _norm(reference, candidate, faults)
    shared = [name for name in reference.params if name in candidate.params]
    sizes = {name: (len(reference.params[name]), len(candidate.params[name])) for name in shared}
    faults += [f"{name} has {b} elements, not {a}" for name, (a, b) in sizes.items() if a != b]
    return Differences(
        loss=max(map(_gap, reference.losses, candidate.losses), default=0.0),
        update=_update(reference, candidate, [name for name, (a, b) in sizes.items() if a == b]),
        norm=norm,
        lr=max(map(_relative_gap, reference.lrs, candidate.lrs), default=0.0),
        moments=_relative_gap(reference.moments, candidate.moments),
        faults=tuple(faults),
    )


def judge(reference: Record | Crash, candidate: Record | Crash, tolerance: Tolerance) -> Verdict:
    """Decide.  A crash of either side is never a mismatch."""
    if isinstance(reference, Crash):
        return reference
    if isinstance(candidate, Crash):
        return candidate
    differences = compare(reference, candidate)
    reasons = list(differences.faults)
    for what in ("loss", "update", "norm", "lr"):
        value, limit = getattr(differences, what), getattr(tolerance, what)
        if value > limit:
            reasons.append(f"{what} differs by {value:.3g}, more than {limit:.3g}")
    if differences.moments > tolerance.moments:
        held, wanted = candidate.moments, reference.moments
        reasons.append(f"{held:g} elements of moments, where the reference has {wanted:g}")
    return Mismatch(tuple(reasons), differences) if reasons else Parity(differences)
