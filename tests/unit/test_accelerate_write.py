"""Plans written as configs of Accelerate, and what only a script can say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from any_plans import any_plan
from translated import (
    accelerate_config,
    accelerate_reading,
    complaints,
    deepspeed_reading,
    labels_of,
    unlanded,
)

from dsconf.config.context import Context
from dsconf.formats.accelerate.read_deepspeed import settings_of
from dsconf.formats.accelerate.write import write
from dsconf.formats.accelerate.write_deepspeed import FILE, DeepSpeed, flat_keys, write_deepspeed
from dsconf.formats.deepspeed.write import drafted
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import Request, Writing
from dsconf.plan import (
    Batch,
    Launch,
    Offload,
    Optimizer,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    TrainerSchedule,
    Unresolved,
    Wrapping,
)

REQUEST = Request("What it is.", {})
EIGHT = Launch(world_size=8)
SHARDED = Sharding(partition="parameters")

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}},
}
WRITTEN = """\
# What it is.
#
# The rest is the script's:
#
#   gradient_accumulation_steps: Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=8, \
sync_each_batch=True)), and each micro batch in accelerator.accumulate(model)
#   train_micro_batch_size_per_gpu: DataLoader(batch_size=4)
#   clipping skips not finite: leave out optimizer.step() and scheduler.step() where the norm of the gradient is not \
finite
#   gradient_clipping: accelerator.clip_grad_norm_(model.parameters(), 1.0) where accelerator.sync_gradients
#   optimizer.type: torch.optim.AdamW(model.parameters(), lr=0.0001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.1, \
fused=True)
#   scheduler.type: build_scheduler() as dsconf translate --to fsdp2 writes it; keep it out of accelerator.prepare(), \
which steps a schedule once per rank, and step it once per step
compute_environment: LOCAL_MACHINE
distributed_type: FSDP  # zero_optimization.stage
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: true  # zero_optimization.offload_optimizer.device
  fsdp_reshard_after_forward: true  # zero_optimization.stage
  fsdp_version: 2  # zero_optimization.stage
