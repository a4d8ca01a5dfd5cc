"""From a DeepSpeed config to the Plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsconf.config.context import Consumer, Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.formats.deepspeed.history import keys_of
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.deepspeed.read import FIELDS, read
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Reading
from dsconf.plan import (
    LossScaling,
    Momentum,
    Offload,
    OneCycle,
    Optimizer,
    Plan,
    Precision,
    RangeTest,
    TorchSchedule,
    Unresolved,
    Warmup,
    WarmupCosine,
)

ZERO3: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}


def reading(
    source: dict[str, Any], consumer: Consumer | None = None, world_size: int | None = None
) -> Reading:
    document = scan("ds.json", json.dumps(source))
    return read(Config(document, load_keys(), Context(consumer, world_size)))


def plan(source: dict[str, Any], **context: Any) -> Plan:
    return reading(source, **context).plan


def item(source: dict[str, Any], key: str) -> Item:
    found = [item for item in reading(source).items if item.key == key]
    assert len(found) == 1, found
    return found[0]


def test_every_field_exists_in_the_plan() -> None:
    sample = Plan(
        precision=Precision(scaling=LossScaling(scale=1)),
        optimizer=Optimizer(name="AdamW", arguments={}),
        schedule=Warmup(name="WarmupLR", min_lr=0, max_lr=None, warmup_steps=1, warmup="log"),
    )
    for field in FIELDS.values():
        *sections, name = field.split(".")
        part: Any = sample
        for section in sections:
            part = getattr(part, section)
        assert name in type(part).model_fields


def test_every_key_exists_in_the_table() -> None:
    for path in FIELDS:
        node = load_keys()
        for key in path.split("."):
            node = node["keys"][key]


@pytest.mark.parametrize(
    ("keys", "world", "expected"),
    [
        ({"train_micro_batch_size_per_gpu": 2}, None, (2, 1, None, None)),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}, 8, (2, 3, None, None)),
        (
            {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3},
            None,
            (2, 3, 12, 2),
        ),
        ({"train_batch_size": 48}, 8, (6, 1, 48, 8)),
        ({"train_batch_size": 48, "train_micro_batch_size_per_gpu": 2}, 8, (2, 3, 48, 8)),
        ({"train_batch_size": 48, "gradient_accumulation_steps": 3}, 8, (2, 3, 48, 8)),
    ],
)
def test_batch(keys: dict[str, int], world: int | None, expected: tuple[int, ...]) -> None:
    batch = plan(keys | {"zero_optimization": {"stage": 3}}, world_size=world).batch
    assert (batch.micro, batch.accumulation, batch.total, batch.world_size) == expected


def test_batch_that_depends_on_the_world_size_is_open() -> None:
    batch = plan({"train_batch_size": 48, "train_micro_batch_size_per_gpu": 2}).batch
    assert batch.accumulation == Unresolved(key="gradient_accumulation_steps")
    batch = plan({"train_batch_size": 48}).batch
    assert (batch.micro, batch.accumulation) == (Unresolved(key="train_micro_batch_size_per_gpu"), 1)


def test_auto_accumulation_is_open() -> None:
    batch = plan({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto"}).batch
    assert batch.accumulation == Unresolved(key="gradient_accumulation_steps")


@pytest.mark.parametrize(
    ("keys", "consumer", "compute"),
    [
        ({}, None, "fp32"),
        ({"bf16": {"enabled": True}}, None, "bf16"),
        ({"bfloat16": {"enabled": True}}, None, "bf16"),
        ({"bf16": {"enabled": "auto"}}, None, Unresolved(key="bf16.enabled")),
        ({"bf16": {"enabled": "auto"}}, "deepspeed", "fp32"),
        ({"fp16": {"enabled": "auto"}}, None, Unresolved(key="fp16.enabled")),
    ],
)
def test_precision(keys: dict[str, Any], consumer: Consumer | None, compute: object) -> None:
    assert plan(ZERO3 | keys, consumer=consumer).precision.compute == compute


def test_gradient_dtypes() -> None:
    keys = {
        "bf16": {"enabled": True},
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    precision = plan(ZERO3 | keys).precision
    assert (precision.reduce, precision.accumulate) == ("fp32", "fp32")
    assert plan(ZERO3 | {"bf16": {"enabled": True}}).precision.reduce is None
    for spelling in ("float32", "torch.float32", "float"):
        found = plan(ZERO3 | {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": spelling}})
        assert found.precision.accumulate == "fp32"
    assert plan(ZERO3 | {"communication_data_type": "BF16"}).precision.reduce == "bf16"
    int8 = {"data_types": {"grad_accum_dtype": "int8"}}
    assert item(ZERO3 | int8, "data_types.grad_accum_dtype").outcome == "unsupported"


AUTOCAST = {"enabled": True, "dtype": "bfloat16"}


def autocast(stage: int = 3, **keys: Any) -> dict[str, Any]:
    section = keys.pop("torch_autocast", AUTOCAST)
    return ZERO3 | {"zero_optimization": {"stage": stage}, "torch_autocast": section, **keys}


def test_autocast() -> None:
    found = plan(autocast()).precision
    assert (found.compute, found.autocast, found.reduce, found.masters) == ("fp32", "bf16", "bf16", "fp32")
    assert found.scaling is None
    assert plan(autocast(torch_autocast={"enabled": False, "dtype": "bf16"})).precision == Precision()
    assert plan(autocast(0)).precision.reduce is None
    in_bf16 = plan(autocast(bf16={"enabled": True})).precision
    assert (in_bf16.compute, in_bf16.autocast, in_bf16.reduce) == ("bf16", "bf16", "bf16")


@pytest.mark.parametrize(
    ("stage", "modules", "reduce", "outcome"),
    [
        (0, [], None, "no-effect"),
        (2, [], "fp32", "exact"),
        (2, ["torch.nn.Linear"], "bf16", "close"),
    ],
)
def test_what_autocast_reduces_in_less(
    stage: int, modules: list[str], reduce: str | None, outcome: str
) -> None:
    source = autocast(stage, torch_autocast={**AUTOCAST, "lower_precision_safe_modules": modules})
    assert plan(source).precision.reduce == reduce
    assert item(source, "torch_autocast.lower_precision_safe_modules").outcome == outcome


def test_autocast_decides_what_is_communicated_but_at_stage_0() -> None:
    key = "communication_data_type"
    source = autocast(2, communication_data_type="fp32")
    assert plan(source).precision.reduce == "bf16"
    assert item(source, key).outcome == "no-effect"
    assert plan(autocast(0, communication_data_type="bf16")).precision.reduce == "bf16"


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({"torch_autocast": {"enabled": True}}, "enabled"),
        ({"torch_autocast": {"enabled": True, "dtype": "fp32"}}, "dtype"),
        ({"torch_autocast": {"enabled": True, "dtype": "fp16"}}, "dtype"),
        ({"torch_autocast": {"enabled": True, "dtype": "fp16"}, "gradient_clipping": 1.0}, "dtype"),
        ({"fp16": {"enabled": True}}, "enabled"),
        ({"bf16": {"enabled": True}, "torch_autocast": {"enabled": True, "dtype": "fp16"}}, "enabled"),
        ({"bf16": {"enabled": "auto"}}, "enabled"),
    ],
)
def test_autocast_that_is_refused_says_what_to_do(keys: dict[str, Any], refused: str) -> None:
    source = autocast(**keys)
    found = item(source, f"torch_autocast.{refused}")
    assert found.outcome == "unsupported"
    assert found.action
    assert plan(source).precision.autocast is None
    for key in source["torch_autocast"]:
        assert item(source, f"torch_autocast.{key}").outcome == "unsupported"


def test_autocast_to_fp16_scales_the_loss() -> None:
    section = {"enabled": True, "dtype": "torch.float16"}
    scaling = LossScaling(scale=65536.0, window=2000, hysteresis=1, refill=False, minimum=1.0)
    for source in (
        autocast(0, torch_autocast=section),
        autocast(torch_autocast=section, gradient_clipping=0.0),
    ):
        found = reading(source)
        assert (found.plan.precision.autocast, found.plan.precision.scaling) == ("fp16", scaling)
        assert found.remarks["torch_autocast.dtype"].outcome == "approximate"


def test_buffers_of_transformers_models_are_spoken_of_where_they_are_cast() -> None:
    def said(**keys: Any) -> bool:
        source = ZERO3 | {"bf16": {"enabled": True}, "data_types": keys}
        return "data_types.buffer_dtype" in reading(source).remarks

    assert said(buffer_dtype="bf16")
    assert not said(buffer_dtype="bf16", keep_in_fp32_modules=["rotary"])
    assert not said()


def test_masters() -> None:
    def bf16(**keys: Any) -> dict[str, Any]:
        return ZERO3 | {"bf16": {"enabled": True, **keys}}

    masters, states = "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"
    in_fp16 = "fp16.fp16_master_weights_and_grads"
    both = bf16(bf16_master_weights_and_grads=True, bf16_optimizer_states=True)
    assert plan(bf16(bf16_master_weights_and_grads=False)).precision.masters == "fp32"
    assert plan(both).precision.masters == "bf16"
    assert item(both, states).outcome == "exact"
    assert reading(both).remarks[masters].outcome == "close"
    assert reading(bf16(bf16_master_weights_and_grads=True)).remarks[masters].outcome == "approximate"
    wide = both | {"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}
    assert plan(wide).precision.masters == "fp32"
    assert {item(wide, key).outcome for key in (masters, states)} == {"no-effect"}
    off = ZERO3 | {"bf16": {"enabled": False, "bf16_master_weights_and_grads": True}}
    assert item(off, masters).outcome == "no-effect"
    low = item(ZERO3 | {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}, in_fp16)
    assert (low.outcome, low.action is None) == ("unsupported", False)


def test_kernels_round_bf16_weights_once() -> None:
    both = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    adam: dict[str, Any] = {"type": "AdamW", "params": {"lr": 0.1}}
    own = {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True}}
    for optimizer, bf16, fused in ((adam, both, True), (own, both, None), (adam, {"enabled": True}, None)):
        found = plan(ZERO3 | {"bf16": bf16, "optimizer": optimizer}).optimizer
        assert found is not None
        assert found.arguments.get("fused") is fused


def test_buffers() -> None:
    def found(source: dict[str, Any], version: str | None = None) -> Precision:
        document = scan("ds.json", json.dumps(ZERO3 | source))
        table = keys_of(load_keys(), version) if version else load_keys()
        return read(Config(document, table, Context(deepspeed_version=version))).plan.precision

    bf16 = {"bf16": {"enabled": True}}
    cast = {"data_types": {"buffer_dtype": "torch.float16", "keep_in_fp32_modules": ["a*", "b"]}}
    assert (found(bf16).buffers, found(bf16).fp32_buffers) == (None, ())
    assert (found(bf16 | cast).buffers, found(bf16 | cast).fp32_buffers) == ("fp16", ("a*", "b"))
    assert found(bf16 | {"data_types": {"keep_in_fp32_modules": []}}).fp32_buffers == ()
    assert (found(cast).buffers, found(cast).fp32_buffers) == (None, ())
    assert found(bf16, "0.19.1").buffers == "bf16"
    assert found(bf16, "0.19.2").buffers is None
    assert found({}, "0.19.1").buffers is None
    assert found({"bf16": {"enabled": "auto"}}, "0.18.9").buffers == Unresolved(key="bf16.enabled")
    for key in ("buffer_dtype", "keep_in_fp32_modules"):
        assert item(ZERO3 | cast, f"data_types.{key}").outcome == "no-effect"
    int8 = ZERO3 | bf16 | {"data_types": {"buffer_dtype": "int8"}}
    assert item(int8, "data_types.buffer_dtype").outcome == "unsupported"


def test_inputs() -> None:
    cast = {"enabled": True, "auto_cast": True}
    assert plan(ZERO3 | {"fp16": cast}).precision.casts_inputs
    assert not plan(ZERO3 | {"fp16": {"enabled": True}}).precision.casts_inputs
    off = ZERO3 | {"fp16": cast | {"enabled": False}}
    assert not plan(off).precision.casts_inputs
    assert (item(off, "fp16.auto_cast").outcome, item(off, "fp16.auto_cast").action) == (
        "no-effect",
        "remove it",
    )


def test_sums_and_groups() -> None:
    def found(version: str | None, **keys: Any) -> Reading:
        zero = {"stage": 3, **keys.pop("zero", {})}
        document = scan("ds.json", json.dumps(ZERO3 | {"zero_optimization": zero, **keys}))
        table = keys_of(load_keys(), version) if version else load_keys()
        return read(Config(document, table, Context(deepspeed_version=version)))

    assert found(None, gradient_allreduce_op="Sum").plan.sharding.sums_gradients
    assert not found(None, gradient_allreduce_op="mean").plan.sharding.sums_gradients
    mics = {"mics_shard_size": 2, "mics_hierarchical_params_gather": True}
    assert found("0.18.9", zero=mics).plan.sharding.group == 2
    assert [i.outcome for i in found("0.18.9", zero=mics).items] == ["no-effect"]
    assert found("0.18.9", zero={"mics_shard_size": -1}).plan.sharding.group is None
    assert found("0.18.9", zero={**mics, "stage": 2}).plan.sharding.group is None
    removed = found(None, zero=mics)
    assert removed.plan.sharding.group is None
    assert [i.outcome for i in removed.items] == ["rejected-by-source"] * 2


@pytest.mark.parametrize(
    ("factor", "world", "prescale", "outcome"),
    [
        (2.0, None, False, "approximate"),
        (2.0, 2, False, "approximate"),
        (2.0, 4, False, "no-effect"),
        (1.0, None, False, "no-effect"),
        (2.0, 2, True, "no-effect"),
    ],
)
def test_predivision_at_stage_3(factor: float, world: int | None, prescale: bool, outcome: str) -> None:
    source = ZERO3 | {"gradient_predivide_factor": factor, "prescale_gradients": prescale}
    items = {item.key: item.outcome for item in reading(source, world_size=world).items}
    assert items["gradient_predivide_factor"] == outcome


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        ({"stage": 0}, ("nothing", False)),
        ({"stage": 1}, ("optimizer", False)),
        ({"stage": 2}, ("gradients", False)),
        ({"stage": 3}, ("parameters", True)),
        ({"stage": 3, "zero_hpz_partition_size": 1}, ("parameters", True)),
        ({"stage": 3, "zero_hpz_partition_size": 4}, ("parameters", 4)),
        ({"stage": 2, "zero_hpz_partition_size": 4}, ("gradients", False)),
        (True, ("optimizer", False)),
        (False, ("nothing", False)),
    ],
)
def test_stages(zero: dict[str, Any] | bool, expected: tuple[str, bool | int]) -> None:
    found = plan({"train_micro_batch_size_per_gpu": 2, "zero_optimization": zero}).sharding
    assert (found.partition, found.reshard_after_forward) == expected


def test_a_missing_stage_is_stage_0() -> None:
    found = reading({"train_micro_batch_size_per_gpu": 2})
    assert found.plan.sharding.partition == "nothing"
    assert found.in_force["zero_optimization.stage"].value == 0
    with_fp16 = {"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": True}}
    assert reading(with_fp16).remarks["zero_optimization.stage"].outcome == "approximate"


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        ({}, Offload()),
        ({"offload_param": {"device": "none"}, "offload_optimizer": None}, Offload()),
        ({"offload_param": {"device": "cpu"}}, Offload(parameters=True, pinned=True)),
        (
            {"offload_optimizer": {"device": "cpu", "pin_memory": False}},
            Offload(optimizer=True),
        ),
        ({"cpu_offload": True, "cpu_offload_param": False}, Offload(optimizer=True, pinned=True)),
        ({"offload_param": {"device": "nvme", "nvme_path": "/x"}}, Offload()),
        ({"stage": 2, "offload_optimizer": {"device": "nvme"}}, Offload(optimizer=True, pinned=True)),
    ],
)
def test_offload(zero: dict[str, Any], expected: Offload) -> None:
    """At stage 2 DeepSpeed takes CPU memory for "nvme"."""
    source = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, **zero}}
    assert plan(source).offload == expected


def test_loss_scaling() -> None:
    def scaling(**keys: Any) -> LossScaling | None:
        return plan(ZERO3 | {"fp16": {"enabled": True, **keys}}).precision.scaling

    dynamic = LossScaling(scale=65536.0, window=1000, hysteresis=2, refill=False, minimum=1.0)
    assert scaling() == scaling(loss_scale=0) == dynamic
    assert scaling(initial_scale_power=4, consecutive_hysteresis=True) == dynamic.model_copy(
        update={"scale": 16.0, "refill": True}
    )
    assert scaling(loss_scale=128, hysteresis=5) == LossScaling(scale=128.0)
    assert plan(ZERO3 | {"bf16": {"enabled": True}}).precision.scaling is None


def test_clipping() -> None:
    found = reading(ZERO3)
    assert found.plan.clipping.max_norm == 1.0
    assert found.in_force["gradient_clipping"].value == 1.0
    assert plan(ZERO3 | {"gradient_clipping": 0.0}).clipping.max_norm is None
    assert plan(ZERO3 | {"gradient_clipping": "auto"}).clipping.max_norm == Unresolved(
        key="gradient_clipping"
    )


def adam(kind: str = "AdamW", **params: Any) -> dict[str, Any]:
    return ZERO3 | {"optimizer": {"type": kind, "params": params}}


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "adam", "ADAMW"])
def test_adam_is_adamw(kind: str) -> None:
    values = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    assert plan(adam(kind)).optimizer == Optimizer(name="AdamW", arguments=values, own_kernel=True)


def test_torch_adam_has_torchs_weight_decay() -> None:
    found = plan(adam(torch_adam=True)).optimizer
    assert found is not None
    assert found.arguments["weight_decay"] == 0.01


def test_adam_with_l2_and_adamw_that_ignores_the_flag() -> None:
    key = "optimizer.params.adam_w_mode"
    found = reading(adam("Adam", adam_w_mode=False))
    assert found.plan.optimizer is not None
    assert (found.plan.optimizer.name, found.fields[key]) == ("Adam", "optimizer.name")
    assert item(adam("AdamW", adam_w_mode=False), key).outcome == "no-effect"


def test_bias_correction() -> None:
    found = plan(adam(bias_correction=False)).optimizer
    assert found is not None
    assert not found.bias_correction
    assert item(adam(bias_correction=True), "optimizer.params.bias_correction").outcome == "no-effect"


def test_only_written_arguments_of_torchs_classes_are_there() -> None:
    found = plan(adam("SGD", lr=0.1, momentum=0.9, nesterov=False, fused=None)).optimizer
    assert found == Optimizer(name="SGD", arguments={"lr": 0.1, "momentum": 0.9})


def test_a_zero_is_no_missing_argument() -> None:
    """0 is the weight of older gradients here, where torch's own default is 0.004."""
    found = plan(adam("NAdam", lr=0.1, momentum_decay=0)).optimizer
    assert found == Optimizer(name="NAdam", arguments={"lr": 0.1, "momentum_decay": 0})


