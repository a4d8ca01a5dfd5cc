"""Public configs of Accelerate: what is said of each against what a real launch makes of it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import corpus_yaml, needs_corpus

from dsconf.config.context import Consumer, Context
from dsconf.lint.engine import lint_file
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules

from .accelerating import Outcome, launched, one_machine

pytestmark = [pytest.mark.oracle, needs_corpus]

RULES = load_rules()
CONSUMERS: tuple[Consumer | None, ...] = (None, "deepspeed", "trainer", "accelerate")
FILES = [
    path
    for path in corpus_yaml()
    if path.parent.name == "accelerate_yaml" and path.suffix in (".yaml", ".yml")
]
STUB = {"zero_optimization": {"stage": 2}}
"""Stands for the DeepSpeed JSON that a file names, which the corpus does not have: what is in it stays open."""
NOT_OF_THE_FILE = {
    "Ryukijano__Gemma-Grook__accelerate_multi_node": "machine_rank is a placeholder, which a shell is to fill",
    "SulRash__minLLMTrain__configs__megatron": "Megatron-LM is not installed here",
    "huggingface__accelerate__examples__slurm__fsdp_config": "its script passes --num_processes",
    "huggingface__accelerate__tests__test_configs__0_28_0_mpi": "there is no mpirun here",
}
"""Files that do not start here for a reason that is not in the file, or that another may mend."""


def lint(path: Path) -> Result:
    return lint_file(str(path), RULES, Context(), recognise=True)


def launch(settings: dict[str, Any], folder: Path, size: SimpleNamespace) -> Outcome:
    """Launch a file as its author would: with as many processes, and the DeepSpeed JSON that it names in its place."""
    section = settings.get("deepspeed_config")
    if isinstance(section, Mapping) and section.get("deepspeed_config_file"):
        (folder / "ds_config.json").write_text(json.dumps(STUB), encoding="utf-8")
        settings = settings | {
            "deepspeed_config": {**section, "deepspeed_config_file": "ds_config.json"},
        }
    size.processes = settings.get("num_processes") or 1
    return launched(settings, folder, whole=True)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Outcome]]:
    """What came of every file."""
    size = SimpleNamespace(processes=1)
    with one_machine(), pytest.MonkeyPatch.context() as patch:
        yaml = importlib.import_module("yaml")
        state = importlib.import_module("accelerate.state")
        start = state.PartialState.__init__

        def with_all_processes(self: Any, *args: Any, **options: Any) -> None:
            start(self, *args, **options)
            self.num_processes = size.processes

        patch.setattr(state.PartialState, "__init__", with_all_processes)
        yield {
            path: launch(yaml.safe_load(path.read_text("utf-8")), tmp_path_factory.mktemp("launch"), size)
            for path in FILES
        }


def test_every_file_is_read() -> None:
    """Nothing in them raises, whoever reads it."""
    assert len(corpus_yaml()) > 150
    for path in corpus_yaml():
        for consumer in CONSUMERS:
            lint_file(str(path), RULES, Context(consumer))


def test_what_starts_has_no_error(outcomes: dict[Path, Outcome]) -> None:
    started = [path for path, outcome in outcomes.items() if not outcome.fails]
    assert len(started) > 0.9 * len(FILES)
    wrong = {
        path.name: [f"{each.code} {each.fails}" for each in lint(path).findings if each.severity == "error"]
        for path in started
    }
    assert {name: errors for name, errors in wrong.items() if errors} == {}


def test_what_is_refused_has_an_error_that_says_when(outcomes: dict[Path, Outcome]) -> None:
    refused = {path: outcome for path, outcome in outcomes.items() if outcome.fails}
    told = {
        path: {each.fails for each in lint(path).findings if each.severity == "error"} for path in refused
    }
    missed = {
        path.stem: repr(refused[path].error) for path in refused if refused[path].fails not in told[path]
    }
    assert missed.keys() == NOT_OF_THE_FILE.keys(), missed
    assert any(told.values())
