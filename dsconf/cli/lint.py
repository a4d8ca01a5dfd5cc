"""`dsconf lint`."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import click

from dsconf.cli.options import context_options, take_context
from dsconf.lint.engine import lint_file, lint_text
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules
from dsconf.lint.report import FORMATS, reporter


@click.command("lint", short_help="Find problems in configs.")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--output-format", type=click.Choice(FORMATS), default="full", show_default=True)
@click.option("--fix", is_flag=True, help="Mend what can be mended without changing how the model trains.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--unsafe-fixes", is_flag=True, help="Take fixes too that may change training.")
@context_options
def command(
    paths: tuple[str, ...], output_format: str, fix: bool, diff: bool, unsafe_fixes: bool, **options: Any
) -> None:
    """Find what DeepSpeed will refuse, ignore or silently change in PATHS (JSON files).

    \b
    dsconf lint ds_config.json
    dsconf lint ds_config.json --world-size 8 --consumer trainer
    dsconf lint configs/*.json --output-format concise

    dsconf lint ds_config.json --diff

    Exit status: 0 nothing at warning or above, 1 findings, 2 a file or an option is unusable.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    if unsafe_fixes and not (fix or diff):
        raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
    context = take_context(options)
    rules = load_rules()
    results = [lint_file(path, rules, context) for path in paths]
    if fix or diff:
        from dsconf.cli.fix import fix_files, show_diff  # only where they are asked for

        def again(path: str, text: str) -> Result:
            return lint_text(path, text, rules, context)

        if diff:
            raise SystemExit(show_diff(results, again, unsafe=unsafe_fixes))
        results = fix_files(results, again, unsafe=unsafe_fixes)
    click.echo(reporter(output_format)(results))
    raise SystemExit(exit_status(results))


def exit_status(results: list[Result]) -> int:
    """2 where a file was unusable, 1 where one has a finding at warning or above, else 0."""
    if any(result.unusable for result in results):
        return 2
    serious = ("error", "warning")
    return int(any(finding.severity in serious for result in results for finding in result.findings))
