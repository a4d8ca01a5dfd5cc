"""The options that say what a file can't hold, the same for every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dsconf.config.context import CONSUMERS, Context

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--consumer",
        type=click.Choice(CONSUMERS),
        help="Who reads the file: DeepSpeed itself, or a library that fills it first.",
    ),
    click.option("--world-size", type=click.IntRange(min=1), help="Number of processes, one per GPU."),
)
NAMES = ("consumer", "world_size")


def context_options(command: _Command) -> _Command:
    """Add every context option to a command; `take_context` turns what it got into a Context."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_context(options: dict[str, Any]) -> Context:
    """The Context of a command's options, which are taken out of `options`."""
    return Context(**{name: options.pop(name) for name in NAMES})
