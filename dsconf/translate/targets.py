"""What can be written: each target with its writer, looked up by name."""

from __future__ import annotations

from importlib import import_module

from dsconf.formats.writing import Request, Writing
from dsconf.plan import Plan

_WRITERS = {"fsdp2": "fsdp2.write"}
"""By target the module in the rooms of the formats that writes it."""


def write(target: str, plan: Plan, request: Request) -> Writing:
    """Write a Plan as one of `dsconf.translate.TARGETS`."""
    writing: Writing = import_module(f"dsconf.formats.{_WRITERS[target]}").write(plan, request)
    return writing
