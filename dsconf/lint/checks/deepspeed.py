"""The named checks over a DeepSpeed config."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsconf.config.effective import Config, Facts
from dsconf.lint.checks import arguments, auto, launch, parallel, reading, training_args, zero
from dsconf.lint.event import Event, Needs

Check = Callable[[Config, Facts], Iterator[Event | Needs]]

CHECKS: dict[str, Check] = {
    "json-syntax": reading.json_syntax,
    "json-strictness": reading.json_strictness,
    "unquoted-text": reading.unquoted_text,
    "template-placeholder": reading.template_placeholder,
    "auto-without-resolver": auto.without_resolver,
    "auto-unsupported-key": auto.unsupported_key,
    "auto-needs-hidden-size": auto.needs_hidden_size,
    "hf-args-mismatch": training_args.mismatch,
    "optimizer-overrides-args": training_args.optimizer_overrides,
    "scheduler-overrides-args": training_args.scheduler_overrides,
    "accelerate-ds-file-conflict": launch.file_conflict,
    "accelerate-precision-conflict": launch.precision_conflict,
    "accelerate-precision-overruled": launch.precision_overruled,
    "accelerate-needs-zero-block": launch.needs_zero_block,
    "alias-section-unread": launch.alias_section,
    "lightning-gas-key": launch.lightning_accumulation,
    "overwritten-key": launch.overwritten_key,
    "stage3-keys": zero.stage3_keys,
    "resume-world-size": zero.resume_world_size,
    "optimizer-arguments": arguments.optimizer_arguments,
    "scheduler-params": arguments.scheduler_params,
    "cycled-momentum": arguments.cycled_momentum,
    "warmup-type": arguments.warmup_type,
    "pipeline-flags": parallel.pipeline_flags,
    "autoep-values": parallel.autoep_values,
}
"""Every check by its name. Its events have that name as their kind."""
