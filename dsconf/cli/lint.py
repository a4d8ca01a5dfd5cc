"""`dsconf lint`."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import click

from dsconf.cli.options import context_options, take_context
from dsconf.config.context import CONSUMER_NAMES, Context
from dsconf.formats.deepspeed.keys import NEWEST
from dsconf.lint.engine import lint_file
from dsconf.lint.finding import Result, printable
from dsconf.lint.index import load_rules
from dsconf.lint.report import FORMATS, reporter


@click.command("lint", short_help="Find problems in configs.")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--output-format", type=click.Choice(FORMATS), default="full", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr how each file is read, and why.")
@context_options
def command(paths: tuple[str, ...], output_format: str, verbose: bool, **options: Any) -> None:
    """Find what DeepSpeed will refuse, ignore or silently change in PATHS (JSON files).

    \b
    dsconf lint ds_config.json
    dsconf lint ds_config.json --world-size 8 --consumer trainer
    dsconf lint configs/*.json --output-format concise

    Exit status: 0 nothing at warning or above, 1 findings, 2 a file or an option is unusable.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    context = take_context(options)
    rules = load_rules()
    results = [lint_file(path, rules, context) for path in paths]
    if verbose:
        for result in results:
            click.echo(read_as(result, context), err=True)
    click.echo(reporter(output_format)(results))
    raise SystemExit(exit_status(results))


def read_as(result: Result, context: Context) -> str:
    """How a file was read: by whom, and by which DeepSpeed."""
    if result.unusable or result.skipped is not None:
        return f"{printable(result.file)}: not judged"
    if context.consumer is not None:
        reader = f"read by {CONSUMER_NAMES[context.consumer]} (--consumer)"
    elif result.guess is not None:
        reader = f"read by {result.guess.names} (a guess: {result.guess.reason})"
    else:
        reader = "read by anybody (nothing tells who)"
    version = context.deepspeed_version or f"{NEWEST} (the newest known)"
    return f"{printable(result.file)}: {reader}, for DeepSpeed {version}"


def exit_status(results: list[Result]) -> int:
    """2 where a file was unusable, 1 where one has a finding at warning or above, else 0."""
    if any(result.unusable for result in results):
        return 2
    serious = ("error", "warning")
    return int(any(finding.severity in serious for result in results for finding in result.findings))
