"""`dsconf lint --fix` and `--diff`: what they write."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from dsconf.document.source import Unusable, read_text
from dsconf.lint.finding import Result, printable
from dsconf.lint.mend import Lint, mend
from dsconf.lint.report.summary import counted


def fix_files(results: list[Result], lint: Lint, *, unsafe: bool) -> list[Result]:
    """Write the fixes into the files; what remains to be said of each.

    A file that can't be written is unusable, and keeps all of its findings.
    """
    done: list[Result] = []
    written: dict[str, str] = {}
    for result in results:
        path = os.path.realpath(result.file)
        if path in written:  # named twice
            done.append(lint(result.file, written[path]))
            continue
        mended = mend(result, lint, unsafe=unsafe)
        if result.text is not None and mended.text != result.text:
            try:
                _replace(path, result.text, mended.text)
            except (OSError, Unusable) as error:
                reason = error.message if isinstance(error, Unusable) else error.strerror or error
                click.echo(f"{printable(result.file)}: the fixes can't be written: {reason}", err=True)
                done.append(result._replace(unusable=True))
                continue
            written[path] = mended.text
        done.append(mended.result._replace(fixed=mended.fixed))
    return done


def _replace(path: str, before: str, after: str) -> None:
    """Write a file that is as it was when it was linted. Raises OSError, Unusable."""
    from dsconf.document.write import write_text  # tempfile costs start-up time

    if not os.access(path, os.W_OK):
        raise PermissionError(None, "the file is write-protected")
    if read_text(path) != before:
        raise OSError(None, "the file has changed meanwhile")
    write_text(path, after)


def show_diff(results: list[Result], lint: Lint, *, unsafe: bool) -> int:
    """Print what `fix_files` would change; the exit status is 1 where it would, 2 for an unusable file."""
    fixed = files = 0
    for result in results:
        mended = mend(result, lint, unsafe=unsafe)
        if result.unusable:
            click.echo(f"{printable(result.file)}: {result.findings[0].message}", err=True)
        elif result.text is not None and mended.text != result.text:
            click.echo("".join(_diff(result.file, result.text, mended.text)), nl=False)
            fixed, files = fixed + mended.fixed, files + 1
    click.echo(f"Would fix {counted(fixed, 'problem')} in {counted(files, 'file')}.", err=True)
    return 2 if any(result.unusable for result in results) else int(files > 0)


def _diff(path: str, before: str, after: str) -> Iterator[str]:
    from difflib import unified_diff

    name = printable(path)
    for line in unified_diff(_lines(before), _lines(after), name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """The lines with their ends: other than for str.splitlines, only \\n ends one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
