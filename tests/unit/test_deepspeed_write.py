"""From the Plan to a DeepSpeed config: explicit keys, and what lands how."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from configs import ALL_AUTO, config_of
from pydantic import BaseModel

from dsconf.formats.deepspeed.read import read
from dsconf.formats.deepspeed.write import config_of as written
from dsconf.formats.deepspeed.write import drafted, needs_of, write
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import Request
from dsconf.plan import (
    Batch,
    Checkpoint,
    Clipping,
    Launch,
    LossScaling,
    Offload,
    Optimizer,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    TorchSchedule,
    TrainerSchedule,
    Unresolved,
    Warmup,
)

ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
PYTORCH = Plan(
    batch=Batch(micro=2, accumulation=4),
    precision=Precision(
        compute="bf16", reduce="fp32", accumulate="fp32", rounded_masters=False, units_cast="all"
    ),
    sharding=Sharding(partition="parameters"),
    optimizer=Optimizer(name="AdamW", arguments=dict(ADAMW)),
    clipping=Clipping(skips_not_finite=False),
)
"""What a script of FSDP2 has."""


def landing(plan: Plan, field: str) -> Landing:
    return drafted(plan)[1][field]


def at(stage: Any, **changes: Any) -> Plan:
    """PYTORCH with another partition."""
    sharding = Sharding(partition=stage, reshard_after_forward=False)
    return PYTORCH.model_copy(update={"sharding": sharding, **changes})


def precision(**changes: Any) -> Plan:
    return at("gradients", precision=Precision(**changes))


def optimizer(
    name: str, offload: bool = False, precision: Precision = PYTORCH.precision, **settings: Any
) -> Plan:
    """PYTORCH at stage 2 with an optimizer."""
    arguments = settings.pop("arguments", {"lr": 0.1})
    built = Optimizer(name=name, arguments=arguments, **settings)
    return at("gradients", optimizer=built, offload=Offload(optimizer=offload), precision=precision)


def test_the_text_is_json_of_two_spaces_and_of_the_dict() -> None:
    text = write(PYTORCH, Request("origin", {})).text
    assert json.loads(text) == written(PYTORCH)
    assert text.startswith('{\n  "train_micro_batch_size_per_gpu": 2,\n')
    assert text.endswith("}\n")


def test_a_script_of_fsdp2_as_zero3() -> None:
    assert written(PYTORCH) == {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.0,
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        "optimizer": {"type": "AdamW", "params": ADAMW | {"betas": [0.9, 0.95], "torch_adam": True}},
        "zero_optimization": {"stage": 3},
    }


@pytest.mark.parametrize("field", ["precision.compute", "precision.rounded_masters", "precision.units_cast"])
def test_what_deepspeed_does_otherwise_in_bf16_is_approximate(field: str) -> None:
    assert landing(PYTORCH, field).outcome == "approximate"
    assert landing(PYTORCH, field).note


def test_inputs_that_fsdp2_casts_are_left_to_the_script() -> None:
    assert "images.to(torch.bfloat16)" in str(landing(PYTORCH, "precision.units_cast").action)


@pytest.mark.parametrize(
    ("norm", "expected", "outcome"),
    [
        (None, 0.0, "exact"),
        (float("inf"), 0.0, "exact"),
        (0.5, 0.5, "close"),
        (Unresolved(key="max_grad_norm"), "auto", "needs-value"),
    ],
)
def test_the_bound_of_the_norm_is_always_written(norm: Any, expected: object, outcome: str) -> None:
    plan = PYTORCH.model_copy(update={"clipping": Clipping(max_norm=norm)})
    assert written(plan)["gradient_clipping"] == expected
    assert landing(plan, "clipping.max_norm").outcome == outcome


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every field of a section that is no section itself."""
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


WITH_ANOTHER = {
    "optimizer": "its name and its arguments land",
    "schedule": "its name and its arguments land",
    "precision.autocast": "lands where it is on",
    "precision.scaling": "lands where there is one",
    "precision.steps_before": "decides sharding.partition",
}


