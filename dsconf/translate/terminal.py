"""The report of a translation for a terminal."""

from __future__ import annotations

import json

from dsconf.formats.outcome import Item
from dsconf.translate.report import Report


def render(report: Report, *, forced: bool = False) -> str:
    """A heading with the overall outcome, a line per key, then what the user has to do.

    `forced` says that code is written although something is unsupported.
    """
    written = [item for item in report.items if item.written]
    measured = f" ({report.note})" if report.note else ""
    lines = [
        *_assumptions(report),
        f"{report.file}: DeepSpeed -> FSDP2, {len(written)} settings, overall {report.overall}{measured}",
        "",
    ]
    width = min(56, max((len(_label(item)) for item in report.items), default=0))
    lines += [_line(item, width) for item in written]
    unwritten = [item for item in report.items if not item.written]
    if unwritten:
        lines += ["", "Not written, but in force:", *(_line(item, width) for item in unwritten)]
    actions = [f"  {item.key}: {item.action}" for item in report.items if item.action]
    if actions:
        lines += ["", "To do:", *actions]
    if not report.supported:
        without = "The code goes without what is unsupported: it trains something else than the config says."
        none = "No code was written: something is unsupported (--force writes the code without it)."
        lines += ["", without if forced else none]
    return "\n".join(lines)


def _assumptions(report: Report) -> list[str]:
    """What the absence of a key was taken for, where the version of DeepSpeed decides and nobody said it."""
    if report.version_known or not any(
        item.key == "gradient_clipping" and not item.written for item in report.items
    ):
        return []
    newer = "DeepSpeed 0.19.3 or newer, which clips at 1.0 where gradient_clipping is absent"
    return [f"Assumed: {newer} (else --deepspeed-version)"]


def _line(item: Item, width: int) -> str:
    words = "; ".join(part for part in (item.target, item.note) if part)
    return f"  {item.outcome.replace('-', ' '):<18}  {_label(item):<{width}}  {words}".rstrip()


def _label(item: Item) -> str:
    value = json.dumps(item.value, ensure_ascii=False)
    return f"{item.key} {value if len(value) <= 24 else value[:21] + '...'}"
