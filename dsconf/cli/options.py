"""The options that say what a file can't hold, the same for every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dsconf.config.context import CONSUMERS, Context

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _known_version(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The older version of the history that stands for the one given, None for the newest. Raises BadParameter."""
    if value is None:
        return None
    from dsconf.formats.deepspeed.history import known_version  # only where the option is given
    from dsconf.formats.deepspeed.keys import NEWEST

    try:
        version = known_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return version if version != NEWEST else None


_OPTIONS = (
    click.option(
        "--consumer",
        type=click.Choice(CONSUMERS),
        help="Who reads the file: DeepSpeed itself, or a library that fills it first.",
    ),
    click.option("--world-size", type=click.IntRange(min=1), help="Number of processes, one per GPU."),
    click.option(
        "--deepspeed-version",
        metavar="X.Y.Z",
        callback=_known_version,
        help="The DeepSpeed that will run.  [default: the newest known]",
    ),
)
NAMES = ("consumer", "world_size", "deepspeed_version")


def context_options(command: _Command) -> _Command:
    """Add every context option to a command; `take_context` turns what it got into a Context."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_context(options: dict[str, Any]) -> Context:
    """The Context of a command's options, which are taken out of `options`."""
    return Context(**{name: options.pop(name) for name in NAMES})
