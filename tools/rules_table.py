"""Writes docs/rules.md, the list of all rules, from their pages."""

from __future__ import annotations

import re
from pathlib import Path

from dsconf.lint.compile import compile_rules, split_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rules.md"
_FAMILIES = {
    "reading": "Reading and keys",
    "batch": 'Batch sizes, "auto", and who reads the file',
    "precision": "Precision",
    "zero": "ZeRO",
    "offload": "Offload",
    "optimizer": "Optimizer and scheduler",
    "checkpoint": "Checkpoints",
    "performance": "Performance, memory and monitoring",
    "parallel": "Parallelism, compilation and data efficiency",
    "accelerate": "Accelerate",
    "trainer": "Trainer",
    "fsdp": "FSDP, in all files that set it",
}
_CATCHES = re.compile(r"^## What it catches\n(.+)$", re.MULTILINE)


def page() -> str:
    """The whole page: for each family a table of code, name, severities, and what it catches."""
    lines = [
        "# Rules",
        "",
        "`dsconf explain CODE` prints the page of a rule. An error means that the run will fail, or train something",
        "else than written; `fails` says when. `[*]` marks rules that offer a fix.",
    ]
    rules = compile_rules(ROOT / "rules")
    for family, title in _FAMILIES.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| code | rule | severity | fails | it finds |",
            "| --- | --- | --- | --- | --- |",
        ]
        for rule in rules:
            if rule["url"].split("/")[1] == family:
                lines.append(_row(rule))
    return "\n".join(lines) + "\n"


def _row(rule: dict[str, object]) -> str:
    text = split_page((ROOT / str(rule["url"])).read_text(encoding="utf-8"))[1]
    catches = _CATCHES.search(text)
    assert catches is not None, rule["url"]
    sentence = re.split(r"(?<=[.])\s", catches[1].strip())[0].rstrip(":.")
    severity = _words(rule["severity"])
    fails = _words(rule["fails"]) or ("by key" if "error" in severity and rule["kind"] != "when" else "-")
    mark = " [*]" if rule["fix"] else ""
    return (
        f"| [{rule['code']}](../{rule['url']}) | {rule['name']}{mark} | {severity} | {fails} | {sentence} |"
    )


def _words(cases: object) -> str:
    assert isinstance(cases, list)
    return ", ".join(word for word in dict.fromkeys(case[1] for case in cases) if word != "not")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
