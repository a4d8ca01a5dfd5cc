"""The report of a translation in Markdown, for a pull request."""

from __future__ import annotations

import json

from dsconf.formats.outcome import Item
from dsconf.translate.names import title
from dsconf.translate.report import Report


def render_markdown(report: Report, *, forced: bool = False) -> str:
    """A heading, what is to do as a list of boxes, and a table of settings; those without effect are folded away.

    `forced` says that code is written although something is unsupported.
    """
    measured = f": {report.note}" if report.note else ""
    shown = [item for item in report.items if item.outcome != "no-effect"]
    silent = [item for item in report.items if item.outcome == "no-effect"]
    target = title(report.target)
    head = (f"| setting | value | outcome | {target} | |", "| --- | --- | --- | --- | --- |")
    lines = [f"### {_plain(report.file)}: {title(report.source)} to {target}, {report.overall}", ""]
    waiting = f", with {report.waiting}" if report.waiting else ""
    lines += [f"Overall **{report.overall}**{waiting}{measured}.", ""]
    if report.blocks.line:
        lines += [f"Sharded one by one: {_plain(report.blocks.line)}.", ""]
    lines += [line for what in report.assumed for line in (f"Assumed: {what}.", "")]
    if not report.supported:
        lines += [f"**{report.missing(forced=forced)}**", ""]
    todo = [f"- [ ] `{_plain(item.key)}`: {_plain(item.action)}" for item in report.items if item.action]
    if todo:
        lines += ["To do:", "", *todo, ""]
    lines += [*head, *map(_row, shown)]
    if silent:
        lines += ["", f"<details><summary>{len(silent)} settings without effect</summary>", "", *head]
        lines += [*map(_row, silent), "", "</details>"]
    if report.other_numerics:
        lines += ["", report.other_numerics]
    return "\n".join(lines) + "\n"


def _row(item: Item) -> str:
    value = json.dumps(item.value, ensure_ascii=False)
    value = f"`{_plain(value)}`" if item.written else "not written"
    target = f"`{_plain(item.target)}`" if item.target else ""
    return f"| `{_plain(item.key)}` | {value} | {item.outcome} | {target} | {_plain(item.note)} |"


def _plain(text: str) -> str:
    """Text that neither ends a cell nor a code span."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