@pytest.mark.parametrize(
    ("offload", "zero", "outcome"),
    [({}, "negative", "approximate"), ({"offload_optimizer": {"device": "cpu"}}, "bit", "close")],
)
def test_lion_moves_without_gradient(offload: dict[str, Any], zero: str, outcome: str) -> None:
    source = adam("Lion", lr=0.1) | {"zero_optimization": {"stage": 3} | offload}
    found = reading(source)
    assert found.plan.optimizer is not None
    assert found.plan.optimizer.sign_of_zero == zero
    assert found.remarks["optimizer.type"].outcome == outcome


@pytest.mark.parametrize("kind", ["Lamb", "MuSGD", "Adafactor", "Rprop", "LBFGS", "SparseAdam"])
def test_refused_optimizers_say_what_to_do(kind: str) -> None:
    found = item(adam(kind, lr=0.1), "optimizer.type")
    assert found.outcome == "unsupported"
    assert found.note
    assert found.action


def test_auto_in_the_optimizer_is_open() -> None:
    found = plan(adam(lr="auto", betas="auto", weight_decay="auto")).optimizer
    assert found is not None
    assert found.arguments["lr"] == Unresolved(key="optimizer.params.lr")
    assert found.arguments["betas"] == Unresolved(key="optimizer.params.betas")
    assert found.arguments["eps"] == 1e-8