def test_every_field_of_the_plan_lands() -> None:
    assert set(fields(Plan)) - set(drafted(PYTORCH)[1]) == set(WITH_ANOTHER)
    scaling = LossScaling(scale=16.0, window=10, hysteresis=1, refill=False, minimum=1.0)
    for precision in (
        Precision(compute="fp16", scaling=scaling),
        Precision(autocast="fp16", scaling=scaling),
    ):
        landings = drafted(PYTORCH.model_copy(update={"precision": precision}))[1]
        assert {f"precision.scaling.{name}" for name in LossScaling.model_fields} <= set(landings)
    for name in Optimizer.model_fields.keys() - {"arguments", "own_kernel", "sign_of_zero", "decoupled"}:
        plan = optimizer("AdamW", bias_correction=False)
        assert f"optimizer.{name}" in drafted(plan)[1]


# ---- batch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (Batch(micro=2, accumulation=3), {"micro": 2, "steps": 3}),
        (Batch(micro=2, accumulation=3, total=12, world_size=2), {"total": 12, "micro": 2, "steps": 3}),
        (Batch(micro=Unresolved(key="a"), accumulation=1, total=12), {"total": 12, "steps": 1}),
        (Batch(micro=2, accumulation=Unresolved(key="a"), total=12), {"total": 12, "micro": 2}),
        (Batch(micro=Unresolved(key="a"), accumulation=3), {"micro": "auto", "steps": 3}),
        (Batch(), {}),
    ],
)
def test_batch(batch: Batch, expected: dict[str, Any]) -> None:
    keys = {
        "total": "train_batch_size",
        "micro": "train_micro_batch_size_per_gpu",
        "steps": "gradient_accumulation_steps",
    }
    config = written(PYTORCH.model_copy(update={"batch": batch}))
    assert {name: config[key] for name, key in keys.items() if key in config} == expected


def test_a_batch_that_nobody_said_needs_a_value() -> None:
    plan = PYTORCH.model_copy(update={"batch": Batch()})
    for field in ("batch.micro", "batch.accumulation"):
        assert landing(plan, field).outcome == "needs-value"
        assert landing(plan, field).action


def test_the_total_of_tensor_parallel_groups_is_left_out() -> None:
    """DeepSpeed counts every GPU in it."""
    batch = Batch(micro=2, accumulation=1, total=16, world_size=8)
    plan = PYTORCH.model_copy(update={"batch": batch, "parallelism": Parallelism(tensor=2)})
    assert "train_batch_size" not in written(plan)
    assert written(plan)["tensor_parallel"] == {"autotp_size": 2}
    assert landing(plan, "batch.total").outcome == "approximate"


# ---- precision ---------------------------------------------------------------------------------------------------


def test_a_dtype_that_is_left_open_is_auto_in_both_sections() -> None:
    config = written(precision(compute=Unresolved(key="mixed_precision")))
    assert (config["bf16"], config["fp16"]) == ({"enabled": "auto"}, {"enabled": "auto"})
    said = landing(precision(compute=Unresolved(key="mixed_precision")), "precision.compute")
    assert said.target == "bf16.enabled, fp16.enabled"
    assert "leave the other section out" in str(said.action)
    config = written(precision(compute=Unresolved(key="fp16.enabled")))
    assert (config.get("bf16"), config["fp16"]) == (None, {"enabled": "auto"})


def test_without_zero_nothing_is_added_up_in_another_dtype() -> None:
    """DeepSpeed stops there: NotImplementedError."""
    wide = Precision(compute="bf16", accumulate="fp32", steps_before=True)
    assert "data_types" not in written(at("nothing", precision=wide))
    assert landing(at("nothing", precision=wide), "precision.accumulate").outcome == "approximate"
    one = Batch(micro=1, accumulation=1)
    assert landing(at("nothing", precision=wide, batch=one), "precision.accumulate").outcome == "no-effect"


