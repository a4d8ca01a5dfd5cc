"""The parts of docs/peers.md that dsconf itself says, brought up to date in seconds, without the other tools."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .faults import FAULTS
from .losses import LOSSES, translate, translation
from .page import finding_block, findings, workplace

Ask = Callable[[tuple[str, ...], Path], tuple[int, str]]
"""Runs a command in a folder: its exit status, and what it said on stdout and stderr."""


def with_own_parts(page: str, ask: Ask) -> str:
    """The page with what dsconf says today. Raises ValueError where the page has no place for it."""
    for fault in FAULTS:
        with workplace() as folder:
            said = ask(fault.command, folder)[1]
        page = _replaced(page, _block(fault.command), finding_block(fault, said))
        row = re.escape(f"| {fault.number} | {fault.about} | ")
        page = _replaced(page, f"(?<={row})[^|]*(?= \\|)", findings(said))
    for loss in LOSSES:
        with workplace() as folder:
            status, report = ask(translate(loss.file), folder)
            text = (folder / "to_fsdp2" / loss.file).read_text(encoding="utf-8")
        written = f"(?:\n\n`{re.escape(loss.file)}` then:\n\n```yaml\n.*?\n```)?"
        page = _replaced(
            page, _block(translate(loss.file)) + written, translation(loss.file, status, text, report)
        )
    return page


def _block(command: tuple[str, ...]) -> str:
    return f"```console\n\\$ {re.escape(' '.join(command))}\n.*?\n```"


def _replaced(page: str, pattern: str, part: str) -> str:
    page, count = re.subn(pattern, lambda _: part, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has {count} places for what should be there once: {part}")
    return page