def test_no_optimizer() -> None:
    assert plan(ZERO3).optimizer is None
    assert plan(ZERO3 | {"optimizer": {"params": {"lr": 1}}}).optimizer is None


def test_another_optimizer_is_unsupported_with_all_its_arguments() -> None:
    source = adam("Lamb", lr=0.1, max_coeff=0.3)
    assert plan(source).optimizer is None
    assert item(source, "optimizer.type").outcome == "unsupported"
    assert item(source, "optimizer.params.max_coeff").outcome == "unsupported"


def warmup(kind: str, **params: Any) -> dict[str, Any]:
    return ZERO3 | {"scheduler": {"type": kind, "params": params}}


def test_schedules() -> None:
    found = plan(warmup("WarmupLR", warmup_num_steps=10)).schedule
    assert found == Warmup(name="WarmupLR", min_lr=0.0, max_lr=None, warmup_steps=10, warmup="log")
    found = plan(warmup("WarmupDecayLR", total_num_steps=50, warmup_type="linear")).schedule
    assert found == Warmup(
        name="WarmupDecayLR", min_lr=0.0, max_lr=0.001, warmup_steps=1000, warmup="linear", total_steps=50
    )


def test_an_explicit_null_peak_is_the_lr_of_the_optimizer() -> None:
    found = plan(warmup("WarmupDecayLR", total_num_steps=50, warmup_max_lr=None)).schedule
    assert isinstance(found, Warmup)
    assert found.max_lr is None


