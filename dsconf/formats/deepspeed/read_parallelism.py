"""What the Plan divides over GPUs that see the same data."""

from __future__ import annotations

from dsconf.formats.deepspeed.notes import Notes
from dsconf.plan import Parallelism

PARALLELISM_FIELDS = {"tensor_parallel.autotp_size": "parallelism.tensor"}
"""The field of the Plan that each key goes to."""


def read_parallelism(notes: Notes) -> Parallelism:
    """AutoTP, where it divides anything; the older tp_size has to be 1 or the same."""
    path = "tensor_parallel.autotp_size"
    size = notes.config.value(path)
    if not isinstance(size, int) or size <= 1:
        notes.leave(path)
        return Parallelism()
    return Parallelism(tensor=size)
