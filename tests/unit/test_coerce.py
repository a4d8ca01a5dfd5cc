"""`coerce` by itself; tests/oracle compares it with the real DeepSpeed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dsconf.config.coerce import Invalid, coerce, expected
from dsconf.formats.deepspeed.keys import load_keys


def at(path: str) -> tuple[dict[str, Any], str]:
    section: dict[str, Any] = {}
    node = load_keys()
    for name in path.split("."):
        section, node = node, node["keys"][name]
    return node, section.get("reader", "raw")


Z = "zero_optimization"
D = "data_efficiency.data_sampling.dynamic_batching"


@pytest.mark.parametrize(
    ("path", "written", "value"),
    [
        (f"{Z}.stage", "3", 3),
        (f"{Z}.stage", 3.0, 3),
        (f"{Z}.stage", True, 1),
        (f"{Z}.stage", " 2 ", 2),
        (f"{Z}.stage", "auto", 0),
        (f"{Z}.reduce_bucket_size", 5e8, 500_000_000),
        (f"{Z}.reduce_bucket_size", "500", 500),
        (f"{Z}.reduce_bucket_size", "1_000.0", 1000),
        (f"{Z}.sub_group_size", 2**64, 2**64),
        (f"{Z}.reduce_scatter", "OFF", False),
        (f"{Z}.reduce_scatter", 1.0, True),
        (f"{Z}.overlap_comm", None, None),
        (f"{Z}.offload_optimizer.ratio", "0_.5", 0.5),
        (f"{Z}.offload_optimizer.ratio", True, 1.0),
        (f"{Z}.offload_optimizer.device", "cpu", "cpu"),
        (f"{Z}.offload_param", None, None),
        (f"{Z}.offload_param", "auto", None),
        (f"{Z}.leaf_module", None, {}),
        (f"{Z}.leaf_module.names", "a", ["a"]),
        (f"{Z}.leaf_module.names", ["a", "a"], ["a"]),
        (f"{Z}.zenflow.update_interval", 2.0, 2),
        (Z, True, True),
        ("fp16.loss_scale", "1e3", 1000.0),
        ("fp16.min_loss_scale", 1e3, 1000),
        ("fp16.hysteresis", "1.0", 1),
        ("train_batch_size", 8.0, 8.0),
        ("train_batch_size", None, None),
        ("prescale_gradients", "false", "false"),
        ("gradient_allreduce_op", "SUM", "sum"),
        ("data_types.keep_in_fp32_modules", "auto", "auto"),
        ("optimizer.params.betas", [0.9, 0.95], [0.9, 0.95]),
        ("scheduler.params.cycle_first_step_size", "5", "5"),
        ("datastates_ckpt", 7, 7),
        ("tensorboard", {"enabled": True}, {"enabled": True}),
        ("checkpoint.tag_validation", "warn", "WARN"),
        ("checkpoint.parallel_write.pipeline_stage", 1.0, 1.0),
        ("autotuning.results_dir", 5, 5),
        (f"{D}.min_batch_size", "7", 7),
        (f"{D}.max_batch_size", 7.9, 7),
        (f"{D}.verbose", "false", True),
        (f"{D}.lr_scaling_method", 5, "5"),
        ("compile.passes", ["z1", "z1"], ["z1", "z1"]),
        ("comms_logger.prof_ops", ["all_reduce", 5], ["all_reduce", 5]),
        ("tensor_parallel.injection_policy_tuple", [], []),
        ("tensor_parallel.partition_config.layer_specs", [{}], [{}]),
        ("tensor_parallel.dtype", "auto", None),
        ("expert_parallel.load_balance_coeff", None, None),
    ],
)
def test_accepted(path: str, written: object, value: object) -> None:
    result = coerce(*at(path), written)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("path", "written", "fails", "words"),
    [
        (f"{Z}.stage", 4, "parse", "one of 0, 1, 2, 3"),
        (f"{Z}.stage", None, "parse", "one of 0, 1, 2, 3"),
        (f"{Z}.reduce_bucket_size", "5e8", "parse", "an integer above 0"),
        (f"{Z}.reduce_bucket_size", 0, "parse", "an integer above 0"),
        (f"{Z}.sub_group_size", 1e25, "parse", "an integer of 0 or more"),
        (f"{Z}.sub_group_size", "\u0663", "parse", "an integer of 0 or more"),
        (f"{Z}.reduce_scatter", "Auto", "parse", "true or false"),
        (f"{Z}.overlap_comm", 2, "parse", "true or false or null"),
        (f"{Z}.offload_optimizer.ratio", 1.5, "parse", "a number from 0 to 1"),
        (f"{Z}.offload_optimizer.device", "CPU", "parse", 'one of "none", "cpu", "nvme"'),
        (f"{Z}.offload_param", True, "parse", "an object or null"),
        (f"{Z}.zenflow.topk_ratio", 1, "parse", "a number above 0 and below 1"),
        (f"{Z}.zenflow.update_interval", "4", "parse", 'an integer of 1 or more or "auto"'),
        (f"{Z}.leaf_module.names", [1], "parse", "a list of strings or a string"),
        (f"{Z}.mics_shard_size", "auto", "parse", "nothing: the key was removed"),
        (Z, None, "parse", "an object or true or false"),
        ("fp16.loss_scale", True, "parse", "a number of 0 or more"),
        ("fp16.min_loss_scale", "1.0", "parse", "an integer"),
        ("train_batch_size", "8", "parse", "an integer above 0 or null"),
        ("train_batch_size", 0, "parse", "an integer above 0 or null"),
        ("gradient_allreduce_op", "median", "parse", 'one of "mean", "sum"'),
        ("wall_clock_breakdown", "true", "parse", "true or false"),
        ("optimizer.type", 5, "parse", "a string or null"),
        ("data_types.keep_in_fp32_modules", "x", "parse", 'a list of strings or "auto"'),
        ("scheduler.params.warmup_num_steps", 100.0, "init", "an integer above 0"),
        ("scheduler.params.warmup_min_lr", "0", "init", "a number or a list of numbers"),
        ("scheduler.params.cycle_first_step_size", "x", "init", "a number above 0"),
        ("optimizer.params.max_grad_norm", 1.0, "init", "nothing: the key was removed"),
        ("optimizer.params.betas", ["0.9", 0.95], "step", "a list of numbers"),
        ("gradient_clipping", "auto", "step", "a number"),
        ("steps_per_print", "5", "step", "a number or null"),
        ("tensorboard", None, "parse", "an object"),
        ("checkpoint.tag_validation", "never", "parse", 'one of "WARN", "IGNORE", "FAIL"'),
        ("checkpoint.parallel_write.pipeline_stage", 2, "parse", "one of true, false"),
        ("autotuning.results_dir", "", "parse", "a string, not empty"),
        (f"{D}.min_batch_size", None, "parse", "an integer"),
        (f"{D}.max_batch_size", float("inf"), "parse", "an integer"),
        ("compile.passes", ["z2"], "parse", 'a list of "z1", "z3", "autosp", "autotp" or null'),
        ("compile.passes", "z1", "parse", 'a list of "z1", "z3", "autosp", "autotp" or null'),
        ("tensor_parallel.partition_config.layer_specs", [1], "init", "a list of objects"),
        ("tensor_parallel.dtype", "fp16", "parse", "nothing: JSON can't hold it"),
        ("expert_parallel.load_balance_coeff", 0.1, "parse", "null"),
    ],
)
def test_refused(path: str, written: object, fails: str, words: str) -> None:
    assert coerce(*at(path), written) == Invalid(fails, words)  # type: ignore[arg-type]


def test_a_strict_section_does_not_drop_auto() -> None:
    assert coerce(*at(f"{Z}.stage"), "auto", strict=True) == Invalid("parse", "one of 0, 1, 2, 3")
    assert coerce(*at("wandb.project"), "auto", strict=True) == "auto"
    assert coerce(*at("wandb.project"), "auto") == "deepspeed"


def test_every_key_can_say_what_it_expects() -> None:
    def words(node: dict[str, Any]) -> list[str]:
        inside = [*node.get("keys", {}).values(), *([node["each"]] if "each" in node else [])]
        below = [text for key in inside for text in words(key)]
        return below if "alias" in node else [expected(node), *below]

    assert all(words(load_keys()))


def test_it_is_cheap_to_import() -> None:
    code = (
        "import sys, dsconf.config.coerce; print(*{'pydantic', 'dataclasses', 'inspect'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
