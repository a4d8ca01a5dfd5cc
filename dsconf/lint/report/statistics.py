"""How often each rule found something, the most frequent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dsconf.lint.finding import Result
from dsconf.lint.report.summary import summary


def render(results: Sequence[Result]) -> str:
    """One line a rule: count, code, severity, name; then the summary."""
    counts = Counter(
        (finding.code, finding.severity, finding.rule) for result in results for finding in result.findings
    )
    width = len(str(max(counts.values(), default=0)))
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"{count:>{width}}  {code}  {severity:<7}  {rule}" for (code, severity, rule), count in rows]
    return "\n".join([*lines, *summary(results)])
