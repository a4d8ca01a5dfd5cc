"""`dsconf lint --fix` and `--diff`: what they write."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.lint.engine import Rule, unusable_result
from dsconf.lint.finding import Result, printable
from dsconf.lint.mend import mend
from dsconf.lint.report.summary import counted


def fix_files(results: list[Result], rules: list[Rule], context: Context, *, unsafe: bool) -> list[Result]:
    """Write the fixes into the files; what remains to be said of each. A symbolic link stays one."""
    from dsconf.document.write import write_text  # tempfile costs start-up time

    done = []
    for result in results:
        mended = mend(result, rules, context, unsafe=unsafe)
        if mended.text != (result.text or ""):
            path = os.path.realpath(result.file)
            try:
                if not os.access(path, os.W_OK):
                    raise PermissionError(None, "it is write-protected")
                write_text(path, mended.text)
            except OSError as error:
                problem = Unusable(
                    "unreadable-file", f"the fixes cannot be written: {error.strerror or error}"
                )
                failed = unusable_result(result.file, problem, rules, context)
                done.append(result._replace(findings=[*failed.findings, *result.findings], unusable=True))
                continue
        done.append(mended.result._replace(fixed=mended.fixed))
    return done


def show_diff(results: list[Result], rules: list[Rule], context: Context, *, unsafe: bool) -> int:
    """Print what `fix_files` would change, and return the exit status: 1 where it would, 2 for an unusable file."""
    fixed = files = 0
    for result in results:
        mended = mend(result, rules, context, unsafe=unsafe)
        if result.unusable:
            click.echo(f"{printable(result.file)}: {result.findings[0].message}", err=True)
        elif mended.text != (result.text or ""):
            click.echo("".join(_diff(result.file, result.text or "", mended.text)), nl=False)
            fixed, files = fixed + mended.fixed, files + 1
    click.echo(f"Would fix {counted(fixed, 'problem')} in {counted(files, 'file')}.", err=True)
    return 2 if any(result.unusable for result in results) else int(files > 0)


def _diff(path: str, before: str, after: str) -> Iterator[str]:
    from difflib import unified_diff

    name = printable(path)
    for line in unified_diff(_lines(before), _lines(after), name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """The lines with their ends: other than str.splitlines, only \\n ends one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
