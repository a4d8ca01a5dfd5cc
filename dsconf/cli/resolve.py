"""`dsconf resolve`."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any

import click

from dsconf.cli.circumstances import Circumstances
from dsconf.cli.options import context_options
from dsconf.config.effective import Config
from dsconf.config.resolve import known, resolve
from dsconf.document.node import UNKNOWN
from dsconf.document.source import Unusable, read_text
from dsconf.formats.accelerate.launch import exported
from dsconf.formats.accelerate.plugins import parallelism, plugin
from dsconf.formats.row import Row
from dsconf.formats.trainer.plugin import plugin as trainer_plugin
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import opener, unusable_result
from dsconf.lint.index import load_rules
from dsconf.lint.pieces import Skipped
from dsconf.lint.report import reporter

_HEADINGS = {
    "environment": "accelerate launch exports",
    "plugin": "the plugin of each worker has",
    "parallelism": "the ParallelismConfig of each worker has",
}


@click.command("resolve", short_help="Show effective values.")
@click.argument("source", type=click.Path())
@click.option("--all", "show_all", is_flag=True, help="Show the sections that the file does not have, too.")
@click.option("--output-format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@context_options
def command(source: str, show_all: bool, output_format: str, **options: Any) -> None:
    """Show what every key of SOURCE ends up as, and where the value comes from.

    Of a file of `accelerate launch` also what the launcher exports, and of that and of TrainingArguments what the
    plugin of each worker has.

    \b
    dsconf resolve ds_config.json --world-size 8
    dsconf resolve ds_config.json --consumer trainer --output-format json
    dsconf resolve accelerate.yaml

    Exit status: 0 shown, 2 SOURCE is unusable. What would be refused is said by `dsconf lint`.
    """
    context = Circumstances(options).context(source)
    try:
        found = [piece.config for piece in opener(context).pieces(source, read_text(source), recognise=False)]
    except Unusable as problem:
        click.echo(reporter("full")([unusable_result(source, problem, load_rules(), context)]), err=True)
        raise SystemExit(2) from None
    except Skipped as reason:
        raise click.UsageError(f"{source}: {reason}") from None
    shown = [_Shown(source, config, show_all) for config in found]
    if output_format == "json":
        click.echo(json.dumps({"version": 1, "file": source, **_as_json(shown)}, indent=2))
    else:
        click.echo("\n\n".join(each.table() for each in shown))


def _as_json(shown: Sequence[_Shown]) -> dict[str, Any]:
    """The first config, and those beside it by their format."""
    others = {each.config.format: each.json() for each in shown[1:]}
    return shown[0].json() | ({"inside": others} if others else {})


class _Shown:
    """What is shown of one Config."""

    def __init__(self, source: str, config: Config, show_all: bool) -> None:
        guess = config.context.guess
        if guess is not None and len(guess.consumers) == 1:
            click.echo(f"{source}: read by {guess.names}, as {guess.reason}", err=True)
            config = config_of(config.document, config.context._replace(consumer=guess.consumers[0]))
        self.config = config
        self._show_all = show_all
        self._rows = resolve(config)
        open_ = {row.path for row in self._rows if row.origin == "open"}
        self._more = _what_becomes_of(config, open_)

    def json(self) -> dict[str, Any]:
        """The keys with all that is known of each."""
        keys = [
            {
                "key": row.path,
                "value": row.value if known(row) else None,
                "known": known(row),
                "origin": row.origin,
                "note": row.note,
                "line": row.line,
            }
            for row in self._rows
        ]
        more = {
            name: [
                {
                    "name": row.name,
                    "value": _plain(row.value),
                    "known": row.value is not UNKNOWN,
                    "from": row.source,
                }
                for row in rows
            ]
            for name, rows in self._more.items()
        }
        return {"keys": keys, **more}

    def table(self) -> str:
        """A line for each key, and for each thing that comes of them."""
        sections = {item.path.partition(".")[0] for item in self.config.written}
        shown = [
            row
            for row in self._rows
            if self._show_all or "." not in row.path or row.path.partition(".")[0] in sections
        ]
        width = max(len(row.path) for row in shown)
        lines = []
        for row in shown:
            value = json.dumps(row.value, ensure_ascii=False) if known(row) else "?"
            value = value if len(value) <= 24 else value[:21] + "..."
            place = f"line {row.line}" if row.line is not None else ""
            note = row.note or place
            lines.append(f"{row.path:<{width}}  {value:<24}  {row.origin:<10}  {note}".rstrip())
        for name, rows in self._more.items():
            lines += ["", f"{_HEADINGS[name]}:"]
            wide = max((len(row.name) for row in rows), default=0)
            lines += [
                f"  {row.name:<{wide}}  {_word(row.value):<24}  from {row.source}".rstrip() for row in rows
            ]
        return "\n".join(lines)


def _what_becomes_of(config: Config, open_: Container[str]) -> dict[str, list[Row]]:
    """What becomes of a file of `accelerate launch`, or of training arguments, where there is something of a kind.

    What is exported for a key in `open_` is what stands there once a placeholder is filled.
    """
    if config.format == "trainer":
        rows = trainer_plugin(config)
        return {"plugin": rows} if rows else {}
    if config.format != "accelerate":
        return {}
    found = {
        "environment": [
            row._replace(value=UNKNOWN) if row.source in open_ else row for row in exported(config)
        ],
        "plugin": plugin(config),
        "parallelism": parallelism(config),
    }
    return {name: rows for name, rows in found.items() if rows}


def _plain(value: object) -> object:
    """A value as JSON holds it; None for one that is not known."""
    return None if value is UNKNOWN else value


def _word(value: object) -> str:
    return "?" if value is UNKNOWN else value if isinstance(value, str) else json.dumps(value)
