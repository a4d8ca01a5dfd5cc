"""The optimizer or the schedule that a misspelt one most likely means."""

from __future__ import annotations

from dsconf.formats.deepspeed.arguments import SCHEDULER_ARGUMENTS, TORCH_SCHEDULERS
from dsconf.formats.deepspeed.optimizers import DEEPSPEED_OPTIMIZERS, TORCH_OPTIMIZERS, optimizer_known
from dsconf.lint.nearest import nearest


def nearest_optimizer(name: object, version: str | None = None) -> str:
    """The optimizer that `name` most likely means: one that it contains, else the nearest, else AdamW."""
    text = str(name).lower()
    names = {own for own in (*DEEPSPEED_OPTIMIZERS, *TORCH_OPTIMIZERS) if optimizer_known(own, version)}
    known = sorted(names, key=lambda known: (-len(known), known))
    for candidate in known:
        if candidate.lower() in text:
            return candidate
    return nearest(text, known) or "AdamW"


_WORDS = {
    "cosine": "WarmupCosineLR",
    "linear": "WarmupDecayLR",
    "decay": "WarmupDecayLR",
    "cycl": "OneCycle",
    "range": "LRRangeTest",
    "constant": "WarmupLR",
    "warmup": "WarmupLR",
}
"""What stands for a schedule in other libraries' names, with that of DeepSpeed which comes nearest."""


def nearest_scheduler(name: object, version: str | None = None) -> str:
    """The schedule that `name` most likely means: in another case, misspelt, or as other libraries call it."""
    text = str(name).lower()
    for candidate in (*SCHEDULER_ARGUMENTS, *TORCH_SCHEDULERS):
        if candidate.lower() == text:
            return candidate
    meant = nearest(text, SCHEDULER_ARGUMENTS)
    return meant or next((own for word, own in _WORDS.items() if word in text), "WarmupLR")
