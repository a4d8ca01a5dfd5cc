"""Which configs a file holds, and who is taken to read those inside of others."""

from __future__ import annotations

import pytest

from dsconf.config.context import Context
from dsconf.lint.engine import opener
from dsconf.lint.pieces import Skipped

SECTION = "{bf16: {enabled: auto}, gradient_accumulation_steps: 4}"


def held(text: str, name: str = "a.yaml", context: Context | None = None) -> list[tuple[str, str | None]]:
    """The format and the reader of each config of a file."""
    found = opener(context or Context()).pieces(name, text, recognise=True)
    return [(piece.config.format, piece.config.context.consumer) for piece in found]


@pytest.mark.parametrize("name", ["deepspeed", "my_deepspeed_config", "DS_CONFIG", "ds_cfg", "ds"])
def test_sections_of_deepspeed_by_their_names(name: str) -> None:
    assert held(f"{name}: {SECTION}\n") == [("deepspeed", None)]


@pytest.mark.parametrize("name", ["train", "dsx", "model", "ads"])
def test_others_hold_some_of_its_keys(name: str) -> None:
    with pytest.raises(Skipped):
        held(f"{name}: {SECTION}\ndeepspeed: null\n")
    assert held(f"{name}: {{zero_optimization: {{stage: 2}}}}\n") == [("deepspeed", None)], (
        "nobody else has that"
    )


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (f"base_model: a\ndeepspeed: {SECTION}\n", "axolotl"),
        (f"output_dir: a\nfsdp: true\nds_config: {SECTION}\n", "trainer"),
        (f"dist_config: {{name: deepspeed}}\nds_config: {SECTION}\n", "llamafactory"),
    ],
)
def test_a_trainer_reads_what_stands_in_its_file(text: str, format: str) -> None:
    assert held(text) == [(format, None), ("deepspeed", "trainer")]
    assert held(text, context=Context("lightning")) == [(format, "lightning"), ("deepspeed", "lightning")]


def test_accelerate_has_sections_of_its_own() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config: {gradient_accumulation_steps: 1, gradient_clipping: 1}\n"
    assert held(text) == [("accelerate", None)]


def test_calls_in_python() -> None:
    text = "a = SFTConfig('o', fsdp=True)\nb = TrainingArguments(deepspeed={'zero_optimization': {'stage': 2}})\n"
    assert held(text, "a.py") == [("trainer", None), ("trainer", None), ("deepspeed", None)]
    with pytest.raises(Skipped):
        held("a = TrainingArguments('o', bf16=True)\n", "a.py")
    with pytest.raises(Skipped):
        held("a = Config(fsdp=True)\n", "a.py")