def test_masters_in_bf16() -> None:
    plan = precision(compute="bf16", masters="bf16")
    section = written(plan)["bf16"]
    assert (section["bf16_master_weights_and_grads"], section["bf16_optimizer_states"]) == (True, True)
    offloaded = plan.model_copy(update={"offload": Offload(optimizer=True)})
    assert "torch_adam" not in written(offloaded)["optimizer"]["params"], "only DeepSpeed's Adam may do it"
    assert landing(offloaded, "optimizer.name").outcome == "close"


@pytest.mark.parametrize(
    "plan",
    [
        optimizer("SGD", offload=True, precision=Precision(compute="bf16", masters="bf16")),
        precision(compute="bf16", masters="bf16", moments="fp32"),
        precision(compute="fp16", masters="fp16", scaling=LossScaling(scale=1)),
        at("nothing", precision=Precision(compute="bf16", masters="bf16", steps_before=True)),
        at("optimizer", precision=Precision(compute="bf16", masters="bf16", accumulate="fp32")),
    ],
)
def test_masters_that_deepspeed_does_not_have(plan: Plan) -> None:
    found = landing(plan, "precision.masters")
    assert found.outcome == "unsupported"
    assert found.note
    assert found.action
    assert "bf16_master_weights_and_grads" not in written(plan).get("bf16", {})


def test_the_scale_of_the_loss() -> None:
    scaling = LossScaling(scale=4096.0, window=500, hysteresis=1, refill=True, minimum=2.0)
    assert written(precision(compute="fp16", scaling=scaling))["fp16"] == {
        "enabled": True,
        "initial_scale_power": 12,
        "loss_scale_window": 500,
        "hysteresis": 1,
        "consecutive_hysteresis": True,
        "min_loss_scale": 2.0,
    }
    assert written(precision(compute="fp16", scaling=LossScaling(scale=64.0)))["fp16"]["loss_scale"] == 64.0
    assert written(precision(compute="fp16"))["fp16"]["loss_scale"] == 1.0


def test_a_scale_that_is_no_power_of_2_is_rounded_to_one() -> None:
    plan = precision(compute="fp16", scaling=LossScaling(scale=1000.0, window=10))
    assert written(plan)["fp16"]["initial_scale_power"] == 10
    assert landing(plan, "precision.scaling.scale").outcome == "approximate"
    assert landing(plan, "precision.scaling.minimum").outcome == "approximate", "torch's scale has none"


@pytest.mark.parametrize(
    ("reduce", "modules", "outcome"),
    [("fp32", [], "exact"), (None, [], "exact"), ("bf16", None, "exact"), ("fp16", [], "approximate")],
)
def test_gradients_beside_autocast(reduce: Any, modules: object, outcome: str) -> None:
    plan = precision(autocast="bf16", reduce=reduce)
    section = written(plan)["torch_autocast"]
    assert (section["enabled"], section["dtype"]) == (True, "bfloat16")
    assert section.get("lower_precision_safe_modules") == modules
    assert landing(plan, "precision.reduce").outcome == outcome


def test_autocast_to_fp16_and_clipping_is_refused() -> None:
    plan = precision(autocast="fp16").model_copy(update={"clipping": Clipping(max_norm=1.0)})
    assert landing(plan, "precision.autocast").outcome == "unsupported"
    assert "torch_autocast" not in written(plan)


# ---- optimizer ---------------------------------------------------------------------------------------------------


def test_torchs_defaults_are_written_out() -> None:
    params = written(optimizer("AdamW"))["optimizer"]["params"]
    assert params == {"lr": 0.1, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "torch_adam": True}
    assert written(optimizer("Adam"))["optimizer"]["params"]["weight_decay"] == 0.0


def test_adam_is_not_adamw() -> None:
    section = written(optimizer("Adam"))["optimizer"]
    assert (section["type"], section["params"]["adam_w_mode"]) == ("Adam", False)


