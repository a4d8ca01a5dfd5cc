"""What a config of Accelerate trains, as a Plan, and what is said of each of its keys."""

from __future__ import annotations

import pytest
from corpus import corpus_yaml, needs_corpus
from translated import accelerate_reading, labels_of, text_of, unlanded

from dsconf.config.context import Context
from dsconf.formats.fsdp_precision import SCALING
from dsconf.formats.reading import Reading
from dsconf.plan import Checkpoint, Launch, Offload, Precision, Sharding, Wrapping

ANY = Context()
WHOLE = Sharding(partition="nothing", reshard_after_forward=False)


def fsdp(
    *lines: str, head: str = "mixed_precision: bf16\nnum_processes: 8\n", context: Context = ANY
) -> Reading:
    section = "".join(f"  {line}\n" for line in lines)
    return accelerate_reading(f"distributed_type: FSDP\n{head}fsdp_config:\n{section or '  {}'}", context)


def outcome(reading: Reading, key: str) -> str:
    return next(item.outcome for item in reading.items if item.key == key)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("fsdp_version: 2",), Sharding(partition="parameters")),
        (
            ("fsdp_version: 2", "fsdp_reshard_after_forward: false"),
            Sharding(partition="gradients", reshard_after_forward=False),
        ),
        (("fsdp_sharding_strategy: FULL_SHARD",), Sharding(partition="parameters")),
        (("fsdp_sharding_strategy: 1",), Sharding(partition="parameters")),
        (("sharding_strategy: shard_grad_op",), Sharding(partition="gradients", reshard_after_forward=False)),
        (("fsdp_sharding_strategy: NO_SHARD",), WHOLE),
        # Each version goes by its own key.
        (("fsdp_version: 2", "fsdp_sharding_strategy: SHARD_GRAD_OP"), Sharding(partition="parameters")),
        (("fsdp_version: 1", "fsdp_reshard_after_forward: NO_SHARD"), Sharding(partition="parameters")),
        (("version: 2", "fsdp_version: 1", "fsdp_sharding_strategy: 3"), WHOLE),
    ],
)
def test_what_is_divided(lines: tuple[str, ...], expected: Sharding) -> None:
    assert fsdp(*lines).plan.sharding == expected


@pytest.mark.parametrize("strategy", ["HYBRID_SHARD", "4", "hybrid_shard"])
def test_hybrid_shard_copies_the_state_of_each_machine(strategy: str) -> None:
    head = "num_machines: 2\nnum_processes: 16\n"
    assert fsdp(f"fsdp_sharding_strategy: {strategy}", head=head).plan.sharding == Sharding(
        partition="parameters", group=8
    )


def test_hybrid_shard_on_one_machine_is_full_shard() -> None:
    reading = fsdp("fsdp_sharding_strategy: HYBRID_SHARD_ZERO2")
    assert reading.plan.sharding == Sharding(partition="gradients", reshard_after_forward=False)
    assert "one machine" in reading.remarks["fsdp_config.sharding_strategy"].note


def test_hybrid_shard_needs_to_know_the_machines() -> None:
    line = "fsdp_sharding_strategy: HYBRID_SHARD"
    reading = fsdp(line, head="num_machines: 2\n")
    assert outcome(reading, "fsdp_config.sharding_strategy") == "needs-value"
    assert fsdp(line, head="num_machines: 2\n", context=Context(gpus_per_node=4)).plan.sharding.group == 4


def test_a_layout_says_the_groups() -> None:
    layout = (
        "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
        "  parallelism_config_cp_size: 2\n"
    )
    reading = fsdp("fsdp_version: 2", head=f"num_processes: 8\n{layout}")
    assert reading.plan.sharding.group == 4
    assert reading.plan.parallelism.context == 2
    assert reading.fields["parallelism_config.parallelism_config_cp_size"] == "parallelism.context"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            1,
            Precision(
                compute="bf16",
                reduce="bf16",
                autocast="bf16",
                casts_inputs=True,
                units_cast="model",
                buffers="bf16",
                rounded_masters=False,
            ),
        ),
        (
            2,
            Precision(
                compute="bf16",
                reduce="bf16",
                autocast="bf16",
                casts_inputs=True,
                units_cast="all",
                rounded_masters=False,
            ),
        ),
    ],
)
def test_mixed_precision_under_fsdp(version: int, expected: Precision) -> None:
    assert fsdp(f"fsdp_version: {version}").plan.precision == expected


def test_mixed_precision_without_fsdp_is_autocast() -> None:
    reading = accelerate_reading("distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 2\n")
    assert reading.plan.precision == Precision(
        autocast="fp16", reduce="fp32", accumulate="fp32", scaling=SCALING
    )
    assert reading.plan.sharding == WHOLE


@pytest.mark.parametrize("line", ["", "mixed_precision: 'no'\n"])
def test_no_mixed_precision_casts_nothing(line: str) -> None:
    reading = accelerate_reading(f"distributed_type: MULTI_GPU\nnum_processes: 2\n{line}")
    assert reading.plan.precision == Precision()
    assert reading.fields["mixed_precision" if line else "fp16"] == "precision.compute"


