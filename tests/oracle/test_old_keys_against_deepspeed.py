"""What DeepSpeed makes of old keys, of text for a boolean and of old spellings, against what the rules advise."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from configs import config_of

from dsconf.config.context import Consumer
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .judge import Config, deepspeed, hjson, read, torch

pytestmark = pytest.mark.oracle

RULES = load_rules()
BASE: Config = {"train_micro_batch_size_per_gpu": 1}
ZERO = "zero_optimization"


def findings(config: Config, consumer: Consumer | None = None) -> list[Finding]:
    return lint_config(config_of({**BASE, **config}, consumer), RULES).findings


@pytest.fixture
def warnings(quiet: None) -> Iterator[list[str]]:
    """What DeepSpeed warns of."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = importlib.import_module("deepspeed.utils").logger
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)


# What is written, and the same in today's form.
TODAY: list[tuple[Config, Config]] = [
    ({ZERO: True}, {ZERO: {"stage": 1}}),
    ({ZERO: False}, {ZERO: {"stage": 0}}),
    ({ZERO: True, "allgather_size": 8}, {ZERO: {"stage": 1, "allgather_bucket_size": 8}}),
    ({ZERO: {"stage": 2, "cpu_offload": True}}, {ZERO: {"stage": 2, "offload_optimizer": {"device": "cpu"}}}),
    ({ZERO: {"stage": 3, "cpu_offload_param": True}}, {ZERO: {"stage": 3, "offload_param": {"device": "cpu"}}}),
    ({ZERO: {"stage": 2, "cpu_offload": False}}, {ZERO: {"stage": 2}}),
    ({ZERO: {"stage": 2, "cpu_offload_use_pin_memory": False}}, {ZERO: {"stage": 2}}),
    (
        {ZERO: {"stage": 3, "stage3_gather_fp16_weights_on_model_save": True}},
        {ZERO: {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}},
    ),
]  # fmt: skip
OLD = (
    "cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory", "stage3_gather_fp16_weights_on_model_save",
)  # fmt: skip


def settled(config: Config) -> dict[str, Any]:
    """The zero section as DeepSpeed holds it, without the old keys."""
    section = read({**BASE, **config}).zero_config
    names = set(type(section).model_fields) - set(OLD)
    return {name: getattr(section, name) for name in names}


@pytest.mark.parametrize(("old", "new"), TODAY, ids=json.dumps)
def test_the_form_of_today_means_the_same(old: Config, new: Config, warnings: list[str]) -> None:
    assert settled(new) == settled(old)
    assert any("deprecated" in text for text in warnings)
    said = findings(old)
    assert {finding.rule for finding in said} == {"deprecated-key"}
    assert {finding.severity for finding in said} == {"warning"}
    assert findings(new) == []


def test_allgather_size_does_nothing_beside_a_section() -> None:
    assert settled({ZERO: {"stage": 1}, "allgather_size": 7}) == settled({ZERO: {"stage": 1}})


def test_deepspeed_reads_bfloat16_without_a_word(warnings: list[str]) -> None:
    assert read({**BASE, "bfloat16": {"enabled": True}}).bfloat16_config.enabled
    assert not any("bfloat16" in text for text in warnings)
    assert not read({**BASE, "bf16": {}, "bfloat16": {"enabled": True}}).bfloat16_config.enabled


def test_trainer_does_not_read_bfloat16() -> None:
    trainer = pytest.importorskip("transformers.integrations.deepspeed")
    for name in ("bf16", "bfloat16"):
        config = trainer.HfDeepSpeedConfig({**BASE, name: {"enabled": True}})
        assert config.is_true("bf16.enabled") == (name == "bf16")
        (*said,) = findings({ZERO: {"stage": 1}, name: {"enabled": True}}, "trainer")
        assert [finding.severity for finding in said] == ([] if name == "bf16" else ["warning"])


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_old_stage_1(stage: int) -> None:
    config = {ZERO: {"stage": stage, "legacy_stage1": True}}
    optimizer = {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True}}
    model = torch.nn.Linear(4, 4)
    refused = ""
    try:
        deepspeed.initialize(
            model=model,
            config={**BASE, **config, "optimizer": optimizer},
            model_parameters=list(model.parameters()),
        )
    except Exception as error:
        refused = str(error)
    (said,) = findings(config)
    assert ("ZeRO Stage 1" in refused) == (said.fails == "init")


ATTRIBUTES = {"use_data_before_expert_parallelism": "use_data_before_expert_parallel_"}
BOOLEANS = [
    name
    for name, spec in load_keys()["keys"].items()
    if spec.get("type") == "bool" and spec.get("status") != "inert"
]


@pytest.mark.parametrize("name", BOOLEANS)
def test_text_for_a_boolean(name: str) -> None:
    (said,) = findings({name: "false"})
    assert (said.rule, said.severity) == ("bool-as-string", "error")
    result = read({**BASE, name: "false"})
    assert isinstance(result, Exception) == (said.fails == "parse")
    attribute = ATTRIBUTES.get(name, name)
    if said.fails is None:
        assert getattr(result, attribute) == "false", "kept as a text, which is not empty"


def test_there_are_booleans() -> None:
    assert len(BOOLEANS) >= 10


def test_how_the_two_readers_see_1e3() -> None:
    text = '{"warmup_num_steps": 1e3}'
    assert isinstance(hjson.loads(text)["warmup_num_steps"], int)
    assert isinstance(json.loads(text)["warmup_num_steps"], float)
