"""Whole translations to and from Trainer and Axolotl: every key is accounted for, and what comes back is the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from corpus import CORPUS, configs, corpus_yaml, needs_corpus
from plans import differences
from translated import complaints

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.source import Unusable, read_text
from dsconf.lint.engine import opener
from dsconf.lint.pieces import Skipped
from dsconf.plan import Plan, Unresolved, Warmup
from dsconf.translate.readers import read
from dsconf.translate.run import Refused, Translation, translate

ANY = Context()
TARGETS = ("trainer-fsdp2", "trainer-deepspeed", "axolotl")
MERGED = """\
output_dir: out
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
bf16: true
optim: sgd
lr_scheduler_type: cosine
max_steps: 100
deepspeed:
  train_micro_batch_size_per_gpu: auto
  gradient_accumulation_steps: auto
  gradient_clipping: 0.3
  zero_optimization:
    stage: 2
"""
AXOLOTL = """\
base_model: m
micro_batch_size: 4
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
bf16: true
optimizer: adamw_torch
lr_scheduler: cosine
max_steps: 100
deepspeed:
  train_micro_batch_size_per_gpu: auto
  gradient_accumulation_steps: auto
  bf16: {enabled: auto}
  zero_optimization: {stage: 2}
"""
PYTHON = """\
from transformers import TrainingArguments

