"""Applies fixes to a text, one after the other, until no rule has any more to offer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from dsconf.document.edit import apply
from dsconf.lint.finding import Finding, Result

Lint = Callable[[str, str], Result]
"""Lints a text, given the path of its file."""
_MOST = 1000
"""Fixes in one file."""


class Mended(NamedTuple):
    """A text after its fixes."""

    text: str
    result: Result
    """What lint says of it now."""
    fixed: int
    """How many problems are gone."""


def mend(result: Result, lint: Lint, *, unsafe: bool) -> Mended:
    """Apply the safe fixes of a file that was linted, and where `unsafe` the others too.

    Each is applied alone, and the file linted again: one fix may make another one needless. A fix after which its
    finding stays, or the file has more errors, is left out.
    """
    text, refused = result.text or "", set[tuple[str, str, str]]()
    fixed = 0
    for _ in range(_MOST):
        finding = next(
            (each for each in result.findings if _wanted(each, unsafe) and _name(each) not in refused), None
        )
        if finding is None or finding.fix is None:
            break
        changed = apply(text, finding.fix.edits)
        after = lint(result.file, changed)
        if _better(after, result, finding):
            fixed += (_names(result) - _names(after)).total()
            text, result = changed, after
            refused.clear()  # what did not help before may help now
        else:
            refused.add(_name(finding))
    return Mended(text, result, fixed)


def _wanted(finding: Finding, unsafe: bool) -> bool:
    return finding.fix is not None and (unsafe or finding.fix.safe)


def _name(finding: Finding) -> tuple[str, str, str]:
    return finding.code, finding.key, finding.message


def _names(result: Result) -> Counter[tuple[str, str, str]]:
    return Counter(map(_name, result.findings))


def _better(after: Result, before: Result, finding: Finding) -> bool:
    if after.unusable or after.skipped:
        return False
    gone = _names(after)[_name(finding)] < _names(before)[_name(finding)]
    return gone and _errors(after) <= _errors(before)


def _errors(result: Result) -> int:
    return sum(each.severity == "error" for each in result.findings)
