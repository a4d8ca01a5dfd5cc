"""Training arguments in calls of Python, with the places where they stand."""

from __future__ import annotations

import pytest

from dsconf.document.node import UNKNOWN, Node
from dsconf.document.python_calls import training_arguments
from dsconf.document.python_dicts import NotPython


def only(text: str) -> Node:
    (found,) = training_arguments(text)
    return found


def places(text: str) -> dict[str, tuple[str, str]]:
    """By key the text of the key and that of its value."""
    return {
        entry.key: (
            text[entry.key_span.start : entry.key_span.end],
            text[entry.node.span.start : entry.node.span.end],
        )
        for entry in only(text).entries
    }


def test_keywords_and_where_they_stand() -> None:
    text = (
        'x = "é"; args = TrainingArguments(output_dir="ö",\n'
        '  fsdp = True, max_steps=-1, fsdp_config={"version": 2})\n'
    )
    assert only(text).plain() == {
        "output_dir": "ö", "fsdp": True, "max_steps": -1, "fsdp_config": {"version": 2},
    }  # fmt: skip
    assert places(text) == {
        "output_dir": ("output_dir", '"ö"'),
        "fsdp": ("fsdp", "True"),
        "max_steps": ("max_steps", "-1"),
        "fsdp_config": ("fsdp_config", '{"version": 2}'),
    }
    span = only(text).span
    assert text[span.start : span.end] == text[text.index("Training") : -1]


@pytest.mark.parametrize(
    "call",
    [
        "TrainingArguments(fsdp=True)",
        "transformers.TrainingArguments(fsdp=True)",
        "Seq2SeqTrainingArguments(fsdp=True)",
        "trl.SFTConfig(fsdp=True)",
        "DPOConfig(fsdp=True)",
        "from transformers import TrainingArguments as TA\nTA(fsdp=True)",
        "def f():\n    return [TrainingArguments(fsdp=True)]",
    ],
)
def test_whose_calls(call: str) -> None:
    assert only(call).plain() == {"fsdp": True}


@pytest.mark.parametrize(
    "text",
    [
        "Arguments(fsdp=True)",
        "LoraConfig(fsdp=True)",
        "from transformers import Trainer as TA\nTA(fsdp=True)",
        "class TrainingArguments: fsdp = True",
    ],
)
def test_other_calls_are_left_alone(text: str) -> None:
    assert training_arguments(text) == []


def test_several_calls_in_their_order() -> None:
    text = "f(TrainingArguments(seed=1), TrainingArguments(seed=2))\nSFTConfig(seed=3)"
    assert [node.plain() for node in training_arguments(text)] == [{"seed": 1}, {"seed": 2}, {"seed": 3}]


def test_what_only_a_run_knows() -> None:
    found = only("TrainingArguments(learning_rate=lr, fsdp=f(), betas=[1, x], bf16=not fp16)")
    assert found.plain() == {
        "learning_rate": UNKNOWN,
        "fsdp": UNKNOWN,
        "betas": UNKNOWN,
        "bf16": UNKNOWN,
    }
    assert not found.open


@pytest.mark.parametrize("arguments", ["fsdp=True, **more", "*all, fsdp=True", "'o', *rest, fsdp=True"])
def test_unpacking_may_bring_more(arguments: str) -> None:
    found = only(f"TrainingArguments({arguments})")
    assert found.open
    assert found.plain() == {"fsdp": True}


def test_the_first_argument_is_output_dir() -> None:
    text = 'TrainingArguments("out", True, fsdp=True)'
    assert only(text).plain() == {"output_dir": "out", "fsdp": True}
    assert places(text)["output_dir"] == ('"out"', '"out"')


def test_what_is_no_python() -> None:
    with pytest.raises(NotPython):
        training_arguments("TrainingArguments(")