def test_deepspeeds_own_kernel_stays() -> None:
    assert "torch_adam" not in written(optimizer("AdamW", own_kernel=True))["optimizer"]["params"]
    assert landing(optimizer("AdamW", own_kernel=True), "optimizer.name").outcome == "exact"


def test_no_bias_correction_needs_deepspeeds_kernel() -> None:
    plan = optimizer("AdamW", bias_correction=False)
    params = written(plan)["optimizer"]["params"]
    assert (params["bias_correction"], params.get("torch_adam")) == (False, None)
    assert landing(plan, "optimizer.name").outcome == "close"


def test_an_argument_that_a_kernel_has_not_is_unsupported() -> None:
    plan = optimizer("AdamW", bias_correction=False, arguments={"amsgrad": True, "maximize": False})
    assert landing(plan, "optimizer.amsgrad").outcome == "unsupported"
    assert landing(plan, "optimizer.maximize").outcome == "exact"


@pytest.mark.parametrize("name", ["SGD", "RMSprop", "NAdam"])
def test_other_classes_of_torch_need_leave(name: str) -> None:
    assert written(optimizer(name))["zero_allow_untested_optimizer"] is True


def test_lion_knows_two_zeros() -> None:
    assert landing(optimizer("Lion", offload=True), "optimizer.name").outcome == "close"
    assert landing(optimizer("Lion"), "optimizer.name").outcome == "approximate"


def test_muon_at_stage_3_reduces_whole_gradients() -> None:
    plan = PYTORCH.model_copy(update={"optimizer": Optimizer(name="Muon", arguments={"lr": 0.1})})
    assert written(plan)["zero_optimization"]["reduce_scatter"] is False


def test_without_an_optimizer_the_script_is_told_what_offload_wants() -> None:
    plan = at("gradients", optimizer=None, offload=Offload(optimizer=True))
    assert "optimizer" not in written(plan)
    assert "zero_force_ds_cpu_optimizer" in str(landing(plan, "offload.optimizer").action)


def test_a_rate_that_the_schedule_replaces_is_not_written() -> None:
    schedule = Warmup(name="WarmupLR", min_lr=0, max_lr=0.5, warmup_steps=3, warmup="linear")
    plan = optimizer("AdamW").model_copy(update={"schedule": schedule})
    assert written(plan)["optimizer"]["params"]["lr"] == 0.5
    assert landing(plan, "optimizer.lr").outcome == "no-effect"


def test_weights_that_do_not_decay_need_a_group_of_their_own() -> None:
    found = landing(optimizer("AdamW", spares_norms=True), "optimizer.spares_norms")
    assert found.outcome == "approximate"
    assert "model_parameters" in str(found.action)


# ---- schedule ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [
        TorchSchedule(name="StepLR", arguments={"step_size": 3}),
        TrainerSchedule(name="cosine", warmup_steps=10, total_steps=Unresolved(key="max_steps")),
    ],
)
def test_a_schedule_that_no_config_holds_is_given_by_the_script(schedule: Any) -> None:
    plan = PYTORCH.model_copy(update={"schedule": schedule})
    assert "scheduler" not in written(plan)
    found = landing(plan, "schedule.name")
    assert found.outcome == "exact"
    assert "lr_scheduler=lambda optimizer:" in str(found.action)


def test_a_schedule_of_torch_stands_in_the_config_where_deepspeed_takes_it() -> None:
    schedule = TorchSchedule(name="StepLR", arguments={"step_size": 3})
    plan = at("nothing", precision=Precision(), schedule=schedule)
    assert written(plan)["scheduler"] == {"type": "StepLR", "params": {"step_size": 3}}


def test_an_open_value_that_nobody_fills_needs_one() -> None:
    schedule = Warmup(
        name="WarmupLR", min_lr=0, max_lr=0.5, warmup_steps=Unresolved(key="a"), warmup=Unresolved(key="b")
    )
    plan = PYTORCH.model_copy(update={"schedule": schedule})
    assert landing(plan, "schedule.warmup_steps").action is not None
    assert landing(plan, "schedule.warmup").outcome == "needs-value"
    assert "warmup_type" not in written(plan)["scheduler"]["params"]


