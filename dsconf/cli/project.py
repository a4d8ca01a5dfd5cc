"""The files of one run of lint: which rules run over each, and which findings are known or suppressed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dsconf.cli.circumstances import Circumstances, Failed, or_failed
from dsconf.config.context import Context
from dsconf.lint.engine import lint_bytes, lint_file
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules

if TYPE_CHECKING:
    from dsconf.cli.per_file import PerFile
    from dsconf.lint.baseline import Baseline
    from dsconf.settings.load import Settings

Rule = dict[str, Any]


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
        self._circumstances = Circumstances(options)
        self._select = _split(options.pop("select", ()))
        self._ignore = _split(options.pop("ignore", ()))
        self._folders: tuple[str, ...] = options.pop("rules", ())
        self._baseline: str | None = options.pop("baseline", None)
        self._write_baseline: str | None = options.pop("write_baseline", None)
        if self._baseline is not None and self._write_baseline is not None:
            raise click.UsageError("--baseline reads a baseline, and --write-baseline writes it")
        self._own: list[Rule] | None = None
        self._terms: dict[str, Terms] = {}
        self._baselines: dict[str, Baseline] = {}

    def terms(self, path: str) -> Terms:
        """All that holds for a file."""
        settings = self._circumstances.settings(path)
        key = settings.file if settings else ""
        if key not in self._terms:
            self._terms[key] = self._make_terms(path, settings)
        return self._terms[key]

    def excluded(self, folder: str) -> tuple[str, Sequence[str]]:
        """The patterns that leave files out when a folder is searched, after the folder where they begin."""
        settings = self._circumstances.settings(os.path.join(folder, "any"))  # noqa: PTH118
        return (settings.root, settings.values.get("exclude", ())) if settings else ("", ())

    def lint(self, path: str, data: bytes | None = None) -> Result:
        """Lint a file, or data under its name, and take out what its comments and its settings suppress."""
        terms = self.terms(path)
        # Only the command line says of a file that it is a config: settings speak of those that are.
        recognise = self._circumstances.given["consumer"] is None
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
            closed = [self._without_known(result) for result in results]
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

            per_file = or_failed(PerFile, settings, every)
        baseline = None
        if self._write_baseline is None and (file := self._baseline or values.get("baseline")):
            baseline = self._load_baseline(file, None if self._baseline else settings)
        return Terms(settings, self._circumstances.context(path), every, rules, per_file, baseline)

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
        from dsconf.settings.load import shown

        try:
            return [*every, *load_user_rules(shown(folder), every)]
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
                from dsconf.settings.load import shown

                message = f"{shown(file)}: {error}"
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

    def _without_known(self, result: Result) -> Result:
        """The result without what the baseline lists."""
        terms = self.terms(result.file)
        baseline = self._baselines[self._write_baseline] if self._write_baseline else terms.baseline
        if baseline is None:
            return result
        decided = {rule["code"] for rule in terms.rules if rule["name"] not in result.undecided}
        return baseline.apply(result, decided)


def _split(values: Sequence[str]) -> list[str]:
    """The words of lists with commas; an empty list has one empty word, which names nothing."""
    return [
        word
        for value in values
        for word in [part.strip() for part in value.split(",") if part.strip()] or [""]
    ]
