"""What is written for Trainer with DeepSpeed: the real Trainer stops nowhere, and DeepSpeed gets the same."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import configs, needs_corpus
from plans import differences, random_plan

from dsconf.config.context import Context
from dsconf.document.json_scanner import scan
from dsconf.document.source import read_text
from dsconf.formats.deepspeed.read import read as read_deepspeed
from dsconf.formats.deepspeed.write import drafted
from dsconf.formats.trainer.write_deepspeed import write_deepspeed
from dsconf.formats.writing import Request
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import opener
from dsconf.plan import Plan, Unresolved, Warmup
from dsconf.translate.readers import read
from dsconf.translate.run import Refused, Translation, translate

from . import judge
from .arguing import one_machine, outcome

pytestmark = pytest.mark.oracle
yaml: Any = importlib.import_module("yaml")

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures" / "translate").iterdir())
STEPS = 50
"""Of a run whose arguments leave that open."""
LEAST = 200
"""Public configs that DeepSpeed takes."""


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with machines():
        yield


@contextmanager
def machines() -> Iterator[None]:
    """As many ranks as `world` says."""
    state = importlib.import_module("accelerate.state")
    with one_machine(), pytest.MonkeyPatch.context() as patch:
        start = state.PartialState.__init__

        def with_all_ranks(self: Any, *args: Any, **options: Any) -> None:
            start(self, *args, **options)
            self.num_processes = world.ranks

        patch.setattr(state.PartialState, "__init__", with_all_ranks)
        yield


world = SimpleNamespace(ranks=8)


def translated(path: Path) -> Translation | None:
    """What a file becomes on the ranks that it is for; None where DeepSpeed itself refuses it."""
    try:
        translate(str(path), "trainer-deepspeed", Context(), {}, ())
        world.ranks = plan_of(path, Context()).ranks or 8
        return translate(str(path), "trainer-deepspeed", Context(world_size=world.ranks), {}, ())
    except Refused:
        return None


def finished(done: Translation, folder: Path) -> dict[str, Any]:
    """The DeepSpeed config with which the real Trainer calls DeepSpeed, which takes it."""
    refused = [item.key for item in done.report.items if item.outcome == "rejected-by-source"]
    return handed_on(done.text, folder, refused)


def handed_on(text: str, folder: Path, refused: Sequence[str] = ()) -> dict[str, Any]:
    """The DeepSpeed config with which Trainer calls DeepSpeed; `refused` are keys that DeepSpeed has removed."""
    values = yaml.safe_load(text)
    if isinstance(values["deepspeed"], str):
        values["deepspeed"] = json.loads(Path(values["deepspeed"]).read_text(encoding="utf-8"))
    built = outcome(values, str(folder))
    if built.error is not None:
        raise built.error
    arguments = built.arguments
    steps = arguments.max_steps if arguments.max_steps > 0 else STEPS
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=64))
    arguments.hf_deepspeed_config.trainer_config_finalize(arguments, model, steps)
    arguments.deepspeed_plugin.set_mixed_precision(arguments.mixed_precision)
    found: dict[str, Any] = copy.deepcopy(arguments.deepspeed_plugin.deepspeed_config)
    for key in refused:
        found.pop(key, None)
    taken = judge.read(found, world.ranks)
    if isinstance(taken, Exception):
        raise taken
    return found


def plan_of(path: Path, context: Context) -> Plan:
    """The Plan of a file."""
    config = opener(context).pieces(str(path), read_text(str(path)), recognise=False)[0].config
    return read(config).reading.plan


def lost(before: Plan, config: Mapping[str, Any]) -> list[str]:
    """The fields that a source determines, and that are others in the config that DeepSpeed gets."""
    document = scan("ds_config.json", json.dumps(config), reader="json")
    after = read_deepspeed(config_of(document, Context(world_size=world.ranks))).plan
    elsewhere = _elsewhere(before)
    return [
        str(each)
        for each in differences(before, after)
        if not _is_open(each.one) and not each.field.startswith(elsewhere)
    ]


def _elsewhere(plan: Plan) -> tuple[str, ...]:
    """Fields that depend on what the source leaves open, or that the schedule overwrites from the first step on."""
    depends = ("precision.",) if isinstance(plan.precision.compute, Unresolved) else ()
    sets = isinstance(plan.schedule, Warmup) and plan.schedule.max_lr is not None
    # Trainer can save a model only if its weights are gathered.
    return (*depends, "checkpoint.weights", *(("optimizer.lr",) if sets else ()))


def _is_open(value: object) -> bool:
    return value is None or (isinstance(value, dict) and value.keys() == {"key"})


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_trainer_takes_every_fixture(path: Path, tmp_path: Path) -> None:
    done = translated(path)
    assert done is not None
    assert finished(done, tmp_path)["zero_optimization"]["stage"] in (0, 1, 2, 3)


@pytest.mark.parametrize("seed", range(5))
def test_plans_by_chance_get_to_deepspeed_as_they_are_written(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for _ in range(20):
        plan = random_plan(random)
        world.ranks = 8
        settings, landings = drafted(plan)
        text = write_deepspeed(plan, Request("A test.", {}), settings, landings).text
        config = handed_on(text, tmp_path)
        for path, value in _leaves(yaml.safe_load(text)["deepspeed"]):
            assert value in (_at(config, path), "auto"), (path, plan)


def _leaves(section: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _at(section: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        section = section.get(name)
    return section


@needs_corpus
def test_deepspeed_gets_every_public_config_as_it_was(tmp_path: Path) -> None:
    wrong, known = {}, 0
    for path in configs():
        done = translated(path)
        if done is None:
            continue
        known += 1
        try:
            found = lost(plan_of(path, Context(world_size=world.ranks)), finished(done, tmp_path))
        except (AssertionError, TypeError, ValueError) as error:
            found = [repr(error)]
        if found:
            wrong[path.name] = found
    assert known > LEAST
    assert wrong == {}
