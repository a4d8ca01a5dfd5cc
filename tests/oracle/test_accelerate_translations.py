"""Every YAML that is written for Accelerate, in a real launch: its plugin is what the Plan says."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from any_plans import any_plan
from corpus import configs, corpus_yaml, needs_corpus
from translated import (
    accelerate_config,
    accelerate_reading,
    complaints,
    deepspeed_reading,
    is_refused,
    labels_of,
    text_of,
    unlanded,
)

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.document.yaml_reader import scan_yaml
from dsconf.formats.accelerate.in_place import to_fsdp2
from dsconf.formats.accelerate.read_deepspeed import settings_of
from dsconf.formats.accelerate.write import write
from dsconf.formats.accelerate.write_deepspeed import FILE, DeepSpeed, write_deepspeed
from dsconf.formats.deepspeed.write import drafted
from dsconf.formats.reading import Reading
from dsconf.formats.writing import Request, Writing
from dsconf.plan import Launch, Parallelism, Plan

from . import accelerating
from .accelerate_plans import differences, many_machines
from .accelerating import Outcome, launched
from .test_yaml_corpus import NOT_OF_THE_FILE

pytestmark = pytest.mark.oracle

Launched = Callable[[Writing, Plan], Outcome]
PLANS = [any_plan(seed) for seed in range(200)]
FILLED = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
)  # fmt: skip
WORLDS = (8, 1, 2, 4, 16, 32, 64)
TUNED = {
    "EleutherAI__gpt-neox__configs__autotuning_configs__small_tune.json": "its lists are for the autotuner"
}
LONG = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
LEAST = 40
"""Files of the corpus that hold FSDP or DDP."""


@pytest.fixture(scope="module")
def many() -> Iterator[SimpleNamespace]:
    with many_machines() as size, pytest.MonkeyPatch.context() as patch:
        initialize = accelerating._initialize

        def where_known(plugin: Any) -> None:
            """What a script fills stays open here."""
            known = {key: value for key, value in plugin.deepspeed_config.items() if key not in FILLED}
            if '"auto"' not in json.dumps(known):
                initialize(plugin)

        patch.setattr(accelerating, "_initialize", where_known)
        yield size


@pytest.fixture
def run(many: SimpleNamespace, tmp_path: Path) -> Launched:
    def launch(writing: Writing, plan: Plan) -> Outcome:
        for name, text in writing.beside.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        many.processes = plan.launch.world_size or 1
        return launched(writing.text, tmp_path, whole=True)

    return launch


def request_of(reading: Reading) -> Request:
    return Request("Written for a test.", labels_of(reading))


def yaml_files() -> list[Path]:
    return [
        path for path in corpus_yaml() if path.parent.name == "accelerate_yaml" and path.suffix == ".yaml"
    ]


def readings() -> dict[str, tuple[str, Reading]]:
    """Text and Reading of each file of the corpus without DeepSpeed that says how many processes there are."""
    found = {path.name: (text_of(path), accelerate_reading(text_of(path))) for path in yaml_files()}
    return {
        name: (text, reading)
        for name, (text, reading) in found.items()
        if reading.source != "accelerate-deepspeed"
        and reading.plan.launch.world_size is not None
        and not is_refused(name, text)
        and name.removesuffix(".yaml") not in NOT_OF_THE_FILE
    }


@cache
def deepspeed_readings() -> dict[str, tuple[dict[str, Any], Reading]]:
    """Settings and Reading of each ds_config of the corpus, on the first number of ranks on which lint has no error."""
    found = {}
    for path in configs():
        if path.name in TUNED:
            continue
        text = text_of(path)
        for context in (Context(world_size=world) for world in WORLDS):
            try:
                if is_refused(path.name, text, context):
                    continue
                settings, reading = json.loads(text), deepspeed_reading(text, context)
            except (Unusable, ValueError):
                break
            launch = Launch(world_size=context.world_size, machines=1)
            found[path.name] = (
                settings,
                reading._replace(plan=reading.plan.model_copy(update={"launch": launch})),
            )
            break
    return found


def test_plans_of_any_kind_become_the_plugin_that_trains_so(run: Launched) -> None:
    wrong = {}
    for seed, plan in enumerate(PLANS):
        writing = write(plan, Request("Written for a test.", {}))
        assert complaints("accelerate.yaml", writing.text) == [], writing.text
        if told := differences(plan, run(writing, plan)):
            wrong[seed] = told
    assert wrong == {}


@needs_corpus
def test_public_files_become_the_plugin_that_trains_so(run: Launched) -> None:
    wrong = {}
    for name, (_, reading) in readings().items():
        writing = write(reading.plan, request_of(reading))
        assert unlanded(reading, writing.landings) == [], name
        assert complaints(name, writing.text) == [], writing.text
        if told := differences(reading.plan, run(writing, reading.plan)):
            wrong[name] = told
    assert wrong == {}
    assert len(readings()) > LEAST


@needs_corpus
def test_what_is_written_again_is_the_same() -> None:
    for name, (_, reading) in readings().items():
        once = accelerate_reading(write(reading.plan, request_of(reading)).text)
        twice = accelerate_reading(write(once.plan, request_of(once)).text)
        assert twice.plan == once.plan, name
        if reading.source != "accelerate-fsdp1" and reading.plan.wrapping.min_params is None:
            assert once.plan == reading.plan, name


@needs_corpus
def test_public_deepspeed_configs_become_the_plugin_that_trains_so(run: Launched) -> None:
    wrong = {}
    for name, (_, reading) in deepspeed_readings().items():
        writing = write(reading.plan, request_of(reading))
        assert unlanded(reading, writing.landings) == [], name
        assert complaints("accelerate.yaml", writing.text) == [], writing.text
        if told := differences(reading.plan, run(writing, reading.plan)):
            wrong[name] = told
    assert wrong == {}
    assert len(deepspeed_readings()) > 4 * LEAST


def judged(settings: dict[str, Any], writing: Writing, plan: Plan, outcome: Outcome) -> object:
    """What a real launch of a file for DeepSpeed does otherwise than the config that it is for."""
    if outcome.fails:
        return repr(outcome.error)
    wanted = training(settings, plan)
    told = [training(outcome.deepspeed.deepspeed_config, plan)]
    flat = settings_of(accelerate_config(writing.text))
    if flat is not None:
        told.append(training(flat.settings, plan))
        assert not writing.beside
    return next((apart(each, wanted) for each in told if each != wanted), None)


def apart(one: Plan, other: Plan) -> dict[str, object]:
    """The fields in which two Plans differ."""
    return {name: (left, getattr(other, name)) for name, left in one if left != getattr(other, name)}


def training(settings: dict[str, Any], plan: Plan) -> Plan:
    """How a config trains; what Accelerate fills from the script is the same as what is not there."""
    kept = {key: value for key, value in settings.items() if key != "steps_per_print"}
    for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
        if kept.get(name) == "auto":
            del kept[name]
    if kept.get("gradient_clipping") == "auto":
        kept["gradient_clipping"] = 1.0
    for name in ("fp16", "bf16"):  # without mixed_precision
        section = kept.get(name)
        if isinstance(section, dict) and section.get("enabled") == "auto":
            kept[name] = {**section, "enabled": False}
    return deepspeed_reading(json.dumps(kept), Context("accelerate", plan.launch.world_size)).plan


@needs_corpus
def test_public_deepspeed_configs_train_the_same_under_accelerate(run: Launched) -> None:
    wrong = {}
    written = {True: 0, False: 0}
    for name, (settings, reading) in deepspeed_readings().items():
        inner = DeepSpeed(settings, drafted(reading.plan)[1])
        writing = write_deepspeed(reading.plan, request_of(reading), inner)
        assert complaints("accelerate.yaml", writing.text) == [], writing.text
        written[FILE in writing.beside] += 1
        if told := judged(settings, writing, reading.plan, run(writing, reading.plan)):
            wrong[name] = told
    assert wrong == {}
    assert min(written.values()) > 0, written


@needs_corpus
def test_files_for_fsdp1_become_ones_for_fsdp2_in_place(run: Launched) -> None:
    wrong = {}
    for name, (text, reading) in readings().items():
        if not reading.source.startswith("accelerate-fsdp"):
            continue
        labels = labels_of(reading)
        edited = to_fsdp2(accelerate_config(text), labels, lambda text: scan_yaml("accelerate.yaml", text))
        after = accelerate_reading(edited.text)
        written = accelerate_reading(write(reading.plan, request_of(reading)).text)
        assert after.plan == written.plan, name
        assert unlanded(edited.reading, edited.landings) == [], name
        for line in text.splitlines():
            if "#" in line:
                assert line[line.index("#") :].rstrip() in edited.text, name
        if told := differences(reading.plan, run(Writing(edited.text, {}), reading.plan)):
            wrong[name] = told
    assert wrong == {}


def normal(settings: dict[str, Any]) -> dict[str, Any]:
    """A config that a plugin builds of flat keys, without what it adds whatever they say."""
    kept = {key: value for key, value in settings.items() if key not in (*FILLED[:2], "steps_per_print")}
    if kept.get("gradient_clipping") == "auto":
        kept["gradient_clipping"] = 1.0
    zero = dict(kept["zero_optimization"])
    for name in ("offload_optimizer", "offload_param"):
        zero[name] = {key: value for key, value in zero[name].items() if value is not None}
    zero.pop("leaf_module", None)  # the plugin does that to the model
    kept["zero_optimization"] = zero
    return {key: value for key, value in kept.items() if value != {"enabled": False}}


@needs_corpus
def test_flat_keys_mean_what_the_plugin_makes_of_them(run: Launched) -> None:
    wrong, told = {}, 0
    for path in yaml_files():
        text = text_of(path)
        flat = settings_of(accelerate_config(text))
        if flat is None or is_refused(path.name, text):
            continue
        reading = accelerate_reading(text)
        outcome = run(Writing(text, {}), reading.plan)
        if outcome.fails == "launch":  # it says no number of processes
            continue
        told += 1
        real = repr(outcome.error) if outcome.fails else normal(outcome.deepspeed.deepspeed_config)
        if real != normal(flat.settings):
            wrong[path.name] = (normal(flat.settings), real)
    assert wrong == {}
    assert told > LEAST / 2


CALL = re.compile(r"in your script: (Accelerator\(.*?\)|torch\.optim\.\w+\(.*?\))(?=$|, and each|: the rest)")


def test_what_a_script_is_told_to_call_is_there(run: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file in force the calls are made, and the plugin that one of them names keeps what the file says."""
    torch, utils = importlib.import_module("torch"), importlib.import_module("accelerate.utils")
    model = torch.nn.Linear(1, 1)
    names = {name: getattr(utils, name) for name in dir(utils)}
    names |= {"Accelerator": SimpleNamespace, "torch": torch, "model": model}
    called = set()
    for plan in PLANS:
        writing = write(plan, Request("Written for a test.", {}))
        outcome = run(writing, plan)
        for landing in writing.landings.values():
            match = CALL.match(landing.action or "")
            if match is None or "=..." in match[1]:
                continue
            with monkeypatch.context() as patch:
                for name, value in outcome.env.items():
                    patch.setenv(name, value)
                made = eval(match[1], names)
            called.add(match[1].partition("(")[2].partition("(")[0])
            plugin = getattr(made, "fsdp_plugin", None)
            if plugin is not None:
                assert plugin.fsdp_version == 2
                assert plugin.reshard_after_forward is outcome.fsdp.reshard_after_forward
                wanted = LONG[str(plan.precision.reduce or plan.precision.compute)]
                assert plugin.mixed_precision_policy.reduce_dtype == getattr(torch, wanted)
    assert {
        "fsdp_plugin=FullyShardedDataParallelPlugin",
        "gradient_accumulation_plugin=GradientAccumulationPlugin",
        "kwargs_handlers=[GradScalerKwargs",
        "kwargs_handlers=[DistributedDataParallelKwargs",
    } <= called


@pytest.mark.parametrize("ranks", [2, 8])
def test_sequences_are_divided_under_deepspeed(run: Launched, ranks: int) -> None:
    settings = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    reading = deepspeed_reading(json.dumps(settings))
    plan = reading.plan.model_copy(
        update={"parallelism": Parallelism(sequence=2), "launch": Launch(world_size=ranks, machines=1)}
    )
    writing = write_deepspeed(plan, request_of(reading), DeepSpeed(settings, drafted(plan)[1]))
    assert complaints("accelerate.yaml", writing.text) == []
    outcome = run(writing, plan)
    assert outcome.fails is None, outcome.error
    assert outcome.env["PARALLELISM_CONFIG_SP_SIZE"] == "2"
    assert outcome.env["PARALLELISM_CONFIG_DP_SHARD_SIZE"] == str(ranks // 2)
    assert accelerate_reading(writing.text).plan.parallelism.sequence == 2
