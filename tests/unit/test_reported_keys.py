"""Every key that is written, in a file or with --set, is in the report of its translation, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import hjson
import pytest
from examples import EXAMPLES
from leaves import faults
from oracle.mutants import BASES, mutants

from dsconf.config.context import Context
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.pieces import Skipped
from dsconf.translate.report import Report
from dsconf.translate.run import Refused, translate
from dsconf.translate.terminal import render

FIXTURES = Path(__file__).parents[2] / "fixtures"


def report_of(folder: Path, text: str, values: dict[str, object] | None = None) -> Report | None:
    """None where DeepSpeed refuses the config, or knows none of its keys."""
    path = folder / "ds_config.json"
    path.write_text(text, encoding="utf-8")
    try:
        report = translate(str(path), "fsdp2", Context(), values or {}, ()).report
    except (Refused, Skipped):
        return None
    if report.source != "deepspeed":
        return None
    assert render(report)
    assert json.dumps(report.as_json())
    return report


def reported(folder: Path, texts: Iterator[str]) -> int:
    """How many of the configs translate to a report; each of those is looked through."""
    count = 0
    for text in texts:
        report = report_of(folder, text)
        if report is not None:
            count += 1
            assert list(faults(hjson.loads(text), report)) == [], text
    return count


def test_in_our_own_files(tmp_path: Path) -> None:
    paths = [*FIXTURES.glob("*/*.json")]
    assert reported(tmp_path, (path.read_text(encoding="utf-8", errors="replace") for path in paths)) > 5


def test_in_the_examples_of_the_rules(tmp_path: Path) -> None:
    texts = [example.text for example in EXAMPLES if example.page.stem.startswith("DS")]
    assert reported(tmp_path, iter(Random(5).sample(texts, 60))) > 20


@pytest.mark.parametrize("seed", range(2))
def test_in_damaged_configs(tmp_path: Path, seed: int) -> None:
    assert reported(tmp_path, (mutant.text for mutant in mutants(80, seed))) > 20


def declared() -> list[tuple[str, dict[str, Any]]]:
    """Every key that is no section, with its row of the table."""
    found: list[tuple[str, dict[str, Any]]] = []
    stack: list[tuple[str, dict[str, Any]]] = [("", load_keys())]
    while stack:
        above, section = stack.pop()
        for name, spec in section["keys"].items():
            path = f"{above}.{name}" if above else name
            if "keys" in spec:
                stack.append((path, spec))
            elif "alias" not in spec:
                found.append((path, spec))
    return found


def test_said_with_set(tmp_path: Path) -> None:
    """Whether or not the file has the key, or its section."""
    random, keys, count = Random(7), declared(), 0
    for path, spec in random.sample(keys, 60):
        base = json.dumps(random.choice(BASES))
        values = (spec.get("default"), True, 2, "text", *spec.get("values", ()))
        report = report_of(tmp_path, base, {path: random.choice(values)})
        if report is None:
            continue
        count += 1
        above = path.split(".")
        prefixes = {".".join(above[:depth]) for depth in range(1, len(above) + 1)}
        assert len(prefixes & {item.key for item in report.items}) == 1, (base, path)
        assert list(faults(json.loads(base), report)) == [], (base, path)
    assert count > 25
