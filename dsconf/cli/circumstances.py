"""What holds for each file: the command line, and below it the settings file that is nearest to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from dsconf.cli.options import CONTEXT_NAMES
from dsconf.config.context import Context, Gpu
from dsconf.document.node import Document
from dsconf.settings.find import Finder, read

if TYPE_CHECKING:
    from dsconf.settings.load import Settings

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")

_PLAIN = (
    "consumer", "world_size", "deepspeed_version", "gpus_per_node", "host_memory", "resume_world_size", "torch_version",
    "accelerate_version", "transformers_version",
)  # fmt: skip
"""Options that are a field of the Context as they are given."""


class Failed(click.ClickException):
    """A file that an option or a settings file names is unusable."""

    exit_code = 2


def or_failed(
    function: Callable[_Arguments, _Value], *arguments: _Arguments.args, **options: _Arguments.kwargs
) -> _Value:
    """The value of a function whose ValueError has a message for people, which becomes Failed."""
    try:
        return function(*arguments, **options)
    except ValueError as error:
        raise Failed(str(error)) from None


class Circumstances:
    """Settings and context of each file. It takes its options out of those of the command.

    Raises BadParameter and Failed.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        config, self._isolated = options.pop("config"), options.pop("isolated")
        if config is not None and self._isolated:
            raise click.UsageError("--isolated ignores settings files, and --config names one")
        self.given = {name: options.pop(name) for name in CONTEXT_NAMES}
        """The options of the context, None where they are not given."""
        self._finder = Finder()
        self._named = or_failed(read, config) if config is not None else None
        self._contexts: dict[str, Context] = {}

    def settings(self, path: str) -> Settings | None:
        """The settings for a file, or for what lies in the same folder."""
        if self._isolated or self._named is not None:
            return self._named
        found: Settings | None = or_failed(self._finder.find, path)
        return found

    def context(self, path: str) -> Context:
        """The context for a file: what the command line leaves open is as its settings say."""
        settings = self.settings(path)
        key = settings.file if settings else ""
        if key not in self._contexts:
            self._contexts[key] = self._make_context(settings)
        return self._contexts[key]

    def _make_context(self, settings: Settings | None) -> Context:
        try:
            return take_context(self._filled(settings))
        except click.BadParameter as error:
            option = str(error.param_hint).removeprefix("--")
            if settings is None or self.given.get(option.replace("-", "_")) is not None:
                raise
            raise Failed(str(settings.error(f"{option}: {error.message}", option))) from None

    def _filled(self, settings: Settings | None) -> dict[str, Any]:
        """The options of the context, as the settings say where they are not given."""
        options = dict(self.given)
        if settings is None:
            return options
        context = click.get_current_context()
        parameters = {parameter.name: parameter for parameter in context.command.params}
        for name, value in options.items():
            key = name.replace("_", "-")
            # A GPU that is given has its own memory.
            if (
                value is not None
                or key not in settings.values
                or (name == "gpu_memory" and self.given["gpu"])
            ):
                continue
            try:
                options[name] = parameters[name].process_value(context, settings.values[key])
            except click.BadParameter as error:
                raise click.BadParameter(error.message, param_hint=f"--{key}") from None
        return options


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
        context = context._replace(model=load_model(model, _load_yaml))
    if training_args is not None:
        context = context._replace(training_args=load_training_args(training_args, _load_yaml))
    if launch_config is not None:
        launch = load_launch(launch_config, _load_yaml, _scan_yaml)
        context = context._replace(launch=launch, world_size=context.world_size or launch.num_processes)
    return context


def _scan_yaml(path: str, text: str) -> Document:
    from dsconf.document.yaml_reader import scan_yaml

    return scan_yaml(path, text)


def _load_yaml(text: str) -> Any:
    from dsconf.document.yaml_reader import load_yaml  # ruamel.yaml takes its time

    return load_yaml(text)
