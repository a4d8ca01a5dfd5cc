"""A Plan as training arguments, and as an Axolotl config: what each field becomes, and what can't be said."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from plans import random_plan
from translated import complaints

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.yaml_reader import load_yaml, scan_yaml
from dsconf.formats.axolotl import keys as axolotl_keys
from dsconf.formats.axolotl.read import read as read_axolotl
from dsconf.formats.axolotl.write import write as write_axolotl
from dsconf.formats.deepspeed.write import drafted
from dsconf.formats.outcome import Landing
from dsconf.formats.trainer import keys as trainer_keys
from dsconf.formats.trainer.read import read as read_trainer
from dsconf.formats.trainer.write import write as write_trainer
from dsconf.formats.trainer.write_deepspeed import write_deepspeed
from dsconf.formats.training import curves
from dsconf.formats.writing import Request, Writing
from dsconf.plan import (
    Batch,
    Clipping,
    Launch,
    Length,
    LossScaling,
    Offload,
    OneCycle,
    Optimizer,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    TorchSchedule,
    TrainerSchedule,
    Unresolved,
    Warmup,
    WarmupCosine,
    Wrapping,
)

REQUEST = Request("A test.", {"clipping.max_norm": "gradient_clipping"})
ADAMW = Optimizer(
    name="AdamW", arguments={"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
)
ZERO3 = Sharding(partition="parameters")


def plan(**parts: Any) -> Plan:
    return Plan(**{"sharding": ZERO3, "optimizer": ADAMW, "batch": Batch(micro=2, accumulation=4), **parts})


def written(given: Plan) -> tuple[dict[str, Any], Mapping[str, Landing]]:
    writing = write_trainer(given, REQUEST)
    return load_yaml(writing.text), writing.landings


def test_a_whole_plan() -> None:
    given = plan(
        precision=Precision(compute="bf16"),
        clipping=Clipping(max_norm=0.5),
        schedule=TrainerSchedule(name="cosine", warmup_steps=10, total_steps=100),
    )
    values, landings = written(given)
    assert values == {
        "output_dir": "trainer_output",
        "fsdp": True,
        "fsdp_config": {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_offload": False,
            "reshard_after_forward": True,
            "version": 2,
        },
        "bf16": True,
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "learning_rate": 1e-3,
        "optim": "adamw_torch",
        "weight_decay": 0.1,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "adam_epsilon": 1e-8,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 10,
        "max_steps": 100,
        "max_grad_norm": 0.5,
    }
    assert landings["schedule.name"].outcome == "exact"
    assert landings["optimizer.weight_decay"].outcome == "approximate"


def test_weights_that_trainer_itself_spares_are_spared_exactly() -> None:
    landings = written(plan(optimizer=ADAMW.model_copy(update={"spares_norms": True})))[1]
    assert landings["optimizer.weight_decay"].outcome == "exact"
    assert landings["optimizer.spares_norms"].outcome == "exact"


def test_every_field_has_a_landing_that_speaks_of_trainer() -> None:
    for seed in range(100):
        landings = written(random_plan(Random(seed)))[1]
        assert not [each for each in landings.values() if "no: true" in each.target]
        assert not [each for each in landings.values() if "Accelerator(" in str(each.action)]


def test_without_clipping_the_norm_is_0() -> None:
    values, landings = written(plan())
    assert values["max_grad_norm"] == 0.0
    assert landings["clipping.max_norm"].outcome == "exact"


def test_what_the_source_leaves_to_a_script_is_not_written() -> None:
    writing = write_trainer(Plan(sharding=ZERO3), Request("A test.", {}))
    assert {"learning_rate", "max_grad_norm", "optim"}.isdisjoint(load_yaml(writing.text))
    assert "Not said by the source: per_device_train_batch_size" in writing.text


def test_values_that_are_left_open_are_asked_for() -> None:
    open_ = Optimizer(
        name="AdamW", arguments={**ADAMW.arguments, "lr": Unresolved(key="optimizer.params.lr")}
    )
    writing = write_trainer(plan(optimizer=open_), REQUEST)
    assert "learning_rate" not in load_yaml(writing.text)
    assert "# learning_rate: ...  # optimizer.params.lr is left open" in writing.text
    landing = writing.landings["optimizer.lr"]
    assert landing.outcome == "needs-value"
    assert "--set optimizer.params.lr=VALUE" in str(landing.action)


def test_offload_needs_a_backend_for_the_cpu() -> None:
    values, _ = written(plan(offload=Offload(parameters=True, optimizer=True)))
    assert values["ddp_backend"] == "cpu:gloo,cuda:nccl"
    assert values["fsdp_config"]["cpu_offload"] is True


def test_where_nothing_is_divided_there_is_no_fsdp() -> None:
    values, landings = written(plan(sharding=Sharding(partition="nothing"), recompute=True))
    assert "fsdp" not in values
    assert values["activation_checkpointing"] is True
    assert landings["sharding.partition"].outcome == "exact"


def test_ddp_is_told_of_parameters_that_a_step_leaves_out() -> None:
    nothing = Sharding(partition="nothing")
    values, _ = written(plan(sharding=nothing, wrapping=Wrapping(unused_parameters=True)))
    assert values["ddp_find_unused_parameters"] is True
    assert "ddp_find_unused_parameters" not in written(plan(sharding=nothing))[0]


def test_of_one_micro_batch_nothing_is_added_up() -> None:
    precision = Precision(compute="bf16", accumulate="fp32")
    landing = written(plan(batch=Batch(micro=2, accumulation=1), precision=precision))[1][
        "precision.accumulate"
    ]
    assert (landing.outcome, landing.note) == ("exact", "one micro batch: nothing is added up")


@pytest.mark.parametrize(
    ("partition", "accumulate", "each"),
    [
        ("parameters", None, True),
        ("gradients", None, True),
        ("optimizer", None, False),
        ("optimizer", "fp32", True),
    ],
)
def test_shards_of_gradients_are_added_up_where_the_source_does_so(
    partition: Any, accumulate: Any, each: bool
) -> None:
    precision = Precision(compute="bf16", accumulate=accumulate)
    values, _ = written(plan(sharding=Sharding(partition=partition), precision=precision))
    assert ("accelerator_config" in values) is each


@pytest.mark.parametrize(
    ("accumulate", "masters", "expected"),
    [
        ("fp32", "fp32", "exact"),
        (None, "fp32", "close"),
        ("fp32", "bf16", "approximate"),
        (None, "bf16", "exact"),
    ],
)
def test_sums_of_gradients_are_as_good_as_the_dtype_that_they_have(
    accumulate: Any, masters: Any, expected: str
) -> None:
    precision = Precision(compute="bf16", masters=masters, accumulate=accumulate)
    assert written(plan(precision=precision))[1]["precision.accumulate"].outcome == expected


@pytest.mark.parametrize(
    ("optimizer", "outcome"),
    [
        (Optimizer(name="Adam", arguments={"lr": 1e-3, "weight_decay": 0.0}), "exact"),
        (Optimizer(name="Adam", arguments={"lr": 1e-3, "weight_decay": 0.1}), "unsupported"),
        (Optimizer(name="AdamW", arguments={"lr": 1e-3, "amsgrad": True}), "unsupported"),
        (Optimizer(name="AdamW", arguments={"lr": 1e-3}, bias_correction=False), "unsupported"),
        (Optimizer(name="Lion", arguments={"lr": 1e-3}), "unsupported"),
        (Optimizer(name="SGD", arguments={"lr": 1e-3, "momentum": 0.9, "nesterov": True}), "exact"),
        (Optimizer(name="SGD", arguments={"lr": 1e-3, "maximize": True}), "unsupported"),
        (Optimizer(name="Adagrad", arguments={"lr": 1e-3, "initial_accumulator_value": 0.1}), "unsupported"),
        (Optimizer(name="RMSprop", arguments={"lr": 1e-3, "alpha": 0.9}), "exact"),
        (Optimizer(name="NAdam", arguments={"lr": 1e-3}), "unsupported"),
    ],
    ids=str,
)
def test_optimizers(optimizer: Optimizer, outcome: str) -> None:
    values, landings = written(plan(optimizer=optimizer))
    assert landings["optimizer.name"].outcome == outcome
    assert ("optim" in values) is (outcome == "exact")
    if outcome == "unsupported":
        assert "optimizer_cls_and_kwargs" in str(landings["optimizer.name"].action)


def test_torchs_own_defaults_are_written_out() -> None:
    values, _ = written(plan(optimizer=Optimizer(name="AdamW", arguments={})))
    assert (values["learning_rate"], values["weight_decay"]) == (1e-3, 0.01)


@pytest.mark.parametrize(
    ("schedule", "name", "warmup"),
    [
        (Warmup(name="WarmupLR", min_lr=0.0, max_lr=1e-3, warmup_steps=10, warmup="linear"),
         "constant_with_warmup", 11),
        (Warmup(name="WarmupLR", min_lr=1e-4, max_lr=1e-3, warmup_steps=10, warmup="linear"),
         "warmup_stable_decay", 11),
        (Warmup(name="WarmupDecayLR", min_lr=0.0, max_lr=1e-3, warmup_steps=10, warmup="log", total_steps=100),
         "linear", 10),
        (Warmup(name="WarmupDecayLR", min_lr=1e-4, max_lr=1e-3, warmup_steps=10, warmup="linear", total_steps=100),
         "warmup_stable_decay", 11),
        (WarmupCosine(min_ratio=0.0, final_ratio=0.0, warmup_steps=10, warmup="linear", total_steps=100),
         "cosine", 11),
        (WarmupCosine(min_ratio=0.0, final_ratio=0.1, warmup_steps=10, warmup="linear", total_steps=100),
         "cosine_with_min_lr", 11),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)  # fmt: skip
def test_schedules_of_deepspeed_are_approximated(schedule: Any, name: str, warmup: int) -> None:
    values, landings = written(plan(schedule=schedule))
    assert (values["lr_scheduler_type"], values["warmup_steps"]) == (name, warmup)
    landing = landings["schedule.name"]
    assert landing.outcome == "approximate"
    assert re.search(r"off by [\d.]+% of its peak", landing.note)
    assert ("logarithmic" in landing.note) is (schedule.warmup == "log")


@pytest.mark.parametrize(("name", "total"), [("WarmupLR", None), ("WarmupDecayLR", 100)])
def test_a_warm_up_to_where_it_starts_is_a_constant_rate(name: Any, total: int | None) -> None:
    schedule = Warmup(name=name, min_lr=1e-3, max_lr=1e-3, warmup_steps=10, warmup="log", total_steps=total)
    values, landings = written(plan(schedule=schedule))
    assert values["lr_scheduler_type"] == "constant"
    assert landings["schedule.name"].outcome == "exact"
    assert ("schedule.total_steps" in landings) is (total is not None)


def test_a_decay_to_a_lowest_rate_ends_with_it() -> None:
    schedule = Warmup(
        name="WarmupDecayLR", min_lr=1e-4, max_lr=1e-3, warmup_steps=10, warmup="linear", total_steps=100
    )
    values, landings = written(plan(schedule=schedule))
    assert values["lr_scheduler_kwargs"] == {
        "num_decay_steps": 89,
        "min_lr_ratio": 0.1,
        "decay_type": "linear",
    }
    assert landings["schedule.min_lr"].outcome == "exact"
    open_ = schedule.model_copy(update={"total_steps": Unresolved(key="scheduler.params.total_num_steps")})
    values, landings = written(plan(schedule=open_))
    assert values["lr_scheduler_type"] == "linear"
    assert landings["schedule.min_lr"].outcome == "approximate"
    assert (
        "the decay ends, with 0, not with 0.0001, which is 10% of the peak"
        in landings["schedule.min_lr"].note
    )


def test_an_optimizer_without_a_schedule_has_a_constant_rate() -> None:
    assert written(plan())[0]["lr_scheduler_type"] == "constant"


@pytest.mark.parametrize(
    "schedule",
    [
        OneCycle(min_lr=1e-4, max_lr=1e-3, first_steps=5, second_steps=5),
        TorchSchedule(name="StepLR", arguments={"step_size": 3}),
    ],
)
def test_schedules_that_transformers_does_not_have_are_said(schedule: Any) -> None:
    landing = written(plan(schedule=schedule))[1]["schedule.name"]
    assert landing.outcome == "unsupported"
    assert "create_scheduler()" in str(landing.action)


def test_groups_of_ranks_are_left_to_the_script() -> None:
    given = plan(sharding=ZERO3.model_copy(update={"group": 4}), launch=Launch(world_size=16))
    landing = written(given)[1]["sharding.group"]
    assert "ParallelismConfig(dp_shard_size=4, dp_replicate_size=4)" in str(landing.action)
    assert "ParallelismConfig(dp_shard_size=4" in write_trainer(given, REQUEST).text


@pytest.mark.parametrize(
    ("group", "parallelism", "world", "sizes"),
    [
        (4, Parallelism(tensor=2), 16, "tp_size=2, dp_shard_size=4, dp_replicate_size=2"),
        (4, Parallelism(context=2), 16, "cp_size=2, dp_shard_size=2, dp_replicate_size=4"),
        (None, Parallelism(tensor=2, context=2), 16, "tp_size=2, cp_size=2, dp_shard_size=4"),
        (4, Parallelism(tensor=2), None, "tp_size=2, dp_shard_size=4, dp_replicate_size=..."),
        (None, Parallelism(tensor=2), None, "tp_size=2, dp_shard_size=..."),
    ],
)
def test_sizes_multiply_to_the_number_of_ranks(
    group: int | None, parallelism: Parallelism, world: int | None, sizes: str
) -> None:
    given = plan(
        sharding=ZERO3.model_copy(update={"group": group}),
        launch=Launch(world_size=world),
        parallelism=parallelism,
    )
    landings = written(given)[1]
    fields = [f"parallelism.{name}" for name in ("tensor", "context") if getattr(parallelism, name) > 1]
    for field in (*fields, *(("sharding.group",) if group else ())):
        assert landings[field].target == f"parallelism_config=ParallelismConfig({sizes})"
        assert ("tp_plan" in str(landings[field].action)) is (parallelism.tensor > 1)


def test_ranks_that_do_not_divide_into_the_groups_are_said() -> None:
    given = plan(
        sharding=ZERO3.model_copy(update={"group": 4}),
        launch=Launch(world_size=12),
        parallelism=Parallelism(tensor=2),
    )
    landings = written(given)[1]
    assert {landings[field].outcome for field in ("sharding.group", "parallelism.tensor")} == {"unsupported"}
    assert landings["sharding.group"].note == "12 ranks don't divide into groups of 8"


def test_a_duty_is_named_by_the_first_key_that_it_comes_from() -> None:
    labels = {"parallelism.tensor": "tensor_parallel_size", "parallelism.block_styles": "the model"}
    text = write_trainer(plan(parallelism=Parallelism(tensor=2)), Request("A test.", labels)).text
    assert '#   tensor_parallel_size: load the model with tp_plan="auto"' in text


OPEN_END = TrainerSchedule(name="cosine", warmup_steps=0, total_steps=Unresolved(key="max_steps"))


@pytest.mark.parametrize("schedule", [None, OPEN_END, OPEN_END.model_copy(update={"total_steps": 9})])
@pytest.mark.parametrize("length", [Length(), Length(steps=9), Length(epochs=2.5)])
def test_training_ends_where_the_source_ends_it(schedule: TrainerSchedule | None, length: Length) -> None:
    ends = schedule is not None and schedule.total_steps is not None
    for write, epochs in ((write_trainer, "num_train_epochs"), (write_axolotl, "num_epochs")):
        writing = write(plan(schedule=schedule, length=length), REQUEST)
        values, landings = load_yaml(writing.text), writing.landings
        by_steps = 9 if length.steps or (ends and schedule != OPEN_END) else None
        assert values.get("max_steps") == by_steps
        assert values.get(epochs) == (length.epochs if by_steps is None else None)
        open_ = schedule == OPEN_END and length == Length()
        if ends:
            assert landings["schedule.total_steps"].outcome == ("needs-value" if open_ else "exact")
        assert {landings[f"length.{kind}"].outcome for kind in ("steps", "epochs")} == {"exact"}


def test_a_part_of_all_steps_is_a_ratio_in_axolotl() -> None:
    schedule = TrainerSchedule(name="cosine", warmup_steps=0.1, total_steps=Unresolved(key="max_steps"))
    writing = write_axolotl(plan(schedule=schedule), REQUEST)
    values = load_yaml(writing.text)
    assert "warmup_steps" not in values
    assert values["warmup_ratio"] == 0.1
    assert writing.landings["schedule.warmup_steps"].outcome == "approximate"


def test_groups_of_ranks_are_sizes_in_axolotl() -> None:
    given = plan(
        sharding=ZERO3.model_copy(update={"group": 4}),
        launch=Launch(world_size=16),
        parallelism=Parallelism(tensor=2),
    )
    values = load_yaml(write_axolotl(given, REQUEST).text)
    assert (values["dp_shard_size"], values["dp_replicate_size"], values["tensor_parallel_size"]) == (4, 2, 2)


def test_sizes_that_do_not_divide_the_ranks_are_not_written_for_axolotl() -> None:
    writing = write_axolotl(
        plan(sharding=ZERO3, launch=Launch(world_size=6), parallelism=Parallelism(tensor=4)), REQUEST
    )
    assert "tensor_parallel_size" not in load_yaml(writing.text)
    said = Landing("unsupported", "", "6 ranks don't divide into groups of 4")
    for field in ("parallelism.tensor", "parallelism.block_styles", "sharding.group"):
        assert writing.landings[field] == said
    replicas = Sharding(partition="nothing", reshard_after_forward=False)
    copied = plan(sharding=replicas, launch=Launch(world_size=6), parallelism=Parallelism(tensor=4))
    assert write_axolotl(copied, REQUEST).landings["parallelism.tensor"] == said


def test_axolotl_is_told_what_it_has_other_defaults_for() -> None:
    values = load_yaml(write_axolotl(plan(), REQUEST).text)
    assert values["bf16"] is False
    assert values["fsdp_version"] == 2
    assert values["lr_scheduler"] == "constant"
    assert "version" not in values["fsdp_config"]


def test_a_scale_of_ones_own_is_set_on_the_accelerator_of_trainer() -> None:
    scaling = LossScaling(scale=128.0, window=500, hysteresis=1, refill=False, minimum=0.0)
    landings = written(plan(precision=Precision(compute="fp16", scaling=scaling)))[1]
    action = str(landings["precision.scaling.scale"].action)
    assert (
        "trainer.accelerator.scaler = torch.amp.GradScaler(init_scale=128.0, growth_interval=500)" in action
    )


# ---- DeepSpeed in arguments --------------------------------------------------------------------------


def deepspeed(config: dict[str, Any], given: Plan | None = None, path: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = load_yaml(write_deepspeed(given or Plan(), REQUEST, config, {}, path).text)
    return found


CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-4, "warmup_num_steps": 10}},
    "zero_optimization": {"stage": 2},
}


def test_arguments_match_what_trainer_compares() -> None:
    values = deepspeed(CONFIG)
    assert values["deepspeed"] == CONFIG
    assert {name: value for name, value in values.items() if name not in ("deepspeed", "output_dir")} == {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "max_grad_norm": 0.5,
        "bf16": True,
        "learning_rate": 1e-4,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "weight_decay": 0.1,
        "warmup_steps": 10,
    }


def test_a_file_that_trainer_takes_as_it_is_stays_a_file() -> None:
    assert deepspeed(CONFIG, path="ds_config.json")["deepspeed"] == "ds_config.json"


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ({"zero_optimization": None}, "zero_optimization", {"stage": 0}),
        ({"train_micro_batch_size_per_gpu": None}, "train_micro_batch_size_per_gpu", "auto"),
        ({"fp16": {"enabled": "true"}, "bf16": None}, "fp16", {"enabled": True}),
        ({"gradient_clipping": "0.5"}, "gradient_clipping", 0.5),
    ],
)
def test_what_trainer_does_not_take_is_written_otherwise(
    change: dict[str, Any], path: str, value: object
) -> None:
    config = {name: each for name, each in {**CONFIG, **change}.items() if each is not None}
    assert deepspeed(config, path="ds_config.json")["deepspeed"][path] == value


def test_what_trainer_makes_of_arguments_is_left_to_the_user() -> None:
    config = {name: each for name, each in CONFIG.items() if name not in ("optimizer", "scheduler")}
    text = write_deepspeed(Plan(), REQUEST, config, {}).text
    assert "Not said by the source: learning_rate, optim, lr_scheduler_type." in text
    assert "Not said" not in write_deepspeed(Plan(), REQUEST, CONFIG, {}).text


def test_two_rates_become_one() -> None:
    config = {**CONFIG, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    values = deepspeed(config)
    assert values["learning_rate"] == 1e-4
    assert values["deepspeed"]["optimizer"]["params"]["lr"] == 1e-4


def test_an_optimizer_of_trainer_stays_one() -> None:
    given = plan(optimizer=ADAMW.model_copy(update={"spares_norms": True}), offload=Offload(optimizer=True))
    values = deepspeed(CONFIG, given)
    assert "optimizer" not in values["deepspeed"]
    assert values["optim"] == "adamw_torch"
    assert values["deepspeed"]["zero_force_ds_cpu_optimizer"] is False


def test_a_schedule_of_trainer_stays_one() -> None:
    given = plan(schedule=TrainerSchedule(name="cosine", warmup_steps=3, total_steps=9))
    values = deepspeed(CONFIG, given)
    assert "scheduler" not in values["deepspeed"]
    assert (values["lr_scheduler_type"], values["warmup_steps"], values["max_steps"]) == ("cosine", 3, 9)


# ---- there and back ----------------------------------------------------------------------------------


def reread(writing: Writing, read: Callable[[Config], Any], keys: Any, name: str) -> Any:
    document = scan_yaml(f"{name}.yaml", writing.text)
    return read(Config(document, keys.table_for(document, Context()), Context(), format=name)).plan


@pytest.mark.parametrize("seed", range(10))
def test_what_is_written_comes_back_and_is_written_the_same(seed: int) -> None:
    random = Random(seed)
    rooms: list[tuple[Any, Any, Any, str]] = [
        (write_trainer, read_trainer, trainer_keys, "trainer"),
        (write_axolotl, read_axolotl, axolotl_keys, "axolotl"),
    ]
    for _ in range(20):
        given = random_plan(random)
        for write, read, keys, name in rooms:
            once = reread(write(given, REQUEST), read, keys, name)
            again = write(once, Request("Again.", {"clipping.max_norm": ""}))
            assert reread(again, read, keys, name) == once
            assert complaints(f"{name}.yaml", again.text) == []


@pytest.mark.parametrize("seed", range(20))
def test_deepspeed_in_arguments_has_no_finding(seed: int) -> None:
    given = random_plan(Random(seed))
    settings, landings = drafted(given)
    assert complaints("arguments.yaml", write_deepspeed(given, REQUEST, settings, landings).text) == []


# ---- curves ------------------------------------------------------------------------------------------


def test_the_first_two_steps_of_deepspeed_have_the_lowest_rate() -> None:
    schedule = Warmup(name="WarmupLR", min_lr=1e-4, max_lr=1e-3, warmup_steps=4, warmup="linear")
    curve = curves.warmup(schedule, 1e-3)
    assert [round(curve(step), 4) for step in range(7)] == [0.1, 0.1, 0.325, 0.55, 0.775, 1.0, 1.0]


def test_a_decay_of_deepspeed_ends_with_the_lowest_rate() -> None:
    schedule = Warmup(
        name="WarmupDecayLR", min_lr=1e-4, max_lr=1e-3, warmup_steps=4, warmup="linear", total_steps=8
    )
    curve = curves.warmup(schedule, 1e-3)
    assert [round(curve(step), 4) for step in range(4, 11)] == [0.775, 1.0, 0.775, 0.55, 0.325, 0.1, 0.1]


def test_deepspeed_warms_up_for_two_steps_at_least() -> None:
    schedule = Warmup(name="WarmupLR", min_lr=0.0, max_lr=1e-3, warmup_steps=1, warmup="linear")
    assert [curves.warmup(schedule, 1e-3)(step) for step in range(4)] == [0.0, 0.0, 0.5, 1.0]


def test_how_far_two_curves_are_apart() -> None:
    assert curves.apart(lambda step: step, lambda step: 2.0 * step, 5) == 4.0
