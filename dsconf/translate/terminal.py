"""The report of a translation for a terminal."""

from __future__ import annotations

import json

from dsconf.formats.deepspeed.keys import NEWEST
from dsconf.formats.outcome import Item
from dsconf.translate.names import title
from dsconf.translate.report import Report


def render(report: Report, *, forced: bool = False) -> str:
    """A heading with the overall outcome, a line per key, then what the user has to do.

    `forced` says that code is written although something is unsupported.
    """
    written = [item for item in report.items if item.written]
    measured = f" ({report.note})" if report.note else ""
    waiting = f", {report.waiting}" if report.waiting else ""
    needs = f" ({report.needs})" if report.needs else ""
    target = f"{title(report.target)}{needs}"
    source = title(report.source)
    if report.source == "deepspeed":
        source += f" {report.version or NEWEST}"
    lines = [
        *(f"Assumed: {what}" for what in report.assumed),
        f"{report.file} ({source}) -> {target}: {len(written)} settings, overall {report.overall}{measured}{waiting}",
        *([f"Sharded one by one: {report.blocks.line}"] if report.blocks.line else []),
        "",
    ]
    width = min(56, max((len(_label(item)) for item in report.items), default=0))
    lines += [_line(item, width) for item in written]
    unwritten = [item for item in report.items if not item.written]
    if unwritten:
        lines += ["", "Not written, but in force:", *(_line(item, width) for item in unwritten)]
    if report.other_numerics:
        lines += ["", report.other_numerics]
    actions = [f"  {item.key}: {item.action}" for item in report.items if item.action]
    if actions:
        lines += ["", "To do:", *actions]
    if not report.supported:
        lines += ["", report.missing(forced=forced)]
    return "\n".join(lines)


def _line(item: Item, width: int) -> str:
    words = "; ".join(part for part in (item.target, item.note) if part)
    return f"  {item.outcome.replace('-', ' '):<18}  {_label(item):<{width}}  {words}".rstrip()


def _label(item: Item) -> str:
    value = json.dumps(item.value, ensure_ascii=False)
    return f"{item.key} {value if len(value) <= 24 else value[:21] + '...'}"
