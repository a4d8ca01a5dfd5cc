"""The name that a misspelt one most likely means."""

from __future__ import annotations

from collections.abc import Iterable

from dsconf.formats.deepspeed.optimizers import DEEPSPEED_OPTIMIZERS, TORCH_OPTIMIZERS, optimizer_known


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely a misspelling of, or None."""
    import difflib  # only needed for a misspelt name, and not cheap to import

    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.75)
    return matches[0] if matches else None


def nearest_optimizer(name: object, version: str | None = None) -> str:
    """The optimizer that `name` most likely means: one that it contains, else the nearest, else AdamW."""
    text = str(name).lower()
    names = {own for own in (*DEEPSPEED_OPTIMIZERS, *TORCH_OPTIMIZERS) if optimizer_known(own, version)}
    known = sorted(names, key=lambda known: (-len(known), known))
    for candidate in known:
        if candidate.lower() in text:
            return candidate
    lowered = {candidate.lower(): candidate for candidate in known}
    return lowered.get(nearest(text, lowered) or "", "AdamW")
