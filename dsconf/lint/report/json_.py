"""The JSON that dsconf promises to tools: version 1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dsconf.lint.finding import Finding, Fix, Result


def render(results: Sequence[Result]) -> str:
    """One object: findings, how many files were judged, and the skipped ones."""
    report = {
        "version": 1,
        "findings": [as_json(finding) for result in results for finding in result.findings],
        "files": sum(result.skipped is None for result in results),
        "skipped": [{"file": result.file, "reason": result.skipped} for result in results if result.skipped],
    }
    return json.dumps(report, indent=2)


def as_json(finding: Finding) -> dict[str, Any]:
    """One finding in its promised form."""
    place = finding.place
    return {
        "rule": finding.rule,
        "code": finding.code,
        "severity": finding.severity,
        "fails": finding.fails,
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "key": finding.key,
        "message": finding.message,
        "help": finding.help,
        "related": [
            {"file": at.file, "line": at.line, "column": at.column, "message": note}
            for at, note in finding.related
        ],
        "fix": _fix(finding.fix),
        "url": finding.url,
    }


def _fix(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    return {"safe": fix.safe, "description": fix.description, "edits": [edit._asdict() for edit in fix.edits]}
