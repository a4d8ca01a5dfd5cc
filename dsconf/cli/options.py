"""The options that say what a file can't hold, the same for every command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dsconf.config.context import CONSUMERS

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


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
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
    click.option("--gpus-per-node", type=click.IntRange(min=1), help="GPUs of each machine."),
    click.option("--gpu", metavar="NAME", help="Kind of GPU, such as A100 or H100."),
    click.option(
        "--gpu-memory",
        metavar="GIB",
        type=click.FloatRange(min=0, min_open=True),
        help="Memory of each GPU, in GiB, where --gpu leaves it open.",
    ),
    click.option(
        "--host-memory",
        metavar="GIB",
        type=click.FloatRange(min=0, min_open=True),
        help="CPU memory of each machine, in GiB.",
    ),
    click.option(
        "--resume-world-size",
        type=click.IntRange(min=1),
        help="Number of processes that wrote the checkpoint to resume from.",
    ),
    click.option("--model", metavar="FILE", type=click.Path(), help="The model's config.json."),
    click.option(
        "--training-args", metavar="FILE", type=click.Path(), help="TrainingArguments, as JSON or YAML."
    ),
    click.option(
        "--launch-config", metavar="FILE", type=click.Path(), help="The YAML of `accelerate launch`."
    ),
)
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


def _version(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A version of a library as it is written. Raises BadParameter."""
    if value is not None and not _VERSION.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no version: write X.Y.Z")
    return value


_OPTIONS += tuple(
    click.option(f"--{name}-version", metavar="X.Y.Z", callback=_version, help=f"The {name} that will run.")
    for name in ("torch", "accelerate", "transformers")
)
_SETTINGS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        help="A settings file.  [default: the nearest pyproject.toml or dsconf.toml]",
    ),
    click.option("--isolated", is_flag=True, help="Read no settings file."),
)
CONTEXT_NAMES = (
    "consumer", "world_size", "deepspeed_version", "gpus_per_node", "gpu", "gpu_memory", "host_memory",
    "resume_world_size", "model", "training_args", "launch_config",
    "torch_version", "accelerate_version", "transformers_version",
)  # fmt: skip
"""The names of the options that say what a file can't hold."""


def context_options(command: _Command) -> _Command:
    """Add every context option to a command, and those for settings; `Circumstances` takes what it got."""
    for option in reversed((*_OPTIONS, *_SETTINGS)):
        command = option(command)
    return command