machine_rank: 0
mixed_precision: bf16  # bf16.enabled
num_machines: 1
num_processes: 8  # of all machines
"""


def landing(field: str, **fields: Any) -> Landing:
    return write(Plan(launch=EIGHT, **{"sharding": SHARDED, **fields}), REQUEST).landings[field]


def test_a_whole_file() -> None:
    reading = deepspeed_reading(json.dumps(CONFIG))
    plan = reading.plan.model_copy(update={"launch": EIGHT})
    assert write(plan, Request("What it is.", labels_of(reading))).text == WRITTEN


@pytest.mark.parametrize("seed", range(60))
def test_plans_of_any_kind_lint_clean_and_land(seed: int) -> None:
    plan = any_plan(seed)
    writing = write(plan, REQUEST)
    assert complaints("accelerate.yaml", writing.text) == []
    again = accelerate_reading(writing.text)
    assert unlanded(again, write(again.plan, REQUEST).landings) == []
    for part in ("batch", "precision", "sharding", "offload", "clipping", "wrapping", "parallelism"):
        for name, value in getattr(plan, part):
            default = getattr(type(getattr(plan, part))(), name)
            assert value == default or f"{part}.{name}" in writing.landings, f"{part}.{name}"


@pytest.mark.parametrize(
    ("field", "outcome", "action", "fields"),
    [
        ("offload.optimizer", "approximate", None, {"offload": Offload(optimizer=True)}),
        (
            "sharding.reshard_after_forward",
            "close",
            None,
            {"sharding": Sharding(partition="parameters", reshard_after_forward=4)},
        ),
        (
            "precision.reduce",
            "approximate",
            "FullyShardedDataParallelPlugin(mixed_precision_policy=",
            {"precision": Precision(compute="bf16", reduce="fp32")},
        ),
        (
            "batch.accumulation",
            "exact",
            "GradientAccumulationPlugin(num_steps=8, sync_each_batch=True)",
            {"batch": Batch(accumulation=8)},
        ),
        (
            "batch.accumulation",
            "exact",
            "Accelerator(gradient_accumulation_steps=8)",
            {"batch": Batch(accumulation=8), "sharding": Sharding(partition="optimizer")},
        ),
        (
            "sharding.sums_gradients",
            "approximate",
            "multiply the loss",
            {"sharding": Sharding(partition="parameters", sums_gradients=True)},
        ),
        ("wrapping.min_params", "approximate", "--blocks", {"wrapping": Wrapping(min_params=1000)}),
        (
            "parallelism.sequence",
            "unsupported",
            "accelerate-deepspeed",
            {"parallelism": Parallelism(sequence=2)},
        ),
        (
            "precision.compute",
            "needs-value",
            "--set bf16.enabled=true",
            {"precision": Precision(compute=Unresolved(key="bf16.enabled"))},
        ),
        (
            "sharding.group",
            "unsupported",
            None,
            {"sharding": Sharding(partition="parameters", group=3)},
        ),
    ],
)
def test_what_accelerate_can_not_say(
    field: str, outcome: str, action: str | None, fields: dict[str, Any]
) -> None:
    found = landing(field, **fields)
    assert found.outcome == outcome
    assert action is None or action in (found.action or "")


@pytest.mark.parametrize("units", [{"root_only": True}, {"min_params": 1000}])
def test_classes_that_somebody_names_are_the_units(units: dict[str, Any]) -> None:
    wrapping = Wrapping(block_classes=("B",), **units)
    writing = write(Plan(sharding=Sharding(partition="parameters"), wrapping=wrapping), REQUEST)
    assert "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP" in writing.text
    assert "fsdp_transformer_layer_cls_to_wrap: B" in writing.text
    assert writing.landings["wrapping.block_classes"].outcome == "exact"
    for field in ("root_only", "min_params"):
        assert writing.landings[f"wrapping.{field}"].note == "the classes of the units are given"


def test_groups_need_the_number_of_ranks() -> None:
    plan = Plan(sharding=Sharding(partition="parameters", group=4))
    writing = write(plan, REQUEST)
    assert writing.landings["sharding.group"].outcome == "needs-value"
    assert "--world-size" in (writing.landings["sharding.group"].action or "")
    assert "num_processes" not in writing.text


def test_several_machines_need_the_address_of_the_first() -> None:
    writing = write(Plan(launch=Launch(world_size=16, gpus_per_node=8)), REQUEST)
    assert "num_machines: 2\n" in writing.text
    assert "main_process_ip: HOST" in writing.text
    assert writing.landings["launch.machines"].outcome == "needs-value"


def test_the_address_that_the_source_names_is_kept() -> None:
    launch = Launch(world_size=16, machines=2, host="10.0.0.1", port=29501, machine_rank=1)
    writing = write(Plan(launch=launch), Request("", {"launch.host": "main_process_ip"}))
    assert "main_process_ip: 10.0.0.1  # main_process_ip\n" in writing.text
    assert "main_process_port: 29501\n" in writing.text
    assert "machine_rank: 1\n" in writing.text
    for field in ("machines", "host", "port", "machine_rank"):
        assert writing.landings[f"launch.{field}"].outcome == "exact"
    assert accelerate_reading(writing.text).plan.launch == launch.model_copy(update={"gpus_per_node": 8})


def test_a_port_of_one_machine_is_kept() -> None:
    text = write(Plan(launch=Launch(world_size=8, machines=1, port=29501)), REQUEST).text
    assert "main_process_port: 29501\n" in text
    assert "main_process_ip" not in text


def test_nothing_divided_is_ddp() -> None:
    text = write(Plan(launch=EIGHT, precision=Precision(autocast="bf16")), REQUEST).text
    assert "distributed_type: MULTI_GPU" in text
    assert "fsdp" not in text
    assert "mixed_precision: bf16" in text


# ---- DeepSpeed ---------------------------------------------------------------------------------------


def deepspeed(settings: dict[str, Any], path: str | None = None) -> Writing:
    reading = deepspeed_reading(json.dumps(settings), Context(world_size=8))
    plan = reading.plan.model_copy(update={"launch": EIGHT})
    inner = DeepSpeed(settings, drafted(plan)[1], path)
    return write_deepspeed(plan, Request("What it is.", labels_of(reading)), inner)


FLAT: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu"},
        "offload_param": {"device": "cpu"},
        "stage3_gather_16bit_weights_on_model_save": True,
    },
}


def test_flat_keys_where_they_suffice() -> None:
    writing = deepspeed(FLAT)
    assert writing.beside == {}
    section = accelerate_config(writing.text).raw("deepspeed_config")
    assert section == {
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.5,
        "offload_optimizer_device": "cpu",
        "offload_param_device": "cpu",
        "zero3_save_16bit_model": True,
        "zero_stage": 3,
    }
    assert complaints("accelerate.yaml", writing.text) == []


def test_flat_keys_come_back() -> None:
    flat = settings_of(accelerate_config(deepspeed(FLAT).text))
    assert flat is not None
    wanted = {key: value for key, value in FLAT.items() if not key.startswith("train_")}
    assert flat.settings == wanted
    assert flat.sources["zero_optimization.stage"] == "deepspeed_config.zero_stage"


@pytest.mark.parametrize(
    "more",
    [
        {"train_micro_batch_size_per_gpu": 4},
        {"gradient_clipping": 0.0},
        {"optimizer": CONFIG["optimizer"]},
        {"fp16": {"enabled": True}, "bf16": {"enabled": False}},
        {"bf16": {"enabled": "auto"}},
        {"communication_data_type": "fp32"},
        {"zero_optimization": {"stage": 3}},
        {"zero_optimization": {"stage": 2, "overlap_comm": True}},
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/fast"}}},
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}},
    ],
)
def test_a_file_where_flat_keys_do_not_suffice(more: dict[str, Any]) -> None:
    assert flat_keys(FLAT) is not None
    assert flat_keys({**FLAT, **more}) is None
    writing = deepspeed({**FLAT, **more})
    assert json.loads(writing.beside[FILE]) == {**FLAT, **more}
    assert f"deepspeed_config_file: {FILE}" in writing.text
    assert "mixed_precision" not in writing.text
    assert complaints("accelerate.yaml", writing.text) == []


def test_a_file_that_is_there_is_named() -> None:
    writing = deepspeed(CONFIG, "configs/zero3.json")
    assert writing.beside == {}
    assert "deepspeed_config_file: configs/zero3.json" in writing.text


def test_accelerate_wants_a_section_of_zero() -> None:
    settings = {"train_micro_batch_size_per_gpu": 4}
    writing = deepspeed(settings, "ds.json")
    assert json.loads(writing.beside[FILE])["zero_optimization"] == {"stage": 0}


def test_a_precision_that_is_left_open_comes_from_the_command_line() -> None:
    writing = deepspeed({**FLAT, "bf16": {"enabled": "auto"}})
    assert writing.landings["precision.compute"].outcome == "needs-value"
    assert "--mixed_precision bf16" in (writing.landings["precision.compute"].action or "")


def test_what_is_auto_is_filled_from_the_script() -> None:
    params = {"lr": "auto", "betas": "auto", "weight_decay": 0.1}
    schedule = {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "total_num_steps": "auto"}}
    auto = {"optimizer": {"type": "AdamW", "params": params}, "scheduler": schedule}
    writing = deepspeed({**FLAT, **auto, "gradient_accumulation_steps": "auto", "gradient_clipping": "auto"})
    landings = writing.landings
    assert landings["batch.micro"].target == landings["batch.accumulation"].target == "auto"
    assert "1.0" in landings["clipping.max_norm"].note
    assert "DummyOptim(model.parameters(), lr=...)" in (landings["optimizer.name"].action or "")
    assert landings["optimizer.betas"].outcome == "needs-value"
    assert "write it in ds_config.json" in (landings["optimizer.betas"].action or "")
    assert landings["schedule.min_lr"].outcome == "exact"
    assert "DummyScheduler(optimizer, total_num_steps=...)" in (landings["schedule.name"].action or "")


def test_a_schedule_that_deepspeed_does_not_have_is_made_by_a_function() -> None:
    plan = Plan(
        launch=EIGHT,
        sharding=SHARDED,
        optimizer=Optimizer(name="AdamW", arguments={"lr": 1e-4}),
        schedule=TrainerSchedule(name="cosine", warmup_steps=100, total_steps=Unresolved(key="steps")),
    )
    settings, landings = drafted(plan)
    assert "scheduler" not in settings
    writing = write_deepspeed(plan, REQUEST, DeepSpeed(settings, landings))
    assert "lr_scheduler_callable=" in (writing.landings["schedule.name"].action or "")
    assert writing.landings["schedule.total_steps"].target != "auto"


def test_what_the_launcher_drops_goes_nowhere() -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n"
        "  offload_param_device: nvme\n  offload_param_nvme_path: /fast\n"
    )
    flat = settings_of(accelerate_config(text))
    assert flat is not None
    assert flat.settings["zero_optimization"]["offload_param"] == {"device": "nvme", "nvme_path": "none"}
    (dropped,) = [item for item in flat.items if item.key.endswith("nvme_path")]
    assert dropped.outcome == "no-effect"
    assert "folder named none" in dropped.note
