"""Which name a misspelt one is taken for: realistic misspellings of keys, and names that must stay without advice."""

from __future__ import annotations

from typing import Any

import pytest

from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.nearest import nearest

# By section.
MEANT: dict[str, dict[str, str]] = {
    "zero_optimization": {
        "overlap_com": "overlap_comm",
        "stage3_max_live_params": "stage3_max_live_parameters",
        "contigous_gradients": "contiguous_gradients",
        "contiguous_gradient": "contiguous_gradients",
        "reduce_bucketsize": "reduce_bucket_size",
        "reduce_buckets_size": "reduce_bucket_size",
        "all_gather_bucket_size": "allgather_bucket_size",
        "allgather_buckets_size": "allgather_bucket_size",
        "overlap_communication": "overlap_comm",
        "offload_optimiser": "offload_optimizer",
        "offload_params": "offload_param",
        "offload_parameter": "offload_param",
        "stage3_prefetch_buckets_size": "stage3_prefetch_bucket_size",
        "stage3_param_persistance_threshold": "stage3_param_persistence_threshold",
        "stage3_params_persistence_threshold": "stage3_param_persistence_threshold",
        "stage3_max_reuse_dist": "stage3_max_reuse_distance",
        "stage_3_max_live_parameters": "stage3_max_live_parameters",
        "stage3_gather_16bits_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
        "stage3_gather_bf16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
        "gather_16bit_weights": "gather_16bit_weights_on_model_save",
        "subgroup_size": "sub_group_size",
        "round_robin_gradient": "round_robin_gradients",
        "reduce_scater": "reduce_scatter",
        "stgae": "stage",
        "Stage": "stage",
        "zero_quantised_weights": "zero_quantized_weights",
        "hpz_partition_size": "zero_hpz_partition_size",
    },
    "": {
        "gradient_cliping": "gradient_clipping",
        "train_micro_batch_size_per_device": "train_micro_batch_size_per_gpu",
        "gradient_acumulation_steps": "gradient_accumulation_steps",
        "zero_optimisation": "zero_optimization",
        "train_batchsize": "train_batch_size",
        "train_micro_batch_size": "train_micro_batch_size_per_gpu",
        "micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
        "gradient_accumulation_step": "gradient_accumulation_steps",
        "grad_accumulation_steps": "gradient_accumulation_steps",
        "gradient_clip": "gradient_clipping",
        "grad_clipping": "gradient_clipping",
        "gradient-clipping": "gradient_clipping",
        "Gradient_Clipping": "gradient_clipping",
        "zero_optimizer": "zero_optimization",
        "zero_optimization_": "zero_optimization",
        "optimiser": "optimizer",
        "optmizer": "optimizer",
        "optimizers": "optimizer",
        "schedular": "scheduler",
        "lr_scheduler": "scheduler",
        "fp_16": "fp16",
        "bf_16": "bf16",
        "step_per_print": "steps_per_print",
        "steps_per_prints": "steps_per_print",
        "wall_clock_breakdow": "wall_clock_breakdown",
        "wallclock_breakdown": "wall_clock_breakdown",
        "activation_checkpoint": "activation_checkpointing",
        "activations_checkpointing": "activation_checkpointing",
        "communication_dtype": "communication_data_type",
        "flop_profiler": "flops_profiler",
        "tensor_board": "tensorboard",
        "prescale_gradient": "prescale_gradients",
    },
    "fp16": {
        "enabeld": "enabled",
        "init_scale_power": "initial_scale_power",
        "initial_scale_pow": "initial_scale_power",
        "losscale": "loss_scale",
        "loss_scaling_window": "loss_scale_window",
        "hysterisis": "hysteresis",
        "min_loss_scaling": "min_loss_scale",
        "minimum_loss_scale": "min_loss_scale",
        "autocast": "auto_cast",
    },
    "zero_optimization.offload_optimizer": {
        "pin_mem": "pin_memory",
        "pinned_memory": "pin_memory",
        "devices": "device",
        "buffers_count": "buffer_count",
        "nvme-path": "nvme_path",
    },
    "zero_optimization.offload_param": {
        "max_in_cpus": "max_in_cpu",
    },
    "bf16": {
        "enable": "enabled",
        "enalbed": "enabled",
    },
    "optimizer": {
        "param": "params",
        "tpye": "type",
    },
}
# Keys of other programs and of other sections, and what is too short to tell.
NOT_MEANT: dict[str, list[str]] = {
    "zero_optimization": ["find_unused_parameters", "x", "mp_size", "zero_3", "min_shard_size", "a"],
    "": [
        "hidden-size",
        "weight-decay",
        "norm",
        "split",
        "launcher",
        "backend",
        "distributed",
        "log",
        "num-layers",
        "model-parallel-size",
        "pipe-parallel-size",
        "lr",
        "learning_rate",
        "save-interval",
        "cuda_visible_devices",
        "data-impl",
        "seq-length",
        "warmup",
        "deepspeed_slurm",
        "gpus",
        "epochs",
        "seed",
        "project_name",
        "max_length",
        "train-iters",
        "eval-iters",
        "keep-last-n-checkpoints",
        "train-data-paths",
        "hidden-dropout",
        "bias-gelu-fusion",
        "eval_batch_size",
        "max_train_batch_size",
        "output_dir",
        "model",
        "checkpoint-activations",
        "checkpoint-num-layers",
        "",
        "zero",
    ],
    "fp16": ["opt_level", "fp16_opt_level", "auto_mixed"],
    "optimizer": ["eps", "adam_w_mode", "weight_decay"],
    "bf16": ["loss_scale", "hysteresis", "fp16"],
    "zero_optimization.offload_optimizer": ["max_in_cpu"],
    "zero_optimization.offload_param": ["pipeline_read"],
}


def names(section: str) -> list[str]:
    """The names that lint compares with: those of a section that are neither removed nor deprecated."""
    node: Any = load_keys()
    for key in filter(None, section.split(".")):
        node = node["keys"][key]
    specs = node["keys"]
    return [
        name
        for name, spec in specs.items()
        if specs[spec.get("alias", name)].get("status") not in ("removed", "deprecated")
    ]


def rows(table: dict[str, Any]) -> list[tuple[str, str]]:
    return [(section, name) for section, below in table.items() for name in below]


def test_the_tables_are_large() -> None:
    assert len(rows(MEANT)) >= 70
    assert len(rows(NOT_MEANT)) >= 50


@pytest.mark.parametrize(("section", "name"), rows(MEANT))
def test_meant(section: str, name: str) -> None:
    assert MEANT[section][name] in names(section)
    assert name not in names(section)
    assert nearest(name, names(section)) == MEANT[section][name]


@pytest.mark.parametrize(("section", "name"), rows(NOT_MEANT))
def test_not_meant(section: str, name: str) -> None:
    assert nearest(name, names(section)) is None


@pytest.mark.parametrize("name", ["\ud800", "\u0435nabled", "\u4e2d\u6587", "x" * 10_000, "_" * 50])
def test_any_text_can_be_compared(name: str) -> None:
    assert nearest(name, ["enabled", "stage"]) == ("enabled" if name.endswith("nabled") else None)


def test_a_name_without_its_first_word_needs_to_be_the_only_one() -> None:
    assert nearest("hpz_size", ["zero_hpz_size", "stage"]) == "zero_hpz_size"
    assert nearest("hpz_size", ["a_b_hpz_size", "c_d_hpz_size"]) is None
