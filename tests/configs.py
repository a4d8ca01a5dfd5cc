"""Configs and scopes made from plain values, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsconf.config.context import Consumer, Context
from dsconf.config.derive import facts_of
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.lint.consumer import config_of as deepspeed_config
from dsconf.lint.evaluate import Scope

ALL_AUTO: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"},
}
"""A config that leaves to Trainer all that Trainer fills."""


def config_of(
    source: str | dict[str, Any],
    consumer: Consumer | None = None,
    world_size: int | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """The Config of a JSON text, or of a value that is written as JSON first."""
    return context_config(source, Context(consumer, world_size), overrides)


def context_config(
    source: str | dict[str, Any], context: Context, overrides: Mapping[str, object] | None = None
) -> Config:
    """The same in any Context."""
    text = source if isinstance(source, str) else json.dumps(source)
    return deepspeed_config(scan("test.json", text), context, overrides)


def scope_of(config: Config, key: Mapping[str, object] | None = None) -> Scope:
    """A scope in which conditions read `config`."""
    return Scope(config, facts_of(config), key)
