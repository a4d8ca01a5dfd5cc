"""SARIF 2.1.0 (OASIS), which code scanning services read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from dsconf import __version__
from dsconf.lint.finding import Finding, Fix, Place, Result

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(results: Sequence[Result]) -> str:
    """One log with one run. Columns count code points, as SARIF's `unicodeCodePoints` does."""
    findings = [(finding, result) for result in results for finding in result.findings]
    rules = sorted({(finding.code, finding.rule, finding.url) for finding, _ in findings})
    number = {code: place for place, (code, _, _) in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "dsconf",
                "version": __version__,
                "rules": [
                    {
                        "id": code,
                        "name": name,
                        "shortDescription": {"text": name.replace("-", " ")},
                        "help": {"text": f"dsconf explain {code}"},
                    }
                    for code, name, _ in rules
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"uri": f"file://{quote(os.fsencode(os.getcwd()))}/"}},  # noqa: PTH109
        "results": [_result(finding, result, number[finding.code]) for finding, result in findings],
        "invocations": [
            {
                "executionSuccessful": not any(result.unusable for result in results),
                "toolExecutionNotifications": [
                    {
                        "level": "note",
                        "message": {"text": f"skipped: {result.skipped}"},
                        "locations": [{"physicalLocation": {"artifactLocation": _artifact(result.file)}}],
                    }
                    for result in results
                    if result.skipped is not None
                ],
            }
        ],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(log, indent=2)


def _result(finding: Finding, result: Result, rule: int) -> dict[str, Any]:
    message = finding.message if finding.help is None else f"{finding.message}. Help: {finding.help}"
    found: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": message},
        "locations": [_location(finding.place)],
        "properties": {"key": finding.key, "fails": finding.fails},
    }
    if finding.related:
        found["relatedLocations"] = [
            {**_location(related.place), "id": place, "message": {"text": related.message}}
            for place, related in enumerate(finding.related, start=1)
        ]
    if finding.fix is not None:
        found["fixes"] = [_fix(finding.fix, finding.place.file)]
    return found


def _location(place: Place) -> dict[str, Any]:
    region = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {"physicalLocation": {"artifactLocation": _artifact(place.file), "region": region}}


def _artifact(path: str) -> dict[str, Any]:
    """A relative path from the folder of the run, an absolute one as a URI."""
    shown = quote(os.fsencode(path))
    return {"uri": f"file://{shown}"} if path.startswith("/") else {"uri": shown, "uriBaseId": "ROOT"}


def _fix(fix: Fix, path: str) -> dict[str, Any]:
    replacements = [
        {
            "deletedRegion": {"charOffset": edit.start, "charLength": edit.end - edit.start},
            "insertedContent": {"text": edit.text},
        }
        for edit in fix.edits
    ]
    change = {"artifactLocation": _artifact(path), "replacements": replacements}
    return {"description": {"text": fix.description}, "artifactChanges": [change]}
