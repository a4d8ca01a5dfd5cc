"""Every constraint of docs/constraints.md that a rule can know, on small configs: the executable form of that page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from examples import ROOT, lint_json

PAGE = (ROOT / "docs" / "constraints.md").read_text(encoding="utf-8")


class Case(NamedTuple):
    """A config that shows a constraint, and what lint says of it."""

    constraint: str
    config: str
    args: str
    says: str
    """Code, severity and moment ("-" for none); "" where nothing is said at warning or above."""
    also: str = ""
    """The code of another finding that there is."""


CASES = [
    Case(*row) for row in json.loads((Path(__file__).parent / "constraints.json").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case.says[:5]}-{at}" for at, case in enumerate(CASES)])
def test_case(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(case.config, encoding="utf-8")
    _, report = lint_json(path, "--isolated", *shlex.split(case.args))
    found = [each for each in report["findings"] if each["code"] != case.also]
    said = {f"{each['code']} {each['severity']} {each['fails'] or '-'}" for each in found}
    assert {each for each in said if " info " not in each} <= {case.says}
    assert not case.says or case.says in said


def test_the_page_names_the_rules_that_say_it() -> None:
    rows = re.findall(r"^\| (.*?) \|.*\| (.*?) \|$", PAGE, re.MULTILINE)
    rules = {name: rule for name, rule in rows if name not in ("constraint", "---")}
    said: dict[str, set[str]] = {name: set() for name in rules}
    for case in CASES:
        said[case.constraint] |= {case.says[:5]} - {""}
    for name, rule in rules.items():
        assert rule.strip()
        named = set(re.findall(r"\[(DS\d{3})\]", rule))
        assert named == said[name] or not said[name], name


def test_the_links_of_the_page_lead_to_rules() -> None:
    links = re.findall(r"\[(DS\d{3})\]\(\.\./(.*?)\)", PAGE)
    assert len(links) > 100
    for code, path in links:
        assert (ROOT / path).exists()
        assert Path(path).name.startswith(code)
