"""`dsconf lint`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from dsconf.cli.options import context_options
from dsconf.cli.project import Project
from dsconf.config.context import CONSUMER_NAMES, MEASURED, Context
from dsconf.document.source import Unusable
from dsconf.formats.deepspeed.keys import NEWEST
from dsconf.lint.finding import Result, printable
from dsconf.lint.report import FORMATS, STATISTICS, reporter


@click.command("lint", short_help="Find problems in configs.")
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True))
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    help="[default: full, github where GITHUB_ACTIONS is set]",
)
@click.option("--statistics", is_flag=True, help="Count the findings by rule.")
@click.option("--show-files", is_flag=True, help="List the files that would be linted, and stop.")
@click.option("--stdin-filename", metavar="NAME", help="The name that reports give to what is read from -.")
@click.option(
    "--select", multiple=True, metavar="RULES", help="Rules to run: codes, beginnings, names, or ALL."
)
@click.option("--ignore", multiple=True, metavar="RULES", help="Rules to leave out.")
@click.option(
    "--rules", multiple=True, metavar="DIR", type=click.Path(), help="A folder with rules of your own."
)
@click.option("--baseline", metavar="FILE", type=click.Path(), help="Hide the findings that FILE lists.")
@click.option("--write-baseline", metavar="FILE", type=click.Path(), help="List all findings in FILE.")
@click.option("--fix", is_flag=True, help="Mend what can be mended without changing how the model trains.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--unsafe-fixes", is_flag=True, help="Take fixes too that may change training.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr how each file is read, and why.")
@context_options
def command(
    paths: tuple[str, ...],
    output_format: str | None,
    statistics: bool,
    show_files: bool,
    stdin_filename: str | None,
    fix: bool,
    diff: bool,
    unsafe_fixes: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find what DeepSpeed, Accelerate or Trainer will refuse, ignore or silently change in PATHS.

    PATHS are configs in JSON or YAML, files that hold some (Python, Markdown, shell), folders to search for configs, or
    - for standard input; none stand for the present folder.

    \b
    dsconf lint ds_config.json
    dsconf lint ds_config.json --world-size 8 --consumer trainer
    dsconf lint accelerate.yaml --model config.json
    dsconf lint configs/ --output-format concise
    dsconf lint configs/ --select DS2,DS3 --ignore batch-missing
    dsconf lint ds_config.json --diff
    dsconf lint - < ds_config.json

    Exit status: 0 nothing at warning or above, 1 findings, 2 a file or an option is unusable.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8
    if unsafe_fixes and not (fix or diff):
        raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
    project = Project(options)
    files = _files(paths or (".",), project)
    if show_files:
        click.echo("\n".join(files))
        return
    if (fix or diff) and "-" in files:
        raise click.UsageError("--fix and --diff need files, not standard input")
    results = [
        project.lint(path)
        if path != "-"
        else project.lint(stdin_filename or "<stdin>", sys.stdin.buffer.read())
        for path in files
    ]
    if fix or diff:
        from dsconf.cli.fix import fix_files, show_diff  # only where they are asked for

        def again(path: str, text: str) -> Result:
            return project.lint(path, text.encode())

        if diff:
            raise SystemExit(show_diff(results, again, unsafe=unsafe_fixes))
        results = fix_files(results, again, unsafe=unsafe_fixes)
    if verbose:
        for result in results:
            click.echo(read_as(result, project.terms(result.file).context), err=True)
    results = project.close(results)
    name = output_format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "full")
    click.echo(reporter(STATISTICS if statistics else name)(results))
    raise SystemExit(exit_status(results))


def _files(paths: tuple[str, ...], project: Project) -> list[str]:
    """The files that PATHS stand for. Raises UsageError where a folder holds none."""
    if not any(os.path.isdir(path) for path in paths):  # noqa: PTH112
        return list(dict.fromkeys(paths))
    from dsconf.lint.discover import discover  # only a folder needs it

    try:
        found = discover(paths, project.excluded)
    except Unusable as problem:
        raise click.UsageError(problem.message) from None
    if found.empty:
        raise click.UsageError(
            f"no DeepSpeed config in {', '.join(found.empty)} (name a file to lint it anyway)"
        )
    return found.files


def read_as(result: Result, context: Context) -> str:
    """How a file was read: by whom, and by which DeepSpeed."""
    if result.unusable or result.skipped is not None:
        return f"{printable(result.file)}: not judged"
    if context.consumer is not None:
        reader = f"read by {CONSUMER_NAMES[context.consumer]} (as --consumer or the settings say)"
    elif result.guess is not None:
        reader = f"read by {result.guess.names} (a guess: {result.guess.reason})"
    else:
        reader = "read by anybody (nothing tells who)"
    version = context.deepspeed_version or f"{NEWEST} (the newest known)"
    others = [
        f"{name} {wanted} (what the rules say of it was measured with {measured})"
        for name, measured in MEASURED.items()
        if (wanted := context.known(f"{name}_version")) not in (None, measured)
    ]
    return ", ".join([f"{printable(result.file)}: {reader}", f"for DeepSpeed {version}", *others])


def exit_status(results: list[Result]) -> int:
    """2 where a file was unusable, 1 where one has a finding at warning or above, else 0."""
    if any(result.unusable for result in results):
        return 2
    serious = ("error", "warning")
    return int(any(finding.severity in serious for result in results for finding in result.findings))
