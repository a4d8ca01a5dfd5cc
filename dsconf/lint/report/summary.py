"""The last lines that a person reads: how much was found, and what could not be judged."""

from __future__ import annotations

from collections.abc import Sequence

from dsconf.config.context import OPTIONS
from dsconf.lint.finding import Finding, Result, printable

_NAMED = 3
"""So many files skipped for one reason are named."""


def counted(number: int, noun: str) -> str:
    """`3 errors`, `1 error`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def fix_mark(finding: Finding) -> str:
    """What stands behind the message of a finding that `--fix` removes."""
    return "   [*]" if finding.fix is not None and finding.fix.safe else ""


def _fixable(findings: Sequence[Finding]) -> str:
    safe = sum(finding.fix is not None and finding.fix.safe for finding in findings)
    unsafe = sum(finding.fix is not None and not finding.fix.safe for finding in findings)
    changes = f"{'it' if unsafe == 1 else 'they'} may change training"
    if safe and unsafe:
        return f": {safe} fixable with --fix [*], {unsafe} more with --unsafe-fixes ({changes})"
    if safe:
        return f": {safe} fixable with --fix [*]"
    return f": {unsafe} fixable with --fix --unsafe-fixes ({changes})" if unsafe else ""


def summary(results: Sequence[Result]) -> list[str]:
    """The closing lines for all files together."""
    findings = [finding for result in results for finding in result.findings]
    levels = [
        counted(number, level) if level != "info" else f"{number} info"
        for level in ("error", "warning", "info")
        if (number := sum(finding.severity == level for finding in findings))
    ]
    read = [result for result in results if result.skipped is None]
    files = counted(len(read), "file")
    lines = _skipped(results)
    fixed = sum(result.fixed for result in results)
    if fixed:
        lines.append(f"Fixed {counted(fixed, 'problem')}.")
    if findings:
        found = f"Found {counted(len(findings), 'problem')} ({', '.join(levels)}) in {files}"
        lines.append(f"{found}{_fixable(findings)}.")
    elif read:
        lines.append(f"No problems found in {files}.")
    if known := sum(result.known for result in results):
        lines.append(f"{counted(known, 'problem')} known from the baseline.")
    if stale := sum(result.stale for result in results):
        lines.append(f"{counted(stale, 'problem')} of the baseline no longer found: write it again.")
    missing: dict[str, list[str]] = {}
    for result in results:
        for rule, field in result.missing_context:
            rules = missing.setdefault(OPTIONS[field], [])
            if rule not in rules:
                rules.append(rule)
    if missing:
        parts = [f"{', '.join(rules)} ({option})" for option, rules in sorted(missing.items())]
        lines.append(f"Not checked without more context: {'; '.join(parts)}.")
    return lines


def _skipped(results: Sequence[Result]) -> list[str]:
    """A line for each skipped file; for many of them, as a hook names them, a line for each reason."""
    files: dict[str, list[str]] = {}
    for result in results:
        if result.skipped is not None:
            files.setdefault(result.skipped, []).append(result.file)
    lines = []
    for reason, names in files.items():
        if len(names) > _NAMED:
            lines.append(f"{len(names)} files skipped, {reason}")
        else:
            lines += [f"{printable(name)}: skipped, {reason}" for name in names]
    return lines
