"""What TrainingArguments (transformers 5.24) hold where nothing is given."""

from __future__ import annotations

from typing import Any

DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "optim": "adamw_torch_fused",
    "optim_args": None,
    "lr_scheduler_type": "linear",
    "lr_scheduler_kwargs": None,
    "warmup_steps": 0,
    "max_steps": -1,
    "num_train_epochs": 3.0,
    "fp16": False,
    "fp16_full_eval": False,
    "bf16": False,
    "bf16_full_eval": False,
}
"""By argument; a test compares them with the dataclass itself."""
