"""Modules of many configs train: public ones where $DSCONF_CORPUS names some, else those of our own rules."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from corpus import MUST_TRANSLATE, configs, named
from examples import EXAMPLES
from filling import values_for

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.translate.run import Refused, Translation, translate

from .bench import NEEDS_DEEPSPEED
from .compare import Crash, Record
from .run import Cell, Result, run_cells

pytestmark = NEEDS_DEEPSPEED

SAMPLE, SEED = 40, 11
STEPS = 2
STILL = "a module whose optimizer does nothing"
BATCH: dict[str, int] = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
SMALL: dict[str, object] = {
    **BATCH,
    "train_batch_size": 8,
    "fp16.initial_scale_power": 8,  # fp16 gradients of a small model do not overflow from there
}
"""Values that fit two ranks, two steps and a small model; they count instead of those of the config."""

RISING: dict[object, dict[str, object]] = {
    "WarmupLR": {"scheduler.params.warmup_min_lr": 1e-4},
    "WarmupDecayLR": {"scheduler.params.warmup_min_lr": 1e-4},
    "WarmupCosineLR": {"scheduler.params.warmup_min_ratio": 0.1},
}
"""By scheduler what makes the lr of the second step more than 0."""

OWN_OPTIMIZER = """

def build_optimizer(model):
    return torch.optim.AdamW([param for param in model.parameters() if param.requires_grad], lr=1e-3)
"""
"""What the script has to bring along where the config has no optimizer."""


def on_two_ranks(path: Path) -> Translation | None:
    """The translation of a file for a run of two ranks, None where something is in the way."""
    try:
        values = values_for(path)
        first = translate(str(path), "fsdp2", Context(), values, ())
        own = {item.key: item.value for item in first.report.items}
        values |= {key: value for key, value in SMALL.items() if key in BATCH or key in own}
        values |= RISING.get(own.get("scheduler.type"), {})
        done = translate(str(path), "fsdp2", Context(world_size=2), values, ())
    except (Refused, Unusable):
        return None
    outcomes = {item.outcome for item in done.report.items}
    return None if outcomes & {"unsupported", "needs-value"} else done


def examples(folder: Path) -> list[Path]:
    """The configs of the rules' pages, as files."""
    paths = []
    for example in EXAMPLES:
        if example.page.stem.startswith("DS") and "{" in example.text:
            path = folder / f"{example.id}.json"
            path.write_text(example.text, encoding="utf-8")
            paths.append(path)
    return paths


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The modules of a sample of the configs, by name."""
    folder = tmp_path_factory.mktemp("modules")
    found = [path for path in configs() if named(path) in MUST_TRANSLATE] or examples(folder)
    modules: dict[str, Path] = {}
    for path in Random(SEED).sample(found, len(found)):
        done = on_two_ranks(path)
        if done is None:
            continue
        modules[path.stem] = module = folder / f"module{len(modules)}.py"
        tail = "" if "def build_optimizer(" in done.text else OWN_OPTIMIZER
        module.write_text(done.text + tail, encoding="utf-8")
        if len(modules) == SAMPLE:
            break
    return modules


@pytest.fixture(scope="module")
def results(modules: dict[str, Path]) -> dict[str, Result]:
    """What each module did; STILL is one of them that never takes a step."""
    first = next(iter(modules.values()))
    still = first.with_name("still.py")
    code = first.read_text(encoding="utf-8")
    assert code.count("optimizer.step()") == 1
    still.write_text(code.replace("optimizer.step()", "pass"), encoding="utf-8")
    return run_cells(
        Cell(id=name, role="module", config=BATCH, module=module, steps=STEPS)
        for name, module in {**modules, STILL: still}.items()
    )


def unmoved(record: Record) -> list[str]:
    """The weights that are as they were loaded, but for being rounded to 16 bits."""
    import torch

    dtypes = (torch.float32, torch.bfloat16, torch.float16)

    def as_loaded(name: str) -> bool:
        start, end = torch.tensor(record.start[name]), torch.tensor(record.params[name])
        return any(torch.equal(start.to(dtype).float(), end) for dtype in dtypes)

    return [name for name in record.params if as_loaded(name)]


def test_none_of_the_sample_crashes(results: dict[str, Result]) -> None:
    assert len(results) == SAMPLE + 1
    assert {name: result.text for name, result in results.items() if isinstance(result, Crash)} == {}


def test_each_trains(results: dict[str, Result]) -> None:
    for name, result in results.items():
        assert isinstance(result, Record), name
        assert result.problems == [], name
        assert len(result.losses) == STEPS * BATCH["gradient_accumulation_steps"], name
        assert all(map(math.isfinite, result.losses)), name
        assert result.skipped == [False] * STEPS, name
        assert max(result.lrs) > 0, name
        if name != STILL:
            assert unmoved(result) == [], name


def test_a_module_without_steps_is_told_from_the_others(results: dict[str, Result]) -> None:
    still = results[STILL]
    assert isinstance(still, Record)
    assert unmoved(still) == list(still.params)