arguments = TrainingArguments(
    output_dir=folder,
    fsdp="full_shard auto_wrap",
    fsdp_config={"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
    per_device_train_batch_size=4,
    learning_rate=1e-5,
    logging_steps=steps,
    bf16=True,
)
"""


def config_of(path: Path, context: Context) -> Config:
    return opener(context).pieces(str(path), read_text(str(path)), recognise=False)[0].config


def plan_of(path: Path, context: Context) -> Plan:
    return read(config_of(path, context)).reading.plan


def to(target: str, folder: Path, name: str, text: str) -> Translation:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return translate(str(path), target, ANY, {}, ())


def lost(before: Plan, after: Plan) -> list[str]:
    """The fields that one Plan determines, and that are others in the other one."""
    sets = isinstance(before.schedule, Warmup) and before.schedule.max_lr is not None
    overwritten = "optimizer.lr" if sets else ""
    open_ = isinstance(before.precision.compute, Unresolved)
    return [
        str(each)
        for each in differences(before, after)
        if each.one is not None
        and not (isinstance(each.one, dict) and each.one.keys() == {"key"})
        # Trainer can save a model only if its weights are gathered.
        and each.field not in (overwritten, "checkpoint.weights")
        and not (open_ and each.field.startswith("precision."))
    ]


def test_arguments_and_the_config_in_them_are_one_source(tmp_path: Path) -> None:
    done = to("trainer-fsdp2", tmp_path, "arguments.yaml", MERGED)
    outcomes = {item.key: item.outcome for item in done.report.items}
    assert outcomes["deepspeed.gradient_clipping"] == "close"
    assert outcomes["optim"] == "exact"
    assert "optim: sgd" in done.text
    assert "max_grad_norm: 0.3" in done.text
    assert "bf16: true" in done.text
    assert Counter(item.key for item in done.report.items).most_common(1)[0][1] == 1


def test_arguments_that_contradict_the_config_are_those_that_trainer_refuses(tmp_path: Path) -> None:
    text = MERGED.replace("train_micro_batch_size_per_gpu: auto", "train_micro_batch_size_per_gpu: 8")
    done = to("trainer-fsdp2", tmp_path, "arguments.yaml", text)
    outcomes = {item.key: item.outcome for item in done.report.items}
    assert outcomes["per_device_train_batch_size"] == "rejected-by-source"
    assert "per_device_train_batch_size: 8" in done.text


@pytest.mark.parametrize("target", ["deepspeed", "fsdp2", "trainer-deepspeed", "axolotl"])
def test_the_report_shows_what_stands_in_the_config_not_what_trainer_makes_of_it(
    target: str, tmp_path: Path
) -> None:
    text = MERGED.replace("  gradient_accumulation_steps: auto\n", "")
    items = {item.key: item for item in to(target, tmp_path, "arguments.yaml", text).report.items}
    filled = items["deepspeed.train_micro_batch_size_per_gpu"]
    assert (filled.value, filled.written) == ("auto", True)
    assert "4" in filled.target
    put_in = {key: items[f"deepspeed.{key}"] for key in ("gradient_accumulation_steps", "bf16.enabled")}
    assert {key: (item.value, item.written) for key, item in put_in.items()} == {
        "gradient_accumulation_steps": (2, False),
        "bf16.enabled": (True, False),
    }


def test_an_axolotl_config_with_deepspeed_is_read_with_its_arguments(tmp_path: Path) -> None:
    done = to("trainer-fsdp2", tmp_path, "axolotl.yaml", AXOLOTL)
    assert done.report.source == "axolotl-deepspeed"
    assert "per_device_train_batch_size: 4" in done.text
    assert "bf16: true" in done.text
    assert "optim: adamw_torch\n" in done.text.replace("  # optimizer", "")


def test_a_default_that_leaves_something_open_is_said_once(tmp_path: Path) -> None:
    done = to("axolotl", tmp_path, "arguments.yaml", "output_dir: out\nfsdp: true\nlearning_rate: 1.0e-4\n")
    keys = Counter(item.key for item in done.report.items)
    assert keys["num_train_epochs"] == 1
    assert keys.most_common(1)[0][1] == 1


ENDS = "output_dir: out\nfsdp: true\nlr_scheduler_type: {}\n"


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_axolotl_is_told_the_epochs_that_trainer_has_by_default(schedule: str, tmp_path: Path) -> None:
    done = to("axolotl", tmp_path, "arguments.yaml", ENDS.format(schedule))
    assert "num_epochs: 3.0  # num_train_epochs, not written: Trainer's default" in done.text
    back = to("trainer-fsdp2", tmp_path, "arguments.yaml", ENDS.format(schedule) + "num_train_epochs: 5\n")
    assert "num_train_epochs: 5  # num_train_epochs" in back.text
    (item,) = [each for each in back.report.items if each.key == "num_train_epochs"]
    assert item.outcome == "exact"


def test_how_long_to_train_is_up_to_a_script_where_there_is_one(tmp_path: Path) -> None:
    text = ENDS.format("constant") + "num_train_epochs: 5\n"
    for target in ("fsdp2", "accelerate-fsdp2", "deepspeed", "accelerate-deepspeed"):
        done = to(target, tmp_path, "arguments.yaml", text)
        (item,) = [each for each in done.report.items if each.key == "num_train_epochs"]
        assert (item.outcome, item.note) == ("no-effect", "how long to train is up to the script")


DECAYS = """\
output_dir: out
num_train_epochs: 5
learning_rate: 1.0e-4
deepspeed:
  train_micro_batch_size_per_gpu: auto
  zero_optimization: {stage: 2}
  optimizer: {type: AdamW, params: {lr: auto}}
  scheduler:
    type: WarmupDecayLR
    params: {total_num_steps: TOTAL, warmup_num_steps: 10}
"""


@pytest.mark.parametrize("target", ["trainer-fsdp2", "trainer-deepspeed"])
@pytest.mark.parametrize(("kind", "total"), [("WarmupDecayLR", "auto"), ("WarmupLR", "")])
def test_epochs_end_a_schedule_of_deepspeed_as_well(
    kind: str, total: str, target: str, tmp_path: Path
) -> None:
    text = DECAYS.replace("total_num_steps: TOTAL, ", f"total_num_steps: {total}, " if total else "")
    done = to(target, tmp_path, "arguments.yaml", text.replace("WarmupDecayLR", kind))
    assert "num_train_epochs: 5  # num_train_epochs\n" in done.text
    assert "max_steps" not in done.text
    (item,) = [each for each in done.report.items if each.key == "num_train_epochs"]
    assert (item.outcome, item.target) == ("exact", "num_train_epochs: 5")


def test_defaults_are_called_those_of_the_framework_that_has_them(tmp_path: Path) -> None:
    inner = '{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}}'
    (tmp_path / "ds.json").write_text(inner, encoding="utf-8")
    trainer = to(
        "fsdp2", tmp_path, "arguments.yaml", f"output_dir: out\nfp16: true\ndeepspeed: {inner}\n"
    ).text
    assert "# deepspeed.fp16.hysteresis, not written: DeepSpeed's default" in trainer
    assert "# warmup_steps, not written: Trainer's default" in trainer
    assert "# deepspeed.gradient_accumulation_steps, not written: Trainer's default" in trainer
    by_file = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\n"
    flat = "distributed_type: DEEPSPEED\nmixed_precision: fp16\ndeepspeed_config: {zero_stage: 2}\n"
    for text in (by_file, flat):
        code = to("fsdp2", tmp_path, "accelerate.yaml", text).text
        assert "# fp16.hysteresis, not written: DeepSpeed's default" in code
    assert "gradient_clipping, not written: Accelerate's default" in code


def test_training_arguments_in_code_are_a_source(tmp_path: Path) -> None:
    done = to("trainer-fsdp2", tmp_path, "train.py", PYTHON)
    assert "learning_rate: 1.0e-05" in done.text
    assert done.report.supported


@needs_corpus
@pytest.mark.parametrize("target", TARGETS)
def test_every_key_of_every_public_config_is_accounted_for(target: str) -> None:
    paths = [*configs(), *corpus_yaml(), *sorted(Path(str(CORPUS)).glob("other_yaml/*.json"))]
    silent: dict[str, list[str]] = {}
    dirty: dict[str, list[str]] = {}
    known = 0
    for path in paths:
        try:
            opener(ANY).pieces(str(path), read_text(str(path)), recognise=True)
            done = translate(str(path), target, ANY, {}, ())
            written = read(config_of(path, ANY)).reading.written
        except (Refused, Skipped, Unusable):
            continue
        known += 1
        said = {item.key for item in done.report.items}
        above = {key.rpartition(".")[0] for key in written}
        missing = [key for key in written if key not in above and not _within(key, said)]
        if missing:
            silent[path.name] = missing
        # A DeepSpeed config stays as it is, and keeps what is to be said of it.
        own = {each[:5] for each in complaints(str(path), read_text(str(path)))}
        found = [each for each in complaints("arguments.yaml", done.text) if each[:5] not in own]
        if done.report.supported and found:
            dirty[path.name] = found
    assert known > 250
    assert silent == {}
    assert dirty == {}


def _within(key: str, said: set[str]) -> bool:
    parts = key.split(".")
    return any(".".join(parts[:length]) in said for length in range(1, len(parts) + 1))


@needs_corpus
def test_deepspeed_configs_come_back_from_training_arguments(tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    known = 0
    for path in configs():
        try:
            translate(str(path), "trainer-deepspeed", ANY, {}, ())
            context = Context(world_size=plan_of(path, ANY).ranks or 8)
            done = translate(str(path), "trainer-deepspeed", context, {}, ())
        except Refused:
            continue
        known += 1
        there = tmp_path / "arguments.yaml"
        there.write_text(done.text, encoding="utf-8")
        found = lost(plan_of(path, context), plan_of(there, context))
        if found:
            wrong[path.name] = found
    assert known > 200
    assert wrong == {}


@pytest.mark.parametrize(("norm", "notes"), [("auto", 2), ("1.0", 1)])
def test_what_accelerate_fills_in_is_told_beside_what_deepspeed_does_with_it(
    norm: str, notes: int, tmp_path: Path
) -> None:
    text = f"distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: 2, gradient_clipping: {norm}}}\n"
    done = to("fsdp2", tmp_path, "accelerate.yaml", text)
    (item,) = [each for each in done.report.items if each.key == "deepspeed_config.gradient_clipping"]
    told = ("Accelerate puts 1.0 for auto" in item.note, "DeepSpeed's factor" in item.note)
    assert (item.outcome, sum(told)) == ("close", notes)
