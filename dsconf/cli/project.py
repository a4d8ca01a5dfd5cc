"""What holds for each file: the command line, and below it the settings file that is nearest to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dsconf.cli.options import CONTEXT_NAMES, take_context
from dsconf.config.context import Context
from dsconf.lint.engine import lint_bytes, lint_file
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules
from dsconf.settings.find import Finder, read

if TYPE_CHECKING:
    from dsconf.cli.per_file import PerFile
    from dsconf.lint.baseline import Baseline
    from dsconf.settings.load import Settings

Rule = dict[str, Any]


class Failed(click.ClickException):
    """A file that an option or a settings file names is unusable."""

    exit_code = 2


class Terms(NamedTuple):
    """What holds for the files with the same settings file."""

    settings: Settings | None
    context: Context
    every: list[Rule]
    """All rules that there are."""
    rules: list[Rule]
    """Those that run."""
    per_file: PerFile | None
    baseline: Baseline | None


class Project:
    """The files of one run. It takes its options out of those of the command; raises BadParameter and Failed."""

    def __init__(self, options: dict[str, Any]) -> None:
        config, self._isolated = options.pop("config"), options.pop("isolated")
        if config is not None and self._isolated:
            raise click.UsageError("--isolated ignores settings files, and --config names one")
        self._given = {name: options.pop(name) for name in CONTEXT_NAMES}
        self._select = _split(options.pop("select", ()))
        self._ignore = _split(options.pop("ignore", ()))
        self._folders: tuple[str, ...] = options.pop("rules", ())
        self._baseline: str | None = options.pop("baseline", None)
        self._write_baseline: str | None = options.pop("write_baseline", None)
        if self._baseline is not None and self._write_baseline is not None:
            raise click.UsageError("--baseline reads a baseline, and --write-baseline writes it")
        self._finder = Finder()
        self._named = self._guarded(read, config) if config is not None else None
        self._own: list[Rule] | None = None
        self._contexts: dict[str, Context] = {}
        self._terms: dict[str, Terms] = {}
        self._baselines: dict[str, Baseline] = {}

    def settings(self, path: str) -> Settings | None:
        """The settings for a file, or for what lies in the same folder."""
        if self._isolated or self._named is not None:
            return self._named
        found: Settings | None = self._guarded(self._finder.find, path)
        return found

    def context(self, path: str) -> Context:
        """The context for a file: what the command line leaves open is as its settings say."""
        settings = self.settings(path)
        key = settings.file if settings else ""
        if key not in self._contexts:
            self._contexts[key] = self._make_context(settings)
        return self._contexts[key]

    def terms(self, path: str) -> Terms:
        """All that holds for a file."""
        settings = self.settings(path)
        key = settings.file if settings else ""
        if key not in self._terms:
            self._terms[key] = self._make_terms(path, settings)
        return self._terms[key]

    def excluded(self, folder: str) -> tuple[str, Sequence[str]]:
        """The patterns that leave files out when a folder is searched, after the folder where they begin."""
        settings = self.settings(os.path.join(folder, "any"))  # noqa: PTH118
        return (settings.root, settings.values.get("exclude", ())) if settings else ("", ())

    def lint(self, path: str, data: bytes | None = None) -> Result:
        """Lint a file, or data under its name, and take out what its comments and its settings suppress."""
        terms = self.terms(path)
        # Only the command line says of a file that it is a config: settings speak of those that are.
        recognise = self._given["consumer"] is None
        if data is None:
            result = lint_file(path, terms.rules, terms.context, recognise=recognise)
        else:
            result = lint_bytes(path, data, terms.rules, terms.context, recognise=recognise)
        return self._without_suppressed(result, terms)

    def _without_suppressed(self, result: Result, terms: Terms) -> Result:
        if not result.documents:
            return result
        ignores = terms.per_file.ignores(result.file) if terms.per_file else []
        if ignores or "dsconf:" in (result.text or ""):
            from dsconf.lint.suppress import suppress

            result = suppress(result, terms.every, terms.rules, ignores)
        return result

    def close(self, results: Sequence[Result]) -> list[Result]:
        """The results of the run: without what baselines list, and with what the settings say in vain."""
        closed = list(results)
        if self._write_baseline is not None:
            self._written(self._write_baseline, results)
        if self._write_baseline is not None or any(terms.baseline for terms in self._terms.values()):
            closed = [self._unknown(result) for result in results]
            closed += [gone for baseline in self._baselines.values() for gone in baseline.gone()]
        for terms in self._terms.values():
            if terms.per_file and terms.settings:
                closed += terms.per_file.unused(terms.rules, terms.every)
        return closed

    def _make_terms(self, path: str, settings: Settings | None) -> Terms:
        if self._own is None:
            self._own = load_rules()
        values = settings.values if settings else {}
        every = self._own
        folders: dict[str, Settings | None] = {os.path.abspath(folder): None for folder in self._folders}  # noqa: PTH100
        for folder in values.get("rules", ()):
            folders.setdefault(os.path.abspath(folder), settings)  # noqa: PTH100
        for folder, source in folders.items():
            every = self._with_user_rules(every, folder, source)
        rules = every
        per_file = None
        if self._select or self._ignore or {"select", "ignore"} & set(values):
            rules = self._chosen(every, settings)
        if settings and values.get("per-file-ignores"):
            from dsconf.cli.per_file import PerFile

            per_file = self._guarded(PerFile, settings, every)
        baseline = None
        if self._write_baseline is None and (file := self._baseline or values.get("baseline")):
            baseline = self._load_baseline(file, None if self._baseline else settings)
        return Terms(settings, self.context(path), every, rules, per_file, baseline)

    def _make_context(self, settings: Settings | None) -> Context:
        try:
            return take_context(self._filled(settings))
        except click.BadParameter as error:
            option = str(error.param_hint).removeprefix("--")
            if settings is None or self._given.get(option.replace("-", "_")) is not None:
                raise
            raise Failed(str(settings.error(f"{option}: {error.message}", option))) from None

    def _filled(self, settings: Settings | None) -> dict[str, Any]:
        """The options of the context, as the settings say where they are not given."""
        options = dict(self._given)
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
                or (name == "gpu_memory" and self._given["gpu"])
            ):
                continue
            try:
                options[name] = parameters[name].process_value(context, settings.values[key])
            except click.BadParameter as error:
                raise click.BadParameter(error.message, param_hint=f"--{key}") from None
        return options

    def _chosen(self, every: list[Rule], settings: Settings | None) -> list[Rule]:
        from dsconf.lint.selection import Choice, unknown

        values = settings.values if settings else {}
        for option, selectors in (("--select", self._select), ("--ignore", self._ignore)):
            for selector in selectors:
                if fault := unknown(selector, every):
                    raise click.BadParameter(fault, param_hint=option)
        for key in ("select", "ignore"):
            for selector in values.get(key, ()):
                if settings and (fault := unknown(selector, every)):
                    raise Failed(str(settings.error(f"{key}: {fault}", key, element=selector)))
        choice = Choice((values.get("select"), values.get("ignore", ())), (self._select, self._ignore))
        return [rule for rule in every if choice.runs(rule)]

    def _with_user_rules(self, every: list[Rule], folder: str, settings: Settings | None) -> list[Rule]:
        from dsconf.lint.compile import RuleError
        from dsconf.lint.user_rules import load_user_rules

        try:
            return [*every, *load_user_rules(_shown(folder), every)]
        except RuleError as error:
            if settings is None:
                raise click.BadParameter(str(error), param_hint="--rules") from None
            raise Failed(str(settings.error(f"rules: {error}", "rules"))) from None

    def _load_baseline(self, file: str, settings: Settings | None) -> Baseline:
        from dsconf.lint.baseline import BaselineError, load_baseline

        path = os.path.abspath(file)  # noqa: PTH100
        if path not in self._baselines:
            try:
                self._baselines[path] = load_baseline(path)
            except BaselineError as error:
                message = f"{_shown(file)}: {error}"
                if settings is None:
                    raise click.BadParameter(message, param_hint="--baseline") from None
                raise Failed(str(settings.error(f"baseline: {message}", "baseline"))) from None
        return self._baselines[path]

    def _written(self, file: str, results: Sequence[Result]) -> None:
        from dsconf.lint.baseline import load_baseline, write_baseline
        from dsconf.lint.report.summary import counted

        try:
            number = write_baseline(file, results)
        except OSError as error:
            raise Failed(f"can't write {file}: {error.strerror}") from None
        click.echo(f"{file}: written, {counted(number, 'problem')}", err=True)
        self._baselines[file] = load_baseline(file)

    def _unknown(self, result: Result) -> Result:
        """The result without what the baseline lists."""
        terms = self.terms(result.file)
        baseline = self._baselines[self._write_baseline] if self._write_baseline else terms.baseline
        if baseline is None:
            return result
        decided = {rule["code"] for rule in terms.rules if rule["name"] not in result.undecided}
        return baseline.apply(result, decided)

    def _guarded(self, function: Any, *arguments: Any) -> Any:
        """The value of a function that raises ValueError with a message for people."""
        try:
            return function(*arguments)
        except ValueError as error:
            raise Failed(str(error)) from None


def _split(values: Sequence[str]) -> list[str]:
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def _shown(path: str) -> str:
    """The path from the current folder where it lies below."""
    here = os.path.relpath(path)
    return path if here.startswith("..") else here
