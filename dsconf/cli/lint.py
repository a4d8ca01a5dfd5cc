"""`dsconf lint`."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Any

import click

from dsconf.cli.options import context_options
from dsconf.cli.project import Project
from dsconf.lint.finding import Result
from dsconf.lint.report import FORMATS, reporter


@click.command("lint", short_help="Find problems in configs.")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--output-format", type=click.Choice(FORMATS), default="full", show_default=True)
@click.option(
    "--select", multiple=True, metavar="RULES", help="Rules to run: codes, beginnings, names, or ALL."
)
@click.option("--ignore", multiple=True, metavar="RULES", help="Rules to leave out.")
@click.option(
    "--rules", multiple=True, metavar="DIR", type=click.Path(), help="A folder with rules of your own."
)
@click.option("--baseline", metavar="FILE", type=click.Path(), help="Hide the findings that FILE lists.")
@click.option("--write-baseline", metavar="FILE", type=click.Path(), help="List all findings in FILE.")
@context_options
def command(paths: tuple[str, ...], output_format: str, **options: Any) -> None:
    """Find what DeepSpeed will refuse, ignore or silently change in PATHS (JSON files).

    \b
    dsconf lint ds_config.json
    dsconf lint ds_config.json --world-size 8 --consumer trainer
    dsconf lint configs/*.json --output-format concise
    dsconf lint configs/*.json --select DS2,DS3 --ignore batch-missing

    Exit status: 0 nothing at warning or above, 1 findings, 2 a file or an option is unusable.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    project = Project(options)
    results = project.close([project.lint(path) for path in paths])
    click.echo(reporter(output_format)(results))
    raise SystemExit(exit_status(results))


def exit_status(results: list[Result]) -> int:
    """2 where a file was unusable, 1 where one has a finding at warning or above, else 0."""
    if any(result.unusable for result in results):
        return 2
    serious = ("error", "warning")
    return int(any(finding.severity in serious for result in results for finding in result.findings))
