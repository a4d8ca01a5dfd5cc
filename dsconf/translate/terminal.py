"""The report of a translation for a terminal."""

from __future__ import annotations

import json

from dsconf.formats.outcome import Item
from dsconf.translate.report import Report


def render(report: Report) -> str:
    """A heading with the overall outcome, a line per key, then what the user has to do."""
    written = [item for item in report.items if item.written]
    measured = f" ({report.note})" if report.note else ""
    lines = [
        f"{report.file}: DeepSpeed -> FSDP2, {len(written)} settings, overall {report.overall}{measured}",
        "",
    ]
    width = max((len(_label(item)) for item in report.items), default=0)
    for item in report.items:
        words = "; ".join(part for part in (item.target, item.note) if part)
        lines.append(f"  {item.outcome:<18}  {_label(item):<{min(width, 56)}}  {words}".rstrip())
    actions = [f"  {item.key}: {item.action}" for item in report.items if item.action]
    if actions:
        lines += ["", "To do:", *actions]
    if not report.supported:
        lines += ["", "No code was written: something is unsupported (--force writes the code without it)."]
    return "\n".join(lines)


def _label(item: Item) -> str:
    value = json.dumps(item.value, ensure_ascii=False)
    return f"{item.key} {value if len(value) <= 24 else value[:21] + '...'}"
