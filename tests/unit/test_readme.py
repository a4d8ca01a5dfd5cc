"""What the README shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from examples import PAGES

from dsconf.cli import main
from tools import rules_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"^```console\n\$ dsconf ([^\n]*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_it_opens_with_the_two_commands() -> None:
    first = README.split("```")[1]
    assert [line.split("#")[0].strip() for line in first.strip().splitlines()] == ["./dev demo", "./dev test"]


@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_outputs_are_real(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line; a line of "..." stands for lines left out."""
    monkeypatch.chdir(ROOT / "fixtures" / "demo")
    real = CliRunner().invoke(main, shlex.split(command)).output.splitlines()
    at = 0
    skipping = False
    for line in shown.splitlines():
        if line == "...":
            skipping = True
            continue
        found = real.index(line, at)
        assert skipping or found == at, f"left out without a mark: {real[at:found]}"
        at, skipping = found + 1, False
    assert skipping or at == len(real), f"left out at the end: {real[at:]}"


def test_the_code_shown_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "fixtures" / "demo")
    code = CliRunner().invoke(main, ["translate", "ds_config.json", "--to", "fsdp2"]).stdout
    shown = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert shown
    assert all(excerpt in code for excerpt in shown)


def test_the_list_of_rules_is_that_of_the_pages() -> None:
    """`./dev artefacts` writes it."""
    written = rules_table.PAGE.read_text(encoding="utf-8")
    assert written == rules_table.page()
    assert sorted(re.findall(r"^\| \[([A-Z]{2}\d+)\]", written, re.MULTILINE)) == sorted(
        page.stem[:5] for page in PAGES
    )
