"""The command line. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from dsconf import __version__

_COMMANDS = {
    "explain": "Say what a rule catches, and why.",
    "rules": "List the rules.",
    "resolve": "Show what every key of a config ends up as, and why.",
    "schema": "Print the JSON Schema of a format, for editors.",
    "lint": "Find what DeepSpeed will refuse, ignore or silently change in a config.",
    "translate": "Write a DeepSpeed config as PyTorch FSDP2 code that trains the same.",
}


class _LazyGroup(click.Group):
    """A group that knows its commands by name and imports only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"dsconf.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="dsconf %(version)s")
def main() -> None:
    """Lint DeepSpeed configs and translate them to PyTorch FSDP2.

    \b
    dsconf lint ds_config.json --world-size 8
    dsconf translate ds_config.json --to fsdp2 > shard.py
    """
