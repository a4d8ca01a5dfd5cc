"""What is this file? A DeepSpeed config is told by its top-level keys, other formats by the end of their name."""

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

_OTHER_FORMATS = {
    ".yaml": "YAML",
    ".yml": "YAML",
    ".toml": "TOML",
    ".py": "Python",
    ".sh": "shell scripts",
    ".md": "Markdown",
}


def other_format(path: str) -> str | None:
    """Why a file with such a name is not read as JSON; None where it may be JSON."""
    name = path.lower()
    for suffix, language in _OTHER_FORMATS.items():
        if name.endswith(suffix):
            return f"dsconf reads no {language} yet"
    return None


def is_deepspeed(document: Document, table: Spec) -> bool:
    """Whether the top level holds a key that only DeepSpeed has, two that DeepSpeed has too, or nothing else."""
    keys = {entry.key for entry in document.root.entries}
    known = keys & set(table["keys"])
    return bool(keys & _STRONG) or len(known) >= 2 or (bool(known) and known == keys)