def test_schedules_that_deepspeed_refuses() -> None:
    assert (
        item(warmup("WarmupLR", total_num_steps=5), "scheduler.params.total_num_steps").outcome
        == "rejected-by-source"
    )
    found = plan(warmup("WarmupDecayLR")).schedule
    assert isinstance(found, Warmup)
    assert found.total_steps == Unresolved(key="scheduler.params.total_num_steps")


def test_a_cosine() -> None:
    found = plan(warmup("WarmupCosineLR", total_num_steps=5, cos_min_ratio=0.1)).schedule
    assert found == WarmupCosine(
        min_ratio=0.0, final_ratio=0.1, warmup_steps=1000, warmup="log", total_steps=5
    )


def one_cycle(**params: Any) -> OneCycle:
    found = plan(warmup("OneCycle", cycle_min_lr=0.1, cycle_max_lr=1.0, **params)).schedule
    assert isinstance(found, OneCycle)
    return found


def test_the_second_half_of_a_cycle_is_as_the_first() -> None:
    found = one_cycle(cycle_first_step_size=5, cycle_first_stair_count=2)
    assert (found.second_steps, found.second_stairs) == (5, 2)
    found = one_cycle(cycle_first_step_size=5, cycle_second_step_size=0, cycle_second_stair_count=3)
    assert (found.second_steps, found.first_stairs, found.second_stairs) == (0, 0, 3)


