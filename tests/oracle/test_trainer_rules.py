"""The examples of the rules about FSDP and Trainer that are training arguments, through the real Trainer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import EXAMPLES, Example, lint_json

from .arguing import one_machine, outcome

pytestmark = pytest.mark.oracle

OF_TRAINER = [
    example
    for example in EXAMPLES
    if example.language == "json"
    and "output_dir" in example.text
    and example.page.parent.name in ("fsdp", "trainer")
]

WORDS = {
    "trainer-fsdp-value": "auto_wrap_policy",
    "hf-fsdp-version-default": "only available with FSDP1",
    "trainer-fsdp-word": "Unknown `fsdp` option",
    "fsdp1-reshard-type": "FALSE",
    "trainer-removed-argument": "unexpected keyword argument",
    "fsdp-ckpt-duplicate": "can't both be set",
    "sharded-save-only-model": "SHARDED_STATE_DICT",
    "two-backends": "--deepspeed",
    "auto-batch-size-with-zero3": "Zero-3",
    "best-model-without-optimizer": "load_best_model_at_end",
    "fsdp2-reshard-type": "truth value",
    "fsdp-local-state-dict": "LOCAL_STATE_DICT",
}
"""By rule what the error says."""


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


@pytest.mark.parametrize("example", OF_TRAINER, ids=lambda example: example.id)
def test_trainer_is_built_where_lint_says_so(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / example.file
    report = lint_json(path, *example.write(path))[1]
    real = outcome(json.loads(example.text), str(tmp_path), trainer=True)
    said = [finding["rule"] for finding in report["findings"] if finding["fails"] == "init"]
    assert (real.error is not None) == bool(said), (real.error, said)
    for rule in said:
        assert WORDS[rule] in str(real.error)


def test_strategy_in_words_has_no_effect_on_fsdp1(tmp_path: Path) -> None:
    """trainer-strategy-unread"""
    for words in ("shard_grad_op", "full_shard"):
        values = {"fsdp": words, "fsdp_config": {"version": 1}}
        assert outcome(values, str(tmp_path)).plugin.sharding_strategy.name == "FULL_SHARD"


def test_checkpointing_of_the_model_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsdp-gradient-checkpointing"""
    said: list[str] = []
    # Whatever the other tests of the process have done to levels and handlers.
    monkeypatch.setattr(
        logging.getLogger("transformers.training_args"), "warning", lambda text, *_: said.append(str(text))
    )
    for on in (False, True):
        said.clear()
        outcome({"fsdp": True, "activation_checkpointing": on}, str(tmp_path))
        assert any("redundant AllGather" in text for text in said) is on


def test_there_are_examples_of_each_kind() -> None:
    assert len(OF_TRAINER) > 25
    assert {example.section for example in OF_TRAINER} == {"Bad", "Good"}
