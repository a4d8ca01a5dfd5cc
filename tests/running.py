"""Runs the command line in this process, over small projects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from dsconf.cli import main


def dsconf(*args: str) -> Result:
    """`dsconf ARGS`; what is no exit is raised."""
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lint(*args: str) -> list[str]:
    """The findings as `file:line CODE`, in order; the last line is the exit status."""
    result = dsconf("lint", *args, "--output-format", "concise")
    found = []
    for line in result.stdout.splitlines():
        parts = line.split(":", 3)
        if len(parts) == 4 and parts[1].isdigit():
            found.append(f"{parts[0]}:{parts[1]} {parts[3].split()[0]}")
    return [*found, str(result.exit_code)]


def write(files: Mapping[str, str]) -> None:
    """Files of the current folder, by name."""
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
