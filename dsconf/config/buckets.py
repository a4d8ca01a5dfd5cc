"""Facts about the memory of ZeRO's buckets."""

from __future__ import annotations

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def reduce_buffers(read: Reader) -> object:
    """How many buffers of `reduce_bucket_size` elements each GPU holds: two at stages 1 and 2 with overlap_comm."""
    stage = read.value("zero_optimization.stage")
    contiguous = read.value("zero_optimization.contiguous_gradients")
    if UNKNOWN in (stage, contiguous):
        return UNKNOWN
    if stage == 3:
        return int(bool(contiguous))
    if stage not in (1, 2):
        return 0
    whole, offload = read.fact("bf16_optimizer"), read.fact("offloads_optimizer")
    if UNKNOWN in (whole, offload):
        return UNKNOWN
    if whole or not (contiguous or offload):
        return 0
    overlap = read.fact("overlap_comm")
    return UNKNOWN if overlap is UNKNOWN else 2 if overlap else 1


def reduce_buffer_bytes(read: Reader) -> object:
    """Bytes of one element in these buffers.

    At stage 3 they have the dtype of the communication, else that of the model. What depends on more (torch_autocast,
    which makes a buffer for each dtype; accumulation in another dtype at stage 1) is left open.
    """
    stage = read.value("zero_optimization.stage")
    if read.value("torch_autocast.enabled") or stage is UNKNOWN:
        return UNKNOWN
    if stage == 3:
        return _BYTES.get(str(read.fact("communication_dtype")), UNKNOWN)
    precision = read.fact("precision")
    if stage == 1 and read.fact("accumulation_format") != precision:
        return UNKNOWN
    return _BYTES.get(str(precision), UNKNOWN)


def reduce_buffer_gib(read: Reader) -> object:
    """GiB of all these buffers on each GPU, to a tenth."""
    elements = read.value("zero_optimization.reduce_bucket_size")
    number, size = read.fact("reduce_buffers"), read.fact("reduce_buffer_bytes")
    if not (isinstance(elements, int) and isinstance(number, int) and isinstance(size, int)):
        return UNKNOWN
    return round(min(elements, 2**63) * number * size / 2**30, 1)
