"""`dsconf resolve`."""

from __future__ import annotations

import json
from typing import Any

import click

from dsconf.cli.circumstances import Circumstances
from dsconf.cli.options import context_options


@click.command("resolve", short_help="Show effective values.")
@click.argument("source", type=click.Path())
@click.option("--all", "show_all", is_flag=True, help="Show the sections that the file does not have, too.")
@click.option("--output-format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@context_options
def command(source: str, show_all: bool, output_format: str, **options: Any) -> None:
    """Show what every key of SOURCE ends up as, and where the value comes from.

    \b
    dsconf resolve ds_config.json --world-size 8
    dsconf resolve ds_config.json --consumer trainer --output-format json

    Exit status: 0 shown, 2 SOURCE is unusable. What DeepSpeed would refuse is said by `dsconf lint`.
    """
    from dsconf.config.resolve import known, resolve
    from dsconf.document.source import Unusable
    from dsconf.lint.consumer import config_of
    from dsconf.lint.engine import open_document, unusable_result
    from dsconf.lint.index import load_rules
    from dsconf.lint.report import reporter

    context = Circumstances(options).context(source)
    try:
        document = open_document(source, context)
    except Unusable as problem:
        click.echo(reporter("full")([unusable_result(source, problem, load_rules(), context)]), err=True)
        raise SystemExit(2) from None
    config = config_of(document, context)
    guess = config.context.guess
    if guess is not None and len(guess.consumers) == 1:
        click.echo(f"{source}: read by {guess.names}, as {guess.reason}", err=True)
        config = config_of(document, context._replace(consumer=guess.consumers[0]))
    rows = resolve(config)
    if output_format == "json":
        keys = [
            {
                "key": row.path,
                "value": row.value if known(row) else None,
                "known": known(row),
                "origin": row.origin,
                "note": row.note,
                "line": row.line,
            }
            for row in rows
        ]
        click.echo(json.dumps({"version": 1, "file": source, "keys": keys}, indent=2))
        return
    sections = {item.path.partition(".")[0] for item in config.written}
    shown = [row for row in rows if show_all or "." not in row.path or row.path.partition(".")[0] in sections]
    width = max(len(row.path) for row in shown)
    for row in shown:
        value = json.dumps(row.value, ensure_ascii=False) if known(row) else "?"
        value = value if len(value) <= 24 else value[:21] + "..."
        place = f"line {row.line}" if row.line is not None else ""
        click.echo(f"{row.path:<{width}}  {value:<24}  {row.origin:<10}  {row.note or place}".rstrip())
