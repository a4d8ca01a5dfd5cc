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

_MOST_MISTAKES = 10
"""Nobody misspells more keys than that."""

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


def not_deepspeed(document: Document, table: Spec) -> str | None:
    """Why this is no DeepSpeed config; None where it is one.

    One has a key that only DeepSpeed has at its top level, two that DeepSpeed has too, or nothing else. A file most
    of whose keys are foreign is that of a trainer which takes DeepSpeed's keys among its own.
    """
    keys = {entry.key for entry in document.root.entries}
    known = keys & set(table["keys"])
    if not (keys & _STRONG or len(known) >= 2 or (known and known == keys)):
        return "no DeepSpeed config: it has none of DeepSpeed's keys (--consumer says who reads it)"
    if len(keys - known) > max(_MOST_MISTAKES, 2 * len(known)):
        return "another trainer's config: most of its keys are not DeepSpeed's (--consumer says who reads it)"
    return None
