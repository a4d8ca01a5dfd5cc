"""The options that say what a file can't hold, the same for every command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dsconf.config.context import CONSUMERS, Context, Gpu

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
_PLAIN = (
    "consumer", "world_size", "deepspeed_version", "gpus_per_node", "host_memory", "resume_world_size", "torch_version",
    "accelerate_version", "transformers_version",
)  # fmt: skip
"""Options that are a field of the Context as they are given."""


def context_options(command: _Command) -> _Command:
    """Add every context option to a command, and those for settings; `Circumstances` takes what it got."""
    for option in reversed((*_OPTIONS, *_SETTINGS)):
        command = option(command)
    return command


def take_context(options: dict[str, Any]) -> Context:
    """The Context of the options that CONTEXT_NAMES lists, taken out of `options`. Raises BadParameter."""
    context = Context(**{name: options.pop(name) for name in _PLAIN})
    gpu, memory = options.pop("gpu"), options.pop("gpu_memory")
    files = {name: options.pop(name) for name in ("model", "training_args", "launch_config")}
    if gpu is not None:
        from dsconf.config.gpus import gpu_named

        try:
            context = context._replace(gpu=gpu_named(gpu, memory))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--gpu") from None
    elif memory is not None:
        context = context._replace(gpu=Gpu(f"GPU of {memory:g} GiB", memory, None))
    return _with_files(context, files) if any(files.values()) else context


def _with_files(context: Context, files: dict[str, str | None]) -> Context:
    """The Context with what the files that options name say of it. Raises BadParameter."""
    from dsconf.cli.files import load_launch, load_model, load_training_args  # only where one is given

    model, training_args, launch_config = files["model"], files["training_args"], files["launch_config"]
    if model is not None:
        context = context._replace(model=load_model(model))
    if training_args is not None:
        context = context._replace(training_args=load_training_args(training_args))
    if launch_config is not None:
        launch = load_launch(launch_config)
        context = context._replace(launch=launch, world_size=context.world_size or launch.num_processes)
    return context
