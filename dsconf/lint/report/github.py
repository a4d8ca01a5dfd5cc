"""Workflow commands that GitHub Actions shows as annotations at the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from dsconf.lint.finding import Finding, Result
from dsconf.lint.report.summary import summary

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def render(results: Sequence[Result]) -> str:
    """One command a finding, then the summary for the log."""
    lines = [_command(finding) for result in results for finding in result.findings]
    return "\n".join([*lines, *summary(results)])


def _command(finding: Finding) -> str:
    place = finding.place
    properties = {
        "file": place.file,
        "line": place.line,
        "endLine": place.end_line,
        "col": place.column,
        "endColumn": place.end_column,
        "title": f"{finding.code} {finding.rule}",
    }
    if place.line != place.end_line:  # columns are of one line there
        del properties["col"], properties["endColumn"]
    shown = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    message = finding.message if finding.help is None else f"{finding.message}\nhelp: {finding.help}"
    return f"::{_LEVELS[finding.severity]} {shown}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
