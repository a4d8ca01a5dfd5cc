"""Derived facts: what follows from several keys together, three-valued, with the keys that it follows from."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.batch import (
    accumulation_steps,
    batch,
    batch_nearest,
    batch_problem,
    batch_unit,
    batch_unit_words,
    data_parallel_world,
    micro_batch,
    pinned_gpus,
    total_batch,
)
from dsconf.config.buckets import reduce_buffer_bytes, reduce_buffer_gib, reduce_buffers
from dsconf.config.effective import Config, Facts, Reader
from dsconf.config.optimizer import optimizer_tested, optimizer_wrapped
from dsconf.config.parallel import (
    autoep_autotp_conflict,
    autotp_preset,
    autotp_presets,
    curriculum_gap,
    datastates,
    deepcompile_offloads,
    deepcompile_scope,
    random_ltd_gap,
)
from dsconf.config.precision import (
    accumulation_format,
    autocast_format,
    bf16_optimizer,
    gpu_without_bf16,
    gpu_without_fp16,
    initial_loss_scale,
    model_dtype,
    negative_loss_scale,
    overflows_before_fall,
    parameter_format,
    power_refused,
    steps_until_default_scale,
    undotted_safe_module,
    unused_scaling_keys,
)
from dsconf.config.training import (
    accumulation_dtype,
    communication_dtype,
    epsilon,
    has_optimizer,
    learning_rate,
    offloads_optimizer,
    optimizer_class,
    overlap_comm,
    precision,
    warmup_max_lr,
    weight_decay,
)
from dsconf.config.zero import (
    builds_cpu_optimizer,
    counts_steps_apart,
    scales_before_reducing,
    sums_gradients,
    zenflow_on,
    zero_optimizer,
)

FACTS: dict[str, Callable[[Reader], object]] = {
    fact.__name__: fact
    for fact in (
        data_parallel_world,
        batch,
        batch_problem,
        total_batch,
        accumulation_steps,
        micro_batch,
        pinned_gpus,
        batch_unit,
        batch_unit_words,
        batch_nearest,
        precision,
        has_optimizer,
        offloads_optimizer,
        optimizer_class,
        optimizer_tested,
        optimizer_wrapped,
        learning_rate,
        epsilon,
        weight_decay,
        overlap_comm,
        communication_dtype,
        accumulation_dtype,
        warmup_max_lr,
        zero_optimizer,
        zenflow_on,
        sums_gradients,
        scales_before_reducing,
        builds_cpu_optimizer,
        counts_steps_apart,
        accumulation_format,
        autocast_format,
        bf16_optimizer,
        initial_loss_scale,
        overflows_before_fall,
        parameter_format,
        power_refused,
        steps_until_default_scale,
        undotted_safe_module,
        negative_loss_scale,
        unused_scaling_keys,
        gpu_without_bf16,
        gpu_without_fp16,
        model_dtype,
        reduce_buffers,
        reduce_buffer_bytes,
        reduce_buffer_gib,
        autotp_preset,
        autotp_presets,
        autoep_autotp_conflict,
        deepcompile_scope,
        deepcompile_offloads,
        curriculum_gap,
        random_ltd_gap,
        datastates,
    )
}
"""Every fact by the name that conditions and readers use for it (`fact.batch_problem`)."""


def facts_of(config: Config) -> Facts:
    """The facts of a Config."""
    return Facts(config, FACTS)


WITH_DEFAULTS = {
    "train_batch_size": "total_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation_steps",
    "communication_data_type": "communication_dtype",
    "data_types.grad_accum_dtype": "accumulation_dtype",
    "zero_optimization.overlap_comm": "overlap_comm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "warmup_max_lr",
}
"""Keys whose value depends on other keys where they are not written, with the fact that says it."""