MEETING = "main_process_ip: 10.0.0.1\nmain_process_port: 29501\nmachine_rank: 1\n"


def test_how_machines_find_each_other_is_kept() -> None:
    reading = accelerate_reading(f"distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\n{MEETING}")
    launch = Launch(world_size=8, machines=2, gpus_per_node=4, host="10.0.0.1", port=29501, machine_rank=1)
    assert reading.plan.launch == launch
    assert reading.fields["main_process_port"] == "launch.port"


@pytest.mark.parametrize("key", ["main_process_ip", "main_process_port", "machine_rank"])
@pytest.mark.parametrize("value", ["null", "{}", "[a]", "true", "1.5", "${OF_THE_SHELL}"])
def test_what_is_no_address_is_not_taken_for_one(key: str, value: str) -> None:
    reading = accelerate_reading(f"distributed_type: MULTI_GPU\nnum_processes: 8\n{key}: {value}\n")
    assert reading.plan.launch == Launch(world_size=8, machines=1, gpus_per_node=8)
    assert outcome(reading, key) == "no-effect"


def test_a_number_is_no_address() -> None:
    reading = accelerate_reading("distributed_type: MULTI_GPU\nnum_processes: 8\nmain_process_ip: 10\n")
    assert reading.plan.launch.host is None


def test_the_classes_are_named_by_the_key_that_holds_them() -> None:
    classes, policy = "transformer_layer_cls_to_wrap", "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"
    reading = fsdp(policy, f"fsdp_{classes}: LlamaDecoderLayer")
    assert labels_of(reading)["wrapping.block_classes"] == f"fsdp_config.{classes}"
    assert labels_of(fsdp(policy))["wrapping.block_classes"] == "fsdp_config.auto_wrap_policy"
    unread = fsdp("fsdp_auto_wrap_policy: NO_WRAP", f"fsdp_{classes}: LlamaDecoderLayer")
    assert outcome(unread, f"fsdp_config.{classes}") == "no-effect"


def test_eight_bits_are_not_translated() -> None:
    reading = fsdp("fsdp_version: 2", head="mixed_precision: fp8\nnum_processes: 8\n")
    assert outcome(reading, "mixed_precision") == "unsupported"
    assert reading.plan.precision.compute == "bf16"


def test_units_and_checkpoints() -> None:
    plan = fsdp(
        "fsdp_version: 2",
        "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap: A,B",
        "fsdp_offload_params: true",
        "fsdp_state_dict_type: FULL_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading: false",
        "fsdp_activation_checkpointing: true",
    ).plan
    assert plan.wrapping == Wrapping(block_classes=("A", "B"), separate_ends=True)
    assert plan.offload == Offload(parameters=True, optimizer=True, pinned=True)
    assert plan.checkpoint == Checkpoint(weights="full", loads_on_rank_0=False)
    assert plan.recompute is True


def test_what_is_not_written_counts_too() -> None:
    reading = fsdp()
    assert reading.plan.wrapping.root_only
    assert reading.plan.checkpoint == Checkpoint(weights="full", loads_on_rank_0=True)
    section = {"fsdp_config.version", "fsdp_config.auto_wrap_policy", "fsdp_config.sharding_strategy"}
    assert {*reading.in_force} == section | {"autocast", "reduce_dtype", "buffer_dtype"}
    assert reading.fields["buffer_dtype"] == "precision.buffers"


def test_the_loop_is_the_scripts() -> None:
    plan = fsdp("fsdp_version: 2").plan
    assert (plan.batch.micro, plan.batch.accumulation, plan.optimizer, plan.schedule) == (None,) * 4
    assert plan.clipping.max_norm is None


def test_a_section_that_is_not_live_has_no_effect() -> None:
    reading = accelerate_reading(
        "distributed_type: MULTI_GPU\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
    )
    assert outcome(reading, "fsdp_config.sharding_strategy") == "no-effect"
    assert reading.source == "accelerate"
    assert reading.plan.sharding == WHOLE


def test_a_key_that_takes_the_place_of_an_argument_is_told() -> None:
    sections = "fsdp_config:\n  fsdp_x: 1\nmpirun_config:\n  num_machines: 3\n"
    text = f"distributed_type: MULTI_GPU\nnum_processes: 2\n{sections}"
    reading = accelerate_reading(text)
    assert outcome(reading, "fsdp_config.fsdp_x") == "no-effect"
    assert outcome(reading, "mpirun_config.num_machines") == "unsupported"


def test_weights_of_rank_0_need_a_seed_where_nobody_sends_them() -> None:
    reading = fsdp("fsdp_cpu_ram_efficient_loading: false", "fsdp_sync_module_states: true")
    item = next(item for item in reading.items if item.key == "fsdp_config.sync_module_states")
    assert item.outcome == "approximate"
    assert item.action is not None
    assert "set_seed" in item.action


@needs_corpus
def test_every_key_of_public_files_is_told() -> None:
    told = 0
    for path in corpus_yaml():
        if path.parent.name == "accelerate_yaml" and path.suffix in (".yaml", ".yml"):
            reading = accelerate_reading(text_of(path))
            assert unlanded(reading, dict.fromkeys(reading.fields.values())) == [], path.name
            told += 1
    assert told > 80
