"""One problem a line, in the form that editors and grep parse."""

from __future__ import annotations

from collections.abc import Sequence

from dsconf.lint.finding import Result, printable
from dsconf.lint.report.summary import fix_mark, summary


def render(results: Sequence[Result]) -> str:
    """`file:line:column: CODE severity: message` for each finding, then the summary."""
    lines = []
    for result in results:
        for finding in result.findings:
            place = finding.place
            where = f"{printable(place.file)}:{place.line}:{place.column}"
            lines.append(f"{where}: {finding.code} {finding.severity}: {finding.message}{fix_mark(finding)}")
    return "\n".join([*lines, *summary(results)])
