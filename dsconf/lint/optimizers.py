"""The optimizer that a misspelt one most likely means."""

from __future__ import annotations

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
