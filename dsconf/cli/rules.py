"""`dsconf rules`."""

from __future__ import annotations

import json

import click


@click.command("rules", short_help="List the rules.")
@click.option("--output-format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(output_format: str) -> None:
    """List every rule: its code, the severities that it may have, when the run would fail, and its name.

    \b
    dsconf rules
    dsconf rules --output-format json
    dsconf explain DS201
    """
    from dsconf.lint.index import load_rules

    rows = [
        {
            "code": rule["code"],
            "name": rule["name"],
            "severity": list(dict.fromkeys(severity for _, severity in rule["severity"])),
            "fails": [
                moment for moment in dict.fromkeys(each for _, each in rule["fails"]) if moment != "not"
            ],
            "formats": rule["formats"],
            "fix": bool(rule["fix"]),
            "url": rule["url"],
        }
        for rule in load_rules()
    ]
    if output_format == "json":
        click.echo(json.dumps({"version": 1, "rules": rows}, indent=2))
        return
    for row in rows:
        severity, fails = "/".join(row["severity"]), "/".join(row["fails"]) or "-"
        fix = "[*]" if row["fix"] else "   "
        click.echo(f"{row['code']}  {severity:<15}  {fails:<14}  {fix}  {row['name']}")