# ---- sharding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "stage"), [("nothing", 0), ("optimizer", 1), ("gradients", 2), ("parameters", 3)]
)
def test_stages_in_fp32(partition: str, stage: int) -> None:
    plan = at(partition, precision=Precision())
    plan = plan.model_copy(
        update={"sharding": plan.sharding.model_copy(update={"reshard_after_forward": True})}
    )
    assert written(plan)["zero_optimization"]["stage"] == stage
    assert landing(plan, "sharding.partition").outcome == "exact"


def test_weights_that_are_never_freed_are_zero2() -> None:
    plan = at("parameters")
    assert written(plan)["zero_optimization"]["stage"] == 2
    assert landing(plan, "sharding.reshard_after_forward").outcome == "approximate"


@pytest.mark.parametrize("compute", ["bf16", "fp16"])
def test_zero1_takes_the_place_of_stage_0_in_16_bits(compute: Any) -> None:
    """Stage 0 takes a step before the first one, and does not scale the loss."""
    plan = at("nothing", precision=Precision(compute=compute))
    assert written(plan)["zero_optimization"]["stage"] == 1
    assert landing(plan, "sharding.partition").outcome == "approximate"


def test_stage_0_of_deepspeed_in_bf16_stays() -> None:
    assert written(at("nothing", precision=Precision(compute="bf16", steps_before=True)))[
        "zero_optimization"
    ] == {"stage": 0}


def test_groups_that_are_copies_of_each_other_become_hpz() -> None:
    sharding = Sharding(partition="parameters", group=4)
    plan = PYTORCH.model_copy(update={"sharding": sharding})
    assert written(plan)["zero_optimization"] == {"stage": 3, "zero_hpz_partition_size": 4}
    assert landing(plan, "sharding.group").outcome == "approximate"


def test_sums_of_gradients() -> None:
    sums = Sharding(partition="gradients", reshard_after_forward=False, sums_gradients=True)
    assert written(PYTORCH.model_copy(update={"sharding": sums}))["gradient_allreduce_op"] == "sum"
    plan = PYTORCH.model_copy(update={"sharding": Sharding(partition="parameters", sums_gradients=True)})
    assert landing(plan, "sharding.sums_gradients").outcome == "unsupported"
    assert "gradient_allreduce_op" not in written(plan)


@pytest.mark.parametrize("own", [None, False])
def test_torchs_linear_would_cost_what_zero3_saves(own: bool | None) -> None:
    sharding = Sharding(partition="parameters", own_linear=own)
    plan = PYTORCH.model_copy(update={"sharding": sharding})
    assert "memory_efficient_linear" not in written(plan)["zero_optimization"]
    assert (
        landing(plan, "sharding.partition").outcome == landing(plan, "sharding.own_linear").outcome == "close"
    )
    assert "memory_efficient_linear" in landing(plan, "sharding.partition").note
    wide = plan.model_copy(update={"precision": Precision()})
    assert landing(wide, "sharding.own_linear").outcome == "no-effect"


def test_torchs_linear_stays_where_deepspeed_had_it() -> None:
    sharding = Sharding(partition="parameters", own_linear=False, keeps_gathered=True)
    plan = PYTORCH.model_copy(update={"sharding": sharding})
    assert written(plan)["zero_optimization"]["memory_efficient_linear"] is False
    assert landing(plan, "sharding.partition").outcome == "exact"


