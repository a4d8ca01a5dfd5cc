"""What the norm of the gradient decides: clipping, and steps that are left out."""

from __future__ import annotations

from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.notes import LOOKS_AT_NORM, Notes
from dsconf.formats.reading import Default, Remark
from dsconf.plan import Clipping

_NORM = "gradient_clipping"


def read_clipping(notes: Notes) -> Clipping:
    """The bound of the norm, which has a default, and what becomes of a step without a finite norm."""
    norm = notes.value(_NORM)
    if not notes.config.present(_NORM) and isinstance(norm, int | float) and norm > 0:
        notes.in_force[_NORM] = Default(
            norm, "DeepSpeed's default since 0.19.3; before that nothing was clipped"
        )
    if isinstance(norm, int | float):
        norm = float(norm) if norm > 0 else None
        if norm is not None:
            notes.remarks[_NORM] = Remark("close", "where it acts, DeepSpeed's factor rounds differently")
    return Clipping(max_norm=norm, skips_not_finite=_skips_not_finite(notes))


def _skips_not_finite(notes: Notes) -> bool | None:
    """Whether DeepSpeed leaves out a step whose norm is not finite; None where the precision is open."""
    stage, precision = notes.config.value("zero_optimization.stage"), notes.facts.value("precision")
    if precision == "fp16" or (notes.autocasts and notes.facts.value("autocast_format") == "fp16"):
        return True
    if UNKNOWN in (stage, precision):
        return None
    if stage == 0:
        return precision == "bf16"
    newer = notes.config.context.since(LOOKS_AT_NORM)
    if precision == "bf16" and notes.facts.value("zero_optimizer") == "stage12":
        return notes.config.value("bf16.check_grad_overflow") is True
    return newer
