"""Training arguments as a Plan: what Trainer does with each of them, and what becomes of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.yaml_reader import scan_yaml
from dsconf.document.yaml_style import flow
from dsconf.formats.reading import Reading
from dsconf.formats.trainer.keys import table_for
from dsconf.formats.trainer.read import read
from dsconf.plan import (
    Clipping,
    Length,
    LossScaling,
    Optimizer,
    Precision,
    Sharding,
    TrainerSchedule,
    Unresolved,
    Wrapping,
)


def reading(**values: Any) -> Reading:
    text = "".join(f"{name}: {flow(value)}\n" for name, value in values.items())
    document = scan_yaml("arguments.yaml", text)
    return read(Config(document, table_for(document), Context(), format="trainer"))


def outcome(found: Reading, key: str) -> str | None:
    return next((item.outcome for item in found.items if item.key == key), None)


def test_the_defaults_of_trainer_are_in_force() -> None:
    found = reading(fsdp=True, output_dir="out")
    plan = found.plan
    assert plan.optimizer == Optimizer(
        name="AdamW",
        arguments={"lr": 5e-5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "fused": True},
        spares_norms=True,
    )
    assert plan.schedule == TrainerSchedule(
        name="linear", warmup_steps=0, total_steps=Unresolved(key="max_steps")
    )
    assert plan.clipping == Clipping(max_norm=1.0, skips_not_finite=False)
    assert (plan.batch.micro, plan.batch.accumulation) == (8, 1)
    assert plan.precision == Precision()
    assert plan.sharding == Sharding(partition="parameters")
    assert found.source == "trainer-fsdp2"
    assert {"optim", "learning_rate", "lr_scheduler_type", "max_grad_norm"} <= found.in_force.keys()


def test_a_section_alone_leaves_all_else_open() -> None:
    found = reading(
        fsdp_config={"transformer_layer_cls_to_wrap": ["A", "B"], "cpu_ram_efficient_loading": True}
    )
    assert found.plan.wrapping == Wrapping(block_classes=("A", "B"), separate_ends=True)
    assert found.plan.optimizer is None
    assert found.plan.schedule is None
    assert found.plan.batch.micro is None
    assert found.plan.precision.compute == Unresolved(key="bf16")
    assert found.plan.clipping.max_norm == Unresolved(key="max_grad_norm")


def test_what_is_said_beside_a_section_alone_leaves_the_rest_open() -> None:
    document = scan_yaml("fsdp.yaml", "fsdp_config: {version: 2}\n")
    said = {"bf16": True, "per_device_train_batch_size": 4}
    plan = read(Config(document, table_for(document), Context(), said, format="trainer")).plan
    assert plan.precision.compute == "bf16"
    assert plan.batch.micro == 4
    assert plan.batch.accumulation is None
    assert plan.optimizer is None
    assert plan.clipping.max_norm == Unresolved(key="max_grad_norm")


def test_a_section_without_fsdp_divides_nothing() -> None:
    found = reading(output_dir="out", fsdp=False, fsdp_config={"cpu_offload": True})
    assert found.source == "trainer"
    assert found.plan.sharding.partition == "nothing"
    assert not found.plan.offload.parameters
    assert outcome(found, "fsdp_config.cpu_offload") == "no-effect"


@pytest.mark.parametrize(
    ("fsdp", "section", "partition", "offloads"),
    [
        (True, {}, "parameters", False),
        (True, {"reshard_after_forward": False}, "gradients", False),
        ("shard_grad_op offload", {}, "gradients", True),
        (["full_shard", "auto_wrap"], {}, "parameters", False),
        (True, {"cpu_offload": "false"}, "parameters", True),
        ("shard_grad_op", {"version": 1}, "parameters", False),
    ],
)
def test_words_and_sections_say_what_is_divided(
    fsdp: object, section: dict[str, object], partition: str, offloads: bool
) -> None:
    plan = reading(output_dir="out", fsdp=fsdp, fsdp_config=section).plan
    assert plan.sharding.partition == partition
    assert plan.offload.parameters is plan.offload.optimizer is offloads


def test_bf16_under_fsdp2_casts_and_computes_under_autocast() -> None:
    precision = reading(fsdp=True, bf16=True, output_dir="out").plan.precision
    assert (precision.compute, precision.autocast, precision.reduce) == ("bf16", "bf16", "bf16")
    assert not precision.rounded_masters
    assert precision.masters == "fp32"


def test_fp16_has_the_scale_of_torch() -> None:
    scaling = reading(fsdp=True, fp16=True, output_dir="out").plan.precision.scaling
    assert scaling == LossScaling(scale=65536.0, window=2000, hysteresis=1, refill=False, minimum=0.0)


def test_gradients_reduced_on_each_micro_batch_are_added_up_in_fp32() -> None:
    each = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    kept = reading(fsdp=True, bf16=True, gradient_accumulation_steps=4, output_dir="out")
    reduced = reading(
        fsdp=True, bf16=True, gradient_accumulation_steps=4, accelerator_config=each, output_dir="out"
    )
    assert kept.remarks["gradient_accumulation_steps"].outcome == "close"
    assert "gradient_accumulation_steps" not in reduced.remarks
    assert reduced.plan.precision.accumulate == "fp32"
    assert kept.plan.precision.accumulate is None
    assert reduced.fields["accelerator_config"] == "precision.accumulate"


@pytest.mark.parametrize(
    ("optim", "more", "expected"),
    [
        ("adamw_torch", {}, ("AdamW", {"betas": (0.9, 0.999), "eps": 1e-8})),
        ("sgd", {"optim_args": "momentum=0.9, nesterov=true"}, ("SGD", {"momentum": 0.9, "nesterov": True})),
        ("rmsprop", {"optim_args": "alpha=0.9"}, ("RMSprop", {"alpha": 0.9})),
        ("adagrad", {}, ("Adagrad", {})),
    ],
)
def test_optimizers_of_torch(optim: str, more: dict[str, Any], expected: tuple[str, dict[str, Any]]) -> None:
    found = reading(fsdp=True, output_dir="out", optim=optim, learning_rate=0.01, weight_decay=0.1, **more)
    name, arguments = expected
    assert found.plan.optimizer is not None
    assert found.plan.optimizer.name == name
    assert found.plan.optimizer.arguments == {"lr": 0.01, "weight_decay": 0.1, **arguments}


@pytest.mark.parametrize(
    "optim", ["adafactor", "adamw_bnb_8bit", "lion_32bit", "galore_adamw", "schedule_free_sgd"]
)
def test_other_optimizers_are_said(optim: str) -> None:
    found = reading(fsdp=True, output_dir="out", optim=optim, learning_rate=0.01)
    assert found.plan.optimizer is None
    assert outcome(found, "optim") == "unsupported"
    assert outcome(found, "learning_rate") == "no-effect"


@pytest.mark.parametrize("text", ["momentum", "momentum=a=b", "momentum=fast"])
def test_optim_args_that_say_nothing_are_unsupported(text: str) -> None:
    found = reading(fsdp=True, output_dir="out", optim="sgd", optim_args=text)
    assert outcome(found, "optim_args") == "unsupported"


@pytest.mark.parametrize(
    ("arguments", "warmup", "total"),
    [
        ({"max_steps": 100, "warmup_steps": 10}, 10, 100),
        ({"max_steps": 101, "warmup_steps": 0.05}, 6, 101),
        ({"max_steps": 101, "warmup_ratio": 0.05}, 6, 101),
        ({"max_steps": 100, "warmup_ratio": 0.5, "warmup_steps": 7}, 7, 100),
        ({"warmup_steps": 0.05}, 0.05, Unresolved(key="max_steps")),
        ({"num_train_epochs": 3, "max_steps": -1, "warmup_steps": 5}, 5, Unresolved(key="max_steps")),
    ],
)
def test_warm_up_and_end_of_a_schedule(arguments: dict[str, Any], warmup: object, total: object) -> None:
    found = reading(fsdp=True, output_dir="out", lr_scheduler_type="cosine", **arguments).plan.schedule
    assert found == TrainerSchedule.model_validate(
        {"name": "cosine", "warmup_steps": warmup, "total_steps": total}
    )


def test_a_constant_rate_has_neither() -> None:
    found = reading(fsdp=True, output_dir="out", lr_scheduler_type="constant", warmup_steps=5, max_steps=9)
    assert found.plan.schedule == TrainerSchedule(name="constant", warmup_steps=0)
    assert outcome(found, "warmup_steps") == "no-effect"


@pytest.mark.parametrize("name", ["constant", "cosine", "greedy"])
@pytest.mark.parametrize(
    ("given", "length", "counts"),
    [
        ({"max_steps": 9}, Length(steps=9), "max_steps"),
        ({"max_steps": 9, "num_train_epochs": 2}, Length(steps=9), "max_steps"),
        ({"max_steps": -1, "num_train_epochs": 2}, Length(epochs=2), "num_train_epochs"),
        ({"num_train_epochs": 2.5}, Length(epochs=2.5), "num_train_epochs"),
        ({}, Length(epochs=3.0), "num_train_epochs"),
    ],
)
def test_when_training_ends(name: str, given: dict[str, object], length: Length, counts: str) -> None:
    found = reading(fsdp=True, output_dir="out", lr_scheduler_type=name, **given)
    assert found.plan.length == length
    kind = "steps" if length.epochs is None else "epochs"
    assert found.fields[counts] == ("schedule.total_steps" if name == "cosine" else f"length.{kind}")
    for other in given.keys() - {counts}:
        assert outcome(found, other) == "no-effect"


@pytest.mark.parametrize("name", ["reduce_lr_on_plateau", "greedy", "none_such"])
def test_schedules_that_go_by_more_than_steps_are_said(name: str) -> None:
    found = reading(fsdp=True, output_dir="out", lr_scheduler_type=name)
    assert found.plan.schedule is None
    assert outcome(found, "lr_scheduler_type") == "unsupported"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("neftune_noise_alpha", 5, "unsupported"),
        ("label_smoothing_factor", 0.1, "unsupported"),
        ("label_smoothing_factor", 0.0, "no-effect"),
        ("auto_find_batch_size", True, "approximate"),
        ("use_liger_kernel", True, "close"),
        ("torch_compile", True, "no-effect"),
        ("logging_steps", 10, "no-effect"),
        ("seed", 1, "no-effect"),
        ("model_name_or_path", "a/b", "no-effect"),
        ("fsdp_transformer_layer_cls_to_wrap", "A", "rejected-by-source"),
        ("fsdp_min_num_params", 1, "rejected-by-source"),
        ("tf32", True, "close"),
        ("parallelism_config", {"dp_shard_size": 2}, "unsupported"),
    ],
)
def test_arguments_without_a_place(key: str, value: object, expected: str) -> None:
    found = reading(fsdp=True, output_dir="out", **{key: value})
    assert outcome(found, key) == expected


@pytest.mark.parametrize(
    ("in_section", "beside", "expected"),
    [(None, None, None), (True, None, True), (None, True, True), (False, True, False), (None, False, False)],
)
def test_recomputation_is_said_in_two_places(
    in_section: bool | None, beside: bool | None, expected: bool | None
) -> None:
    section = {} if in_section is None else {"activation_checkpointing": in_section}
    more = {} if beside is None else {"gradient_checkpointing": beside}
    assert reading(fsdp=True, output_dir="out", fsdp_config=section, **more).plan.recompute is expected


def test_a_file_for_fsdp_config_is_not_read() -> None:
    found = reading(fsdp=True, output_dir="out", fsdp_config="fsdp.json")
    assert outcome(found, "fsdp_config") == "unsupported"


def test_numbers_in_text_count() -> None:
    found = reading(fsdp=True, output_dir="out", learning_rate="1e-5")
    assert found.plan.optimizer is not None
    assert found.plan.optimizer.arguments["lr"] == 1e-5


def test_zero_clips_nothing() -> None:
    assert reading(fsdp=True, output_dir="out", max_grad_norm=0).plan.clipping.max_norm is None
