"""`dsconf schema`."""

from __future__ import annotations

from pathlib import Path

import click

FORMATS = ("deepspeed", "accelerate", "trainer", "axolotl", "llamafactory")


@click.command("schema", short_help="Print the JSON Schema of a format.")
@click.argument("name", metavar="FORMAT", type=click.Choice(FORMATS))
def command(name: str) -> None:
    """Print the JSON Schema of FORMAT, for editors: one more check for what dsconf lints.

    \b
    dsconf schema deepspeed > deepspeed.schema.json
    """
    package = Path(__file__).parents[1]
    # The wheel holds the folder inside of the package, a checkout beside it.
    inside, beside = (folder / "schemas" / f"{name}.schema.json" for folder in (package, package.parent))
    click.echo((inside if inside.exists() else beside).read_text(encoding="utf-8"), nl=False)
