"""Whatever a value is, a translation ends in words: what was written, or why nothing was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dsconf.config.context import Context
from dsconf.lint.pieces import Skipped
from dsconf.translate import TARGETS
from dsconf.translate.run import Refused, translate
from dsconf.translate.terminal import render

SOURCES = sorted((Path(__file__).parents[2] / "fixtures" / "translate").iterdir())
VALUES = (
    *("null", "[]", "{}", "-1", "0", "1.5", "1e999", "true", "false", '""', '"x"', '"auto"', '"8"', "[1, 2]"),
    *('{"a": 1}', "99999999999999999999", '"FULL_SHARD"', '"{{ x }}"', "{{ x }}"),
)
VALUE = re.compile(r'(?<=: )(?:"[^"\n]*"|[\w.+-]+)')
ROUNDS, SEED = 25, 0


def mutants(path: Path, seed: int) -> Iterator[str]:
    """The file with one or two values changed."""
    text = path.read_text(encoding="utf-8")
    random = Random(f"{path.name} {seed}")
    for _ in range(ROUNDS):
        changed = text
        for _ in range(random.choice((1, 1, 2))):
            place = random.choice(list(VALUE.finditer(changed)))
            changed = changed[: place.start()] + random.choice(VALUES) + changed[place.end() :]
        yield changed


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_values_of_any_kind(source: Path, tmp_path: Path) -> None:
    path = tmp_path / source.name
    random = Random(SEED)
    done = 0
    for text in mutants(source, SEED):
        path.write_text(text, encoding="utf-8")
        try:
            translation = translate(str(path), random.choice(TARGETS), Context(gpus_per_node=8), {}, ())
        except (Refused, Skipped):
            continue
        assert translation.text
        assert render(translation.report)
        assert json.dumps(translation.report.as_json())
        done += 1
    assert done > 3
