"""Writes the table of docs/settings.md from the declared settings and the options of the same name."""

from __future__ import annotations

import re
from pathlib import Path

import click

from dsconf.cli.lint import command
from dsconf.settings.table import KIND_NAMES, SETTINGS

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
_TABLE = re.compile(r"(?<=\n\n)\| key \|.*?(?=\n\n)", re.DOTALL)


def table() -> str:
    """The rows for all settings, as Markdown."""
    options = {
        parameter.name: parameter for parameter in command.params if isinstance(parameter, click.Option)
    }
    rows = ["| key | value | what it does |", "| --- | --- | --- |"]
    for key, setting in SETTINGS.items():
        text = setting.help
        if not text:
            option = options[key.replace("-", "_")]
            text = f"`--{key}`: {(option.help or '').partition('  [')[0]}"
            if isinstance(option.type, click.Choice):
                text += f" {', '.join(option.type.choices)}."
        if setting.path:
            text += " From the folder of the settings file."
        rows.append(f"| `{key}` | {KIND_NAMES[setting.kind]} | {text} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """The page with the table of today."""
    new, count = _TABLE.subn(lambda _: table(), page)
    if count != 1:
        raise ValueError(f"{PAGE.name} should have one table of settings, not {count}")
    return new


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
