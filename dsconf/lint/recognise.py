"""Is this JSON a DeepSpeed config? Told by its top-level keys, since file names tell too little."""

from __future__ import annotations

from dsconf.config.effective import Spec
from dsconf.document.node import Document

_STRONG = frozenset(
    {
        "zero_optimization",
        "train_micro_batch_size_per_gpu",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
    }
)
"""Keys that nothing but DeepSpeed has."""


def is_deepspeed(document: Document, table: Spec) -> bool:
    """Whether the top level holds a key that only DeepSpeed has, two that DeepSpeed has too, or nothing else."""
    keys = {entry.key for entry in document.root.entries}
    known = keys & set(table["keys"])
    return bool(keys & _STRONG) or len(known) >= 2 or (bool(known) and known == keys)