@pytest.mark.parametrize(
    ("partition", "expected", "outcome"),
    [
        ("gradients", {"offload_optimizer": {"device": "cpu", "pin_memory": True}}, "approximate"),
        ("nothing", {}, "unsupported"),
    ],
)
def test_offload_below_stage_3(partition: str, expected: dict[str, Any], outcome: str) -> None:
    offload = Offload(parameters=True, optimizer=True, pinned=True)
    plan = at(partition, precision=Precision(), offload=offload)
    section = {name: value for name, value in written(plan)["zero_optimization"].items() if name != "stage"}
    assert section == expected
    assert landing(plan, "offload.parameters").outcome == outcome


@pytest.mark.parametrize(
    ("plan", "expected", "outcome"),
    [
        (at("gradients"), False, "exact"),
        (PYTORCH, None, "approximate"),
        (at("gradients", precision=Precision()), None, "approximate"),
        (at("nothing", precision=Precision()), None, "exact"),
        (at("gradients", clipping=Clipping(skips_not_finite=True)), True, "exact"),
        (at("nothing", precision=Precision(), clipping=Clipping(skips_not_finite=True)), None, "approximate"),
    ],
)
def test_steps_without_a_finite_norm(plan: Plan, expected: object, outcome: str) -> None:
    assert written(plan).get("bf16", {}).get("check_grad_overflow") == expected
    assert landing(plan, "clipping.skips_not_finite").outcome == outcome


# ---- what is no key ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launch", "command"),
    [
        (Launch(world_size=8, gpus_per_node=4), "deepspeed --num_nodes 2 --num_gpus 4 train.py"),
        (Launch(world_size=8), "deepspeed --num_gpus 8 train.py"),
        (Launch(machines=2), "deepspeed --num_nodes 2 train.py"),
        (Launch(), ""),
    ],
)
def test_the_launcher_is_told_the_machines(launch: Launch, command: str) -> None:
    assert landing(PYTORCH.model_copy(update={"launch": launch}), "launch.world_size").target == command


def test_the_ranks_that_a_batch_is_for_are_told_to_the_launcher() -> None:
    plan = PYTORCH.model_copy(update={"batch": Batch(micro=1, accumulation=1, total=4, world_size=4)})
    assert landing(plan, "batch.world_size").target == "deepspeed --num_gpus 4 train.py"


def test_whole_weights_in_checkpoints_are_a_key_of_stage_3() -> None:
    plan = PYTORCH.model_copy(update={"checkpoint": Checkpoint(weights="full")})
    assert written(plan)["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True


def test_recomputation_is_left_to_the_script() -> None:
    plan = PYTORCH.model_copy(update={"recompute": True})
    assert "gradient_checkpointing_enable" in str(landing(plan, "recompute").action)


def test_sequences_are_divided_as_ulysses_does_it_or_not_at_all() -> None:
    plan = PYTORCH.model_copy(update={"parallelism": Parallelism(sequence=2)})
    assert written(plan)["sequence_parallel_size"] == 2
    plan = PYTORCH.model_copy(update={"parallelism": Parallelism(context=2)})
    assert landing(plan, "parallelism.context").outcome == "unsupported"


@pytest.mark.parametrize(
    ("config", "needs"),
    [
        ({"gradient_clipping": 1.0}, ""),
        ({"bf16": {"enabled": True, "check_grad_overflow": False}}, "DeepSpeed >= 0.17.6"),
        (
            {"gradient_allreduce_op": "sum", "bf16": {"check_grad_overflow": False}},
            "DeepSpeed >= 0.19.6",
        ),
    ],
)
def test_the_oldest_deepspeed_that_has_all_keys(config: dict[str, Any], needs: str) -> None:
    assert needs_of(config) == needs


def test_what_is_left_to_the_trainer_stays_auto() -> None:
    plan = read(config_of(ALL_AUTO)).plan
    config = written(plan)
    kept = {name: value for name, value in ALL_AUTO.items() if name not in ("zero_optimization", "scheduler")}
    assert {name: config[name] for name in kept} == kept
    shape = {"warmup_type": "log"}
    assert config["scheduler"] == {"type": "WarmupDecayLR", "params": ALL_AUTO["scheduler"]["params"] | shape}
