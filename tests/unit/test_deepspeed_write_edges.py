"""Conditions of the writer of DeepSpeed configs, each at the Plan where it alone decides."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.formats.deepspeed.write import config_of, drafted
from dsconf.plan import (
    Batch,
    Checkpoint,
    Clipping,
    Launch,
    LossScaling,
    Offload,
    OneCycle,
    Optimizer,
    Plan,
    Precision,
    Sharding,
    TorchSchedule,
    Warmup,
    Wrapping,
)

ZERO3 = Plan(batch=Batch(micro=1, accumulation=1), sharding=Sharding(partition="parameters"))
WHOLE = ZERO3.model_copy(update={"sharding": Sharding()})
ZERO1 = ZERO3.model_copy(update={"sharding": Sharding(partition="optimizer", reshard_after_forward=False)})


def outcome(plan: Plan, field: str) -> str:
    return drafted(plan)[1][field].outcome


def changed(plan: Plan, **changes: Any) -> Plan:
    return plan.model_copy(update=changes)


def test_only_whole_weights_are_gathered_when_saved() -> None:
    for weights, gathers in (("full", True), ("sharded", False), ("local", False)):
        plan = changed(ZERO3, checkpoint=Checkpoint.model_validate({"weights": weights}))
        section = config_of(plan)["zero_optimization"]
        assert section["stage3_gather_16bit_weights_on_model_save"] is gathers


def test_experts_are_leaves_at_stage_3_only() -> None:
    experts = Wrapping(unused_parameters=True)
    actions = [
        drafted(changed(plan, wrapping=experts))[1]["wrapping.unused_parameters"].action
        for plan in (ZERO3, ZERO1, WHOLE)
    ]
    assert ["leaf_module" in str(action) for action in actions] == [True, False, False]


@pytest.mark.parametrize(
    ("launch", "command"),
    [
        (Launch(world_size=9, gpus_per_node=4), "deepspeed --num_nodes 3 --num_gpus 4 train.py"),
        (Launch(world_size=8, machines=2), "deepspeed --num_nodes 2 train.py"),
        (Launch(world_size=8), "deepspeed --num_gpus 8 train.py"),
        (Launch(), ""),
    ],
    ids=str,
)
def test_the_command_that_starts_the_ranks(launch: Launch, command: str) -> None:
    assert drafted(changed(ZERO3, launch=launch))[1]["launch.world_size"].target == command


def test_without_zero_nothing_is_offloaded_and_the_kernel_is_that_of_the_gpu() -> None:
    lion = Optimizer(name="Lion", arguments={"lr": 0.1}, own_kernel=True, sign_of_zero="negative")
    plan = changed(WHOLE, optimizer=lion, offload=Offload(optimizer=True))
    assert outcome(plan, "optimizer.name") == "exact"
    assert outcome(changed(ZERO1, optimizer=lion, offload=Offload(optimizer=True)), "optimizer.name") == (
        "approximate"
    )


def test_fp16_is_never_written_without_zero() -> None:
    """There DeepSpeed divides gradients by a scale that the loss never had."""
    stages = [
        config_of(changed(WHOLE, precision=Precision(compute=compute, steps_before=True)))[
            "zero_optimization"
        ]
        for compute in ("bf16", "fp16")
    ]
    assert stages == [{"stage": 0}, {"stage": 1}]


def test_adagrad_is_the_one_class_of_torch_that_zero_knows_of_those_it_does_not_build_itself() -> None:
    untested = "zero_allow_untested_optimizer"
    for name, plan, wanted in (("Adagrad", ZERO1, False), ("SGD", ZERO1, True), ("SGD", WHOLE, False)):
        config = config_of(changed(plan, optimizer=Optimizer(name=name, arguments={"lr": 0.1})))
        assert (untested in config) is wanted, name


@pytest.mark.parametrize(("peak", "wanted"), [(0.1, "exact"), (0.2, "no-effect")])
def test_an_lr_is_replaced_only_by_another_peak(peak: float, wanted: str) -> None:
    warmup = Warmup(name="WarmupLR", min_lr=0.0, max_lr=peak, warmup_steps=5, warmup="linear")
    plan = changed(ZERO1, optimizer=Optimizer(name="AdamW", arguments={"lr": 0.1}), schedule=warmup)
    assert outcome(plan, "optimizer.lr") == wanted
    assert config_of(plan)["optimizer"]["params"]["lr"] == peak


@pytest.mark.parametrize(("decay", "wanted"), [(0.0, "exact"), (0.1, "approximate")])
def test_norms_are_spared_where_nothing_decays(decay: float, wanted: str) -> None:
    spared = Optimizer(name="AdamW", arguments={"lr": 0.1, "weight_decay": decay}, spares_norms=True)
    assert outcome(changed(ZERO1, optimizer=spared), "optimizer.spares_norms") == wanted


@pytest.mark.parametrize(("plan", "wanted"), [(WHOLE, "exact"), (ZERO1, "unsupported")])
def test_autocast_to_fp16_is_clipped_without_zero_only(plan: Plan, wanted: str) -> None:
    autocast = Precision(autocast="fp16")
    given = changed(plan, precision=autocast, clipping=Clipping(max_norm=1.0))
    assert outcome(given, "precision.autocast") == wanted
    assert ("torch_autocast" in config_of(given)) is (wanted == "exact")


@pytest.mark.parametrize(
    ("minimum", "wanted"), [(None, "approximate"), (0.5, "approximate"), (1.0, "exact"), (4.0, "exact")]
)
def test_a_scale_below_1_is_not_written(minimum: float | None, wanted: str) -> None:
    scaling = LossScaling(scale=16.0, window=10, minimum=minimum)
    plan = changed(ZERO1, precision=Precision(compute="fp16", scaling=scaling))
    assert outcome(plan, "precision.scaling.minimum") == wanted
    assert config_of(plan)["fp16"]["min_loss_scale"] == max(1.0, minimum or 0.0)


def test_a_class_of_torch_schedules_fp32_without_zero_alone() -> None:
    schedule = TorchSchedule(name="StepLR", arguments={"step_size": 3})
    narrow = Precision(compute="bf16", steps_before=True)
    plans = (WHOLE, changed(WHOLE, precision=narrow), ZERO1)
    assert ["scheduler" in config_of(changed(plan, schedule=schedule)) for plan in plans] == [
        True,
        False,
        False,
    ]


def test_no_stairs_on_the_way_down_are_written_beside_stairs_on_the_way_up() -> None:
    for first, written in ((2, 0), (0, None)):
        cycle = OneCycle(min_lr=0.0, max_lr=1.0, first_steps=4, second_steps=4, first_stairs=first)
        params = config_of(changed(ZERO1, schedule=cycle))["scheduler"]["params"]
        assert params.get("cycle_second_stair_count") == written


def test_groups_of_one_rank_need_no_copy_of_the_weights() -> None:
    for size, copies in ((1, None), (2, 2)):
        plan = changed(ZERO3, sharding=Sharding(partition="parameters", group=size))
        assert config_of(plan)["zero_optimization"].get("zero_hpz_partition_size") == copies