def test_momentum_moves_unless_said_otherwise() -> None:
    assert one_cycle().momentum == Momentum(low=0.8, high=0.9, decay=0.0)
    assert one_cycle(cycle_momentum=False).momentum is None
    source = warmup("OneCycle", cycle_min_lr=0.1, cycle_max_lr=1.0, cycle_momentum=True)
    source["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
    found = plan(source).schedule
    assert isinstance(found, OneCycle)
    assert found.momentum is None
    assert item(source, "scheduler.params.cycle_momentum").outcome == "no-effect"


def test_a_list_of_one_rate_is_a_rate() -> None:
    found = plan(warmup("LRRangeTest", lr_range_test_min_lr=[0.3])).schedule
    assert found == RangeTest(min_lr=0.3, interval=2000, rate=1.0, staircase=False)
    one_each = warmup("WarmupLR", warmup_max_lr=[0.1, 0.2])
    assert plan(one_each).schedule is None
    assert item(one_each, "scheduler.params.warmup_max_lr").outcome == "unsupported"


def test_schedules_of_torch() -> None:
    found = plan(warmup("StepLR", step_size=3, gamma=0.5)).schedule
    assert found == TorchSchedule(name="StepLR", arguments={"step_size": 3, "gamma": 0.5})
    assert item(warmup("ReduceLROnPlateau"), "scheduler.type").outcome == "unsupported"


@pytest.mark.parametrize(
    ("keys", "key", "outcome"),
    [
        ({"amp": {"enabled": False}}, "amp", "rejected-by-source"),
        ({"no_such_key": 1}, "no_such_key", "no-effect"),
        ({"steps_per_print": 10}, "steps_per_print", "no-effect"),
        ({"tensorboard": {"enabled": True, "job_name": "x"}}, "tensorboard", "no-effect"),
        ({"activation_checkpointing": {"profile": True}}, "activation_checkpointing.profile", "no-effect"),
        ({"hybrid_engine": {"enabled": True}}, "hybrid_engine", "unsupported"),
        ({"hybrid_engine": {"enabled": False}}, "hybrid_engine", "no-effect"),
        ({"compile": {"deepcompile": True}}, "compile.deepcompile", "no-effect"),
        ({"compile": {"deepcompile": False, "passes": ["z3"]}}, "compile.passes", "no-effect"),
        ({"compile": {"offload_parameters": True}}, "compile.offload_parameters", "no-effect"),
        (
            {"compile": {"deepcompile": True, "offload_parameters": True}},
            "compile.offload_parameters",
            "unsupported",
        ),
        ({"torch_autocast": {"enabled": False}}, "torch_autocast.enabled", "no-effect"),
        ({"torch_autocast": {"dtype": "bf16"}}, "torch_autocast.dtype", "no-effect"),
        ({"expert_parallel": {"enabled": False}}, "expert_parallel", "no-effect"),
        ({"data_efficiency": {"enabled": True}}, "data_efficiency", "no-effect"),
        (
            {"data_efficiency": {"enabled": False, "data_routing": {"random_ltd": {"enabled": True}}}},
            "data_efficiency",
            "unsupported",
        ),
        ({"fp16": {"enabled": False, "loss_scale": 128}}, "fp16.loss_scale", "no-effect"),
        ({"fp16": {"enabled": True, "loss_scale": 128, "hysteresis": 3}}, "fp16.hysteresis", "no-effect"),
        ({"fp16": {"enabled": True, "auto_cast": False}}, "fp16.auto_cast", "no-effect"),
        ({"fp16": {"enabled": "auto", "loss_scale": 0}}, "fp16.loss_scale", "no-effect"),
        ({"gradient_predivide_factor": 1.0}, "gradient_predivide_factor", "no-effect"),
        ({"sequence_parallel_size": 2}, "sequence_parallel_size", "unsupported"),
    ],
)
def test_keys_without_a_place(keys: dict[str, Any], key: str, outcome: str) -> None:
    assert item(ZERO3 | keys, key).outcome == outcome


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"activation_checkpointing": {"partition_activations": True}}, "partition_activations"),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, "cpu_checkpointing"),
        ({"tensorboard": {"enabled": True}}, "tensorboard"),
        ({"flops_profiler": {"enabled": True}}, "flops_profiler"),
        ({"comms_logger": {"enabled": True}}, "comms_logger"),
        ({"wall_clock_breakdown": True}, "wall_clock_breakdown"),
        ({"compile": {"deepcompile": True}}, "deepcompile"),
    ],
)
def test_what_the_emitted_code_does_not_have_says_what_to_do(keys: dict[str, Any], key: str) -> None:
    def found(keys: dict[str, Any]) -> list[tuple[str, str | None]]:
        items = reading(ZERO3 | keys).items
        return [(item.outcome, item.action) for item in items if item.key.rpartition(".")[2] == key]

    ((outcome, action),) = found(keys)
    assert outcome == "no-effect"
    assert action
    off = json.loads(json.dumps(keys).replace("true", "false"))
    if key != "comms_logger":  # it is on as soon as it is there
        assert found(off) == [("no-effect", None)]


