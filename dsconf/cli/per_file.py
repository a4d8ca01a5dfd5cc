"""The per-file ignores of a settings file."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

from dsconf.lint.finding import Place, Result
from dsconf.lint.selection import unknown
from dsconf.lint.suppress import RULE, Ignore, finding_of, unused_message
from dsconf.settings.load import Settings, patterns, split_key

Rule = dict[str, Any]


class _Line:
    """One line: a glob, perhaps with a key, and its selectors."""

    def __init__(self, written: str, selectors: Sequence[str]) -> None:
        self.written = written
        self.glob, key = split_key(written)
        self.pattern = patterns([self.glob])
        self.ignores = [Ignore(selector, key) for selector in selectors]
        self.files: set[str] = set()


class PerFile:
    """All lines, and the files that they met. Raises SettingsError."""

    def __init__(self, settings: Settings, every: Sequence[Rule]) -> None:
        self._settings = settings
        self._lines: list[_Line] = []
        for written, selectors in settings.values["per-file-ignores"].items():
            for selector in selectors:
                if fault := unknown(selector, every):
                    raise settings.error(
                        f"per-file-ignores: {fault}", "per-file-ignores", written, element=selector
                    )
            self._lines.append(_Line(written, selectors))

    def ignores(self, path: str) -> list[Ignore]:
        """What is ignored in a file."""
        inside = self._settings.relative(path)
        if inside is None:
            return []
        lines = [line for line in self._lines if line.pattern.match_file(inside)]
        for line in lines:
            line.files.add(inside)
        return [ignore for line in lines for ignore in line.ignores]

    def unused(self, running: Sequence[Rule], every: Sequence[Rule]) -> list[Result]:
        """A finding for each line that suppressed nothing in all the files that it names."""
        rule = next((rule for rule in running if rule["name"] == RULE), None)
        if rule is None:
            return []
        settings, findings = self._settings, []
        for line in self._lines:
            idle = [ignore.selector for ignore in line.ignores if not (ignore.needed or ignore.undecided)]
            if not idle or not self._met_all(line):
                continue
            number = settings.line("per-file-ignores", line.written)
            content = settings.text.splitlines()[number - 1]
            place = Place(settings.file, number, 1, number, len(content) + 1)
            findings.append(finding_of(rule, place, f"{line.written}: {unused_message(idle, every)}"))
        return [Result(settings.file, findings, text=settings.text)] if findings else []

    def _met_all(self, line: _Line) -> bool:
        """Whether every file that the glob names was linted; a glob for any depth is not followed."""
        if not line.files or "/" not in line.glob.rstrip("/") or "**" in line.glob:
            return False
        names = glob.glob(line.glob, root_dir=self._settings.root)  # noqa: PTH207
        return {name.replace(os.sep, "/").removeprefix("./") for name in names} <= line.files
