"""Reporters: one module each, all with `render(results) -> str`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from dsconf.lint.finding import Result

FORMATS = ("full", "concise", "json", "github", "sarif")
"""The values of --output-format; each names the module beside this one."""
STATISTICS = "statistics"
"""The reporter that counts by rule instead of showing findings."""


def reporter(name: str) -> Callable[[Sequence[Result]], str]:
    """The reporter of a format, or STATISTICS; only its module is imported."""
    module = {"json": "json_"}.get(name, name)
    render: Callable[[Sequence[Result]], str] = import_module(f"dsconf.lint.report.{module}").render
    return render
