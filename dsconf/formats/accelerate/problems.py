"""Facts about what does not fit together in a config of Accelerate, for rules to judge."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.live import SECTIONS

_SIZES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")


def sagemaker(read: Reader) -> object:
    """Whether the file is one for SageMaker: compute_environment says anything but LOCAL_MACHINE."""
    written = read.written("compute_environment")
    return written if written is UNKNOWN else written not in (None, "LOCAL_MACHINE")


def processes_problem(read: Reader) -> object:
    """What is wrong with num_processes: "absent", "wrong", "indivisible", "machines" (not all GPUs), or "none"."""
    distributed, written = read.value("distributed_type"), read.written("num_processes")
    if UNKNOWN in (distributed, written) or read.fact("sagemaker") is not False or distributed == "NO":
        return UNKNOWN
    if written is None or written == -1:
        return "none" if read.hint("world_size") else "absent"
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        return "wrong"
    machines, gpus = read.fact("machines"), read.hint("gpus_per_node")
    if not isinstance(machines, int) or machines < 1:
        return "none"
    if isinstance(gpus, int) and machines > 1 and written != machines * gpus:
        return "machines"
    return "indivisible" if written % machines else "none"


def dead_section(read: Reader) -> object:
    """A section with content that distributed_type does not make count, "none" where there is none."""
    distributed, live = read.value("distributed_type"), read.fact("live_section")
    if UNKNOWN in (distributed, live) or read.fact("sagemaker") is not False:
        return UNKNOWN
    for name in SECTIONS.values():
        if name != live and isinstance(content := read.written(name), dict) and content:
            return name
    return "none"


def mesh_words(read: Reader) -> object:
    """The sizes of parallelism_config above 1 as a product: `dp_shard 4 x tp 2`."""
    sizes = [(name, read.value(f"parallelism_config.parallelism_config_{name}_size")) for name in _SIZES]
    above = [f"{name} {size}" for name, size in sizes if isinstance(size, int) and size > 1]
    return " x ".join(above) or "1"


def not_quite_true(read: Reader) -> object:
    """Whether zero3_save_16bit_model is written as a yes that does not count as one."""
    written = read.written("deepspeed_config.zero3_save_16bit_model")
    return written if written is UNKNOWN else str(written).lower() in ("1", "yes", "on", "y", "t")


PROBLEMS: dict[str, Callable[[Reader], object]] = {
    fact.__name__: fact for fact in (sagemaker, processes_problem, dead_section, mesh_words, not_quite_true)
}
"""These facts by name."""
