"""The key table and the editor schema: complete, up to date, and right in a few places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dsconf.formats.deepspeed.keys import load_keys
from dsconf.formats.deepspeed.model import DeepSpeedConfig
from dsconf.formats.deepspeed.table import artefacts, editor_schema, key_table

# The keys of DeepSpeed 0.19.8, by section, other spellings and removed keys included.
KEYS = {
    "": """
        activation_checkpointing aio allgather_size amp autotuning bf16 bfloat16 checkpoint comet
        comms_logger communication_data_type compile compression_training csv_monitor curriculum_learning
        data_efficiency data_parallel_size data_types dataloader_drop_last datastates_ckpt disable_allgather
        disable_python_gc dump_state eigenvalue elasticity expert_parallel flops_profiler fp16
        gradient_accumulation_steps gradient_allreduce_op gradient_clipping gradient_predivide_factor
        graph_harvesting hybrid_engine log_level managed_gradient_accumulation memory_breakdown nebula
        optimizer pipeline prescale_gradients progressive_layer_drop quantize_training scheduler
        seq_parallel_communication_data_type sequence_parallel_size sparse_attention sparse_gradients
        steps_per_print tensor_parallel tensorboard timers torch_autocast train_batch_size
        train_micro_batch_size_per_gpu use_data_before_expert_parallelism vocabulary_size
        wall_clock_breakdown wandb weight_quantization zero_allow_untested_optimizer
        zero_force_ds_cpu_optimizer zero_optimization
    """,
    "bf16": """
        bf16_master_weights_and_grads bf16_optimizer_states check_grad_overflow enabled
        immediate_grad_update
    """,
    "data_types": "buffer_dtype grad_accum_dtype keep_in_fp32_modules param_dtype",
    "fp16": """
        auto_cast consecutive_hysteresis enabled fp16_master_weights_and_grads hysteresis
        initial_scale_power loss_scale loss_scale_window min_loss_scale
    """,
    "optimizer": "legacy_fusion params type",
    "optimizer.params": """
        adam_lr adam_w_mode amsgrad betas bias_correction eps eps_inside_sqrt foreach fp32_optimizer_states
        lr max_coeff max_grad_norm min_coeff momentum muon_lr ns_method per_head_muon set_grad_none
        torch_adam weight_decay
    """,
    "scheduler": "params type",
    "scheduler.params": """
        cos_min_ratio cycle_first_stair_count cycle_first_step_size cycle_max_lr cycle_max_mom cycle_min_lr
        cycle_min_mom cycle_momentum cycle_second_stair_count cycle_second_step_size decay_lr_rate
        decay_mom_rate decay_step_size last_batch_iteration lr_range_test_min_lr lr_range_test_staircase
        lr_range_test_step_rate lr_range_test_step_size total_num_steps warmup_max_lr warmup_min_lr
        warmup_min_ratio warmup_num_steps warmup_type
    """,
    "zero_optimization": """
        allgather_bucket_size allgather_partitions allgather_sequential compute_grad_norm
        contiguous_gradients cpu_offload cpu_offload_param cpu_offload_use_pin_memory elastic_checkpoint
        enable_sanity_checks gather_16bit_weights_on_model_save ignore_unused_parameters leaf_module
        legacy_stage1 load_from_fp32_weights log_trace_cache_warnings max_live_parameters max_reuse_distance
        memory_efficient_linear mics_hierarchical_params_gather mics_shard_size model_persistence_threshold
        module_granularity_threshold offload_optimizer offload_param overlap_comm override_module_apply
        param_persistence_threshold parameter_alignment pipeline_loading_checkpoint prefetch_bucket_size
        reduce_bucket_size reduce_scatter round_robin_gradients save_muon_momentum_buffer_in_memory stage
        stage3_allgather_sequential stage3_gather_16bit_weights_on_model_save
        stage3_gather_fp16_weights_on_model_save stage3_max_live_parameters stage3_max_reuse_distance
        stage3_model_persistence_threshold stage3_module_granularity_threshold
        stage3_param_persistence_threshold stage3_prefetch_bucket_size
        stage3_use_all_reduce_for_fetch_params sub_group_size use_all_reduce_for_fetch_params
        use_multi_rank_bucket_allreduce zenflow zero_hpz_partition_size zero_quantized_gradients
        zero_quantized_nontrainable_weights zero_quantized_weights zeropp_loco_param
    """,
    "zero_optimization.leaf_module": "classes name_suffixes names",
    "zero_optimization.offload_optimizer": """
        buffer_count cpuadam_cores_perc device fast_init nvme_path pin_memory pipeline_read pipeline_write
        ratio super_offload
    """,
    "zero_optimization.offload_param": "buffer_count buffer_size device max_in_cpu nvme_path pin_memory",
    "zero_optimization.zenflow": """
        auto_ratio full_warm_up_rounds offload overlap_step pt_reserved_cores_perc select_interval
        select_strategy steps_per_epoch topk_ratio update_interval
    """,
}


def node_at(path: str) -> dict[str, Any]:
    node = load_keys()
    for name in path.split(".") if path else ():
        node = node["keys"][name]
    return node


@pytest.mark.parametrize("path", artefacts(), ids=lambda path: path.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == artefacts()[path], (
        "run python -m dsconf.formats.deepspeed.table"
    )


def test_table_text_is_the_table() -> None:
    assert load_keys() == key_table()


@pytest.mark.parametrize("section", KEYS)
def test_sections_have_all_their_keys(section: str) -> None:
    assert sorted(node_at(section)["keys"]) == KEYS[section].split()


def test_no_other_section_is_declared() -> None:
    def sections(node: dict[str, Any], path: str) -> list[str]:
        found = [path]
        for name, below in node["keys"].items():
            if "keys" in below:
                found += sections(below, f"{path}.{name}" if path else name)
        return found

    assert sorted(sections(load_keys(), "")) == sorted(KEYS)


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("zero_optimization.stage", {"type": "int", "values": [0, 1, 2, 3], "default": 0}),
        ("zero_optimization.reduce_bucket_size", {"type": "int", "exclusive_min": 0, "unit": "elements"}),
        ("zero_optimization.offload_optimizer.ratio", {"type": "float", "min": 0, "max": 1, "default": 1.0}),
        ("zero_optimization.zenflow.update_interval", {"type": ["int", "str"], "values": ["auto"], "min": 1}),
        ("zero_optimization.leaf_module", {"type": "object", "nullable": True, "default": {}}),
        ("zero_optimization.offload_param", {"nullable": True, "default": None, "unknown": "raises"}),
        ("zero_optimization.overlap_comm", {"type": "bool", "nullable": True, "default": None}),
        ("zero_optimization.cpu_offload", {"status": "deprecated"}),
        ("zero_optimization.allgather_partitions", {"status": "inert"}),
        ("zero_optimization.prefetch_bucket_size", {"alias": "stage3_prefetch_bucket_size"}),
        ("zero_optimization", {"type": ["object", "bool"], "reader": "pydantic", "unknown": "raises"}),
        ("bfloat16", {"alias": "bf16"}),
        ("amp", {"type": "any", "status": "removed"}),
        ("aio", {"type": "object", "open": True, "nullable": True}),
        ("optimizer.params", {"type": "object", "unknown": "depends"}),
        ("optimizer.params.betas", {"type": "list", "items": "float", "filled_by": ["trainer"]}),
        ("scheduler.params.warmup_num_steps", {"type": "int", "int_only": True, "quoted_fails": "init"}),
        (
            "gradient_clipping",
            {"default": 1.0, "filled_by": ["trainer", "accelerate"], "quoted_fails": "step"},
        ),
    ],
)
def test_nodes(path: str, node: dict[str, Any]) -> None:
    assert node.items() <= node_at(path).items()


def test_absent_keys_without_a_value_have_no_default() -> None:
    assert "default" not in node_at("scheduler.params.total_num_steps")
    assert "default" not in node_at("sequence_parallel_size")
    assert node_at("optimizer")["default"] is None
    assert "nullable" not in node_at("optimizer")


def test_every_key_is_described() -> None:
    schema = editor_schema()
    objects = [schema, *schema["$defs"].values()]
    assert all(part["description"] for part in objects)
    assert [
        name for part in objects for name, key in part["properties"].items() if not key["description"]
    ] == []


def test_the_schema_is_a_schema_of_its_dialect() -> None:
    Draft202012Validator.check_schema(editor_schema())
    assert editor_schema()["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


GOOD: dict[str, Any] = {
    "$schema": "./deepspeed.schema.json",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 1,
    "steps_per_print": None,
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95], "fused": True}},
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 5e8,
        "prefetch_bucket_size": 1000,
        "offload_param": {"device": "cpu"},
        "leaf_module": None,
        "zenflow": {"update_interval": 4},
    },
    "tensorboard": {"enabled": True},
}


def test_the_schema_takes_a_good_file() -> None:
    assert list(Draft202012Validator(editor_schema()).iter_errors(GOOD)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"train_batch_size": "32"},
        {"train_batch_size": 0},
        {"amp": {"enabled": False}},
        {"optimizer": None},
        {"sequence_parallel_size": None},
        {"gradient_allreduce_op": "median"},
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"stag": 3}},
        {"zero_optimization": {"mics_shard_size": 8}},
        {"zero_optimization": {"sub_group_size": "auto"}},
        {"zero_optimization": {"prefetch_bucket_size": "auto"}},
        {"zero_optimization": {"offload_param": {"device": "CPU"}}},
        {"zero_optimization": {"zenflow": {"update_interval": 0}}},
        {"fp16": {"loss_scale": -1}},
        {"tensorboard": []},
    ],
    ids=str,
)
def test_the_schema_refuses(change: dict[str, Any]) -> None:
    assert not Draft202012Validator(editor_schema()).is_valid(GOOD | change)


def test_the_schema_marks_what_is_old_or_filled() -> None:
    zero = editor_schema()["$defs"]["Zero"]["properties"]
    assert zero["cpu_offload"]["deprecated"]
    assert zero["cpu_offload"]["x-replacement"] == "zero_optimization.offload_optimizer"
    assert zero["stage"]["x-auto-filled-by"] == ["trainer", "accelerate"]
    assert "x-auto-filled-by" not in zero["prefetch_bucket_size"]
    assert zero["mics_shard_size"]["x-status"] == "removed"


def test_the_models_can_be_used() -> None:
    config = DeepSpeedConfig.model_validate({"train_batch_size": 8, "zero_optimization": {"stage": 2}})
    assert config.train_batch_size == 8
    assert not isinstance(config.zero_optimization, bool)
    assert config.zero_optimization.stage == 2
