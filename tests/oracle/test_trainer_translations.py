"""What is written for Trainer, against the real Trainer: each field of the Plan, the optimizer, and every rate."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from corpus import CORPUS, configs, corpus_yaml, needs_corpus
from plans import random_plan

from dsconf.config.context import Context
from dsconf.document.source import Unusable, read_text
from dsconf.formats.outcome import Landing
from dsconf.formats.trainer.keys import load_keys
from dsconf.formats.trainer.write import write
from dsconf.formats.training.read import FATES
from dsconf.formats.writing import Request
from dsconf.lint.engine import lint_config, opener
from dsconf.lint.index import load_rules
from dsconf.lint.pieces import Skipped
from dsconf.plan import Batch, Launch, Plan, Sharding
from dsconf.translate.readers import read

from .arguing import one_machine, outcome
from .trainer_plans import apart, differences, rates, said

pytestmark = pytest.mark.oracle
yaml: Any = importlib.import_module("yaml")

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "translate").iterdir())
ROUNDING = 1e-12


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


@pytest.fixture(scope="module", autouse=True)
def silence() -> Iterator[None]:
    """DeepSpeed's schedules warn where they are asked for the first rate."""
    logger = importlib.import_module("deepspeed.runtime.lr_schedules").logger
    level = logger.level
    logger.setLevel("ERROR")
    yield
    logger.setLevel(level)


def plan_of(path: Path) -> Plan | None:
    """The Plan of the first config in a file; None where lint has an error for it, or there is none."""
    try:
        pieces = opener(Context()).pieces(str(path), read_text(str(path)), recognise=True)
        config = pieces[0].config
        if config.format == "llamafactory":
            return None
        errors = [each for each in lint_config(config, load_rules()).findings if each.severity == "error"]
        return None if errors else read(config).reading.plan
    except (Skipped, Unusable):
        return None


def complaints(plan: Plan, folder: Path) -> list[str]:
    """What the real Trainer does otherwise than the Plan says, and than the landings say."""
    writing = write(plan, Request("A test.", {"clipping.max_norm": "", "schedule.name": ""}))
    values = yaml.safe_load(writing.text)
    built = outcome(values, str(folder), trainer=True)
    found = [f"{name}: {pair}" for name, pair in differences(plan, writing.landings, built).items()]
    if built.error is None and "schedule.name" in writing.landings:
        found += rate_complaints(plan, writing.landings, built)
    return found


def rate_complaints(plan: Plan, landings: Mapping[str, Landing], built: Any) -> list[str]:
    landing = landings["schedule.name"]
    course = None if landing.outcome == "unsupported" else rates(plan, built)
    if course is None:
        return []
    off = apart(course)
    if landing.outcome == "exact":
        return [f"exact, but off by {off}"] if off > ROUNDING else []
    figure = said(landing)
    return [] if figure * 0.94 - 1e-4 <= off <= figure * 1.06 + 1e-4 else [f"off by {off}, not by {figure}"]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_fixtures(path: Path, tmp_path: Path) -> None:
    plan = plan_of(path)
    assert plan is not None
    assert complaints(plan, tmp_path) == []


def test_arguments_are_read_from_the_file_as_the_parser_of_transformers_reads_them(tmp_path: Path) -> None:
    transformers = importlib.import_module("transformers")
    for path in FIXTURES:
        plan = plan_of(path)
        assert plan is not None
        file = tmp_path / f"{path.stem}.yaml"
        file.write_text(write(plan, Request("A test.", {})).text, encoding="utf-8")
        (parsed,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_yaml_file(file)
        assert parsed.learning_rate == yaml.safe_load(file.read_text()).get("learning_rate", 5e-5)


def test_every_argument_of_trainer_is_known_to_the_reader() -> None:
    fields = importlib.import_module("dataclasses").fields(
        importlib.import_module("transformers").TrainingArguments
    )
    aliases = {"gradient_checkpointing"}
    assert {field.name for field in fields} - load_keys()["keys"].keys() - FATES.keys() - aliases == {
        "parallelism_config"
    }


def test_groups_of_ranks_that_a_script_passes_are_taken(tmp_path: Path) -> None:
    parallel = importlib.import_module("accelerate.parallelism_config")
    plan = Plan(
        sharding=Sharding(partition="parameters", group=4), launch=Launch(world_size=8), batch=Batch(micro=1)
    )
    writing = write(plan, Request("A test.", {}))
    said = re.search(r"parallelism_config=ParallelismConfig\((.*?)\)", writing.text)
    assert said is not None
    sizes = {name: int(size) for name, size in (each.split("=") for each in said[1].split(", "))}
    values = yaml.safe_load(writing.text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel.ParallelismConfig, "build_device_mesh", lambda *_: None)
        for changed, fits in ({}, True), ({"dp_replicate_size": 4}, False):
            layout = parallel.ParallelismConfig(**{**sizes, **changed})
            built = outcome({**values, "parallelism_config": layout}, str(tmp_path), trainer=True)
            assert (built.error is None) is fits


@needs_corpus
def test_every_public_config_of_deepspeed_becomes_arguments_that_train_as_its_plan_says(
    tmp_path: Path,
) -> None:
    plans = {path.name: plan_of(path) for path in configs()}
    known = {name: plan for name, plan in plans.items() if plan is not None}
    assert len(known) > 200
    found = {name: complaints(plan, tmp_path) for name, plan in known.items()}
    assert {name: each for name, each in found.items() if each} == {}


@needs_corpus
def test_every_public_config_of_another_trainer_does_so_too(tmp_path: Path) -> None:
    paths = [*corpus_yaml(), *sorted(Path(str(CORPUS)).glob("other_yaml/*.json"))]
    plans = {path.name: plan_of(path) for path in paths}
    known = {name: plan for name, plan in plans.items() if plan is not None}
    assert len(known) > 60
    found = {name: complaints(plan, tmp_path) for name, plan in known.items()}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize("seed", range(8))
def test_plans_by_chance(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    plans = [random_plan(random) for _ in range(25)]
    found = {str(plan): complaints(plan, tmp_path) for plan in plans}
    assert {name: each for name, each in found.items() if each} == {}