@pytest.mark.parametrize(
    ("keys", "key", "outcome"),
    [
        ({"reduce_bucket_size": 1}, "reduce_bucket_size", "no-effect"),
        ({"reduce_bucket_size": "auto"}, "reduce_bucket_size", "no-effect"),
        ({"max_live_parameters": 5}, "stage3_max_live_parameters", "no-effect"),
        ({"zero_hpz_partition_size": 1}, "zero_hpz_partition_size", "no-effect"),
        ({"offload_param": {"device": "none", "pin_memory": True}}, "offload_param.pin_memory", "no-effect"),
        ({"offload_param": {"device": "cpu", "max_in_cpu": 9}}, "offload_param.max_in_cpu", "no-effect"),
        ({"offload_param": {"device": "nvme", "nvme_path": "/x"}}, "offload_param.device", "unsupported"),
        ({"offload_param": {"device": "nvme", "nvme_path": "/x"}}, "offload_param.nvme_path", "unsupported"),
        ({"offload_optimizer": None}, "offload_optimizer", "no-effect"),
        ({"zenflow": {"topk_ratio": 0.1}}, "zenflow", "unsupported"),
        ({"memory_efficient_linear": False}, "memory_efficient_linear", "no-effect"),
        ({"mics_shard_size": 4}, "mics_shard_size", "rejected-by-source"),
    ],
)
def test_zero_keys_without_a_place(keys: dict[str, Any], key: str, outcome: str) -> None:
    source = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, **keys}}
    assert item(source, f"zero_optimization.{key}").outcome == outcome


def test_roundings_that_no_torch_code_repeats() -> None:
    bf16 = ZERO3 | {"bf16": {"enabled": True}, "gradient_accumulation_steps": 4}
    found = reading(bf16)
    assert "data_types.grad_accum_dtype" in found.in_force
    assert [i.outcome for i in found.items if i.key.endswith("memory_efficient_linear")] == ["close"]
    assert not reading(ZERO3).items


@pytest.mark.parametrize(
    ("changes", "fused"),
    [
        ({"offload_optimizer": {"device": "cpu"}}, True),
        ({"offload_param": {"device": "cpu"}}, None),
        ({}, None),
    ],
)
def test_offloaded_adam_is_fused_as_deepspeeds_kernel(changes: dict[str, Any], fused: bool | None) -> None:
    source = ZERO3 | {
        "zero_optimization": {"stage": 3, **changes},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    }
    optimizer = reading(source).plan.optimizer
    assert optimizer is not None
    assert optimizer.arguments.get("fused") is fused


def test_torchs_own_adam_stays_as_it_is() -> None:
    source = ZERO3 | {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "zero_force_ds_cpu_optimizer": False,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    optimizer = reading(source).plan.optimizer
    assert optimizer is not None
    assert "fused" not in optimizer.arguments
