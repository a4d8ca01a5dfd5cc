"""Public configs, translated: what is written has no finding that the source does not have."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from corpus import corpus_json, corpus_yaml, needs_corpus

from dsconf.config.context import Context
from dsconf.lint.engine import lint_file
from dsconf.lint.index import load_rules
from dsconf.lint.pieces import Skipped
from dsconf.translate.run import Refused, translate

TARGETS = (
    "deepspeed",
    "accelerate-fsdp2",
    "accelerate-deepspeed",
    "trainer-fsdp2",
    "trainer-deepspeed",
    "axolotl",
)
RULES = load_rules()
CONTEXT = Context(gpus_per_node=8)
SAMPLED = 60


def findings(path: Path) -> set[str]:
    """The codes of the errors and warnings in a file."""
    result = lint_file(str(path), RULES, CONTEXT, recognise=False)
    return {each.code for each in result.findings if each.severity in ("error", "warning")}


@needs_corpus
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_added(target: str, tmp_path: Path) -> None:
    paths = [*corpus_json(), *corpus_yaml()]
    written = tmp_path / ("ds_config.json" if target == "deepspeed" else "config.yaml")
    done = 0
    for path in Random(7).sample(paths, SAMPLED):
        try:
            translation = translate(str(path), target, CONTEXT, {}, ())
        except (Refused, Skipped):
            continue
        done += 1
        for name, text in {**translation.beside, written.name: translation.text}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        assert findings(written) <= findings(path), path
    assert done > SAMPLED // 2
