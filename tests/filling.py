"""Values for what a config leaves open, such as a run would give them."""

from __future__ import annotations

from pathlib import Path

from dsconf.config.context import Context
from dsconf.document.node import UNKNOWN
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import open_document

VALUES: dict[str, object] = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "bf16.enabled": True,
    "fp16.enabled": False,
    "optimizer.params.lr": 1e-4,
    "optimizer.params.betas": [0.9, 0.999],
    "optimizer.params.eps": 1e-8,
    "optimizer.params.weight_decay": 0.01,
    "scheduler.params.warmup_min_lr": 1e-5,
    "scheduler.params.warmup_max_lr": 1e-4,
    "scheduler.params.warmup_num_steps": 10,
    "scheduler.params.total_num_steps": 100,
    "zero_optimization.stage": 2,
    "tensor_parallel.autotp_size": 1,
    "data_efficiency.data_sampling.curriculum_learning.enabled": False,
    "data_efficiency.data_routing.random_ltd.enabled": False,
}
"""By key what stands in for "auto" and for the placeholders of templates."""


def values_for(path: Path) -> dict[str, object]:
    """The VALUES of the keys that a file leaves open. Raises Unusable."""
    config = config_of(open_document(str(path), Context()), Context(), {})
    open_ = [item.path for item in config.written if item.entry.node.plain() in ("auto", UNKNOWN)]
    return {key: VALUES[key] for key in open_ if key in VALUES}
