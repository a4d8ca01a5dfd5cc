"""`dsconf explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command("explain", short_help="Say what a rule catches, and why.")
@click.argument("names", metavar="RULE...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Explain every rule.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(names: tuple[str, ...], everything: bool, output_format: str) -> None:
    """Print the pages of rules, named by code (DS201) or name (batch-product-mismatch).

    \b
    dsconf explain DS201
    dsconf explain offload-param-needs-zero3
    dsconf explain --all --output-format json
    """
    from dsconf.lint.index import load_rules

    rules = load_rules()
    if not names and not everything:
        raise click.UsageError("name a rule, such as DS201, or say --all")
    chosen = rules if everything else [_named(name, rules) for name in names]
    pages = [(rule, _page(rule)) for rule in chosen]
    if output_format == "json":
        shown = [{"code": rule["code"], "name": rule["name"], "page": page} for rule, page in pages]
        click.echo(json.dumps({"version": 1, "rules": shown}, indent=2, ensure_ascii=False))
        return
    click.echo("\n\n".join(f"{_facts(rule)}\n{page}" for rule, page in pages))


def _named(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    for rule in rules:
        if name.upper() == rule["code"] or name.lower() == rule["name"]:
            return rule
    from dsconf.lint.nearest import nearest

    meant = nearest(name, [rule["name"] for rule in rules]) or nearest(name, [rule["code"] for rule in rules])
    hint = f": did you mean {meant}?" if meant else " (dsconf rules lists them)"
    raise click.BadParameter(f"no rule {name!r}{hint}", param_hint="RULE")


def _facts(rule: dict[str, Any]) -> str:
    severity = " or ".join(dict.fromkeys(severity for _, severity in rule["severity"]))
    return f"{rule['code']} {severity}"


def _page(rule: dict[str, Any]) -> str:
    """What a user reads of a rule: its page without the facts for the engine."""
    from dsconf.lint.compile import split_page

    package = Path(__file__).parents[1]
    # The wheel holds the folder inside of the package, a checkout beside it.
    inside, beside = (folder / rule["url"] for folder in (package, package.parent))
    return split_page((inside if inside.exists() else beside).read_text(encoding="utf-8"))[1].strip()
