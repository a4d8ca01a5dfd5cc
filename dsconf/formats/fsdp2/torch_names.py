"""Which names of torch a module uses, and since which torch each exists."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

DATA = Path(__file__).with_suffix(".json")
OLDEST = "2.6"
"""The first torch that has FSDP2 under a public name."""
ON_CPU = "2.9"
"""The first torch on which the parity runs hold, on gloo (2.9.1; 2.7.1 sums gradients there instead of averaging)."""


@cache
def _since() -> Mapping[str, str]:
    newer: dict[str, str] = json.loads(DATA.read_text(encoding="utf-8"))["since"]
    return newer


def since(name: str) -> str:
    """The oldest torch that is known to have a name, `OLDEST` or newer."""
    return _since().get(name, OLDEST)


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, to compare it by."""
    return tuple(int(part) for part in version.split(".")[:2])


def exists(name: str, version: str | None) -> bool:
    """Whether a torch of this version, or the newest known one, has the name."""
    return version is None or numbers(since(name)) <= numbers(version)


def used_names(code: str) -> set[str]:
    """The names of torch in a module: imported ones and dotted ones in full, `name(argument)` for keyword arguments.

    Methods of sharded modules stand under their class: `torch.distributed.fsdp.FSDPModule.set_...`.
    """
    tree = ast.parse(code)
    aliases = dict(_aliases(tree))
    found = {full for full in aliases.values() if full.startswith("torch")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            full = _full(node, aliases)
            if full:
                found.add(full)
            elif node.attr.startswith("set_"):
                found.add(f"torch.distributed.fsdp.FSDPModule.{node.attr}")
        elif isinstance(node, ast.Call):
            called = _full(node.func, aliases)
            if called and called != "torch":
                found |= {f"{called}({keyword.arg})" for keyword in node.keywords if keyword.arg}
    return found


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """By name in the module the full name of what is imported from torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    yield (alias.asname, alias.name) if alias.asname else ("torch", "torch")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full(node: ast.expr, aliases: Mapping[str, str]) -> str:
    """The full name that an expression stands for, "" where it is none of torch's."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        above = _full(node.value, aliases)
        return f"{above}.{node.attr}" if above else ""
    return ""
