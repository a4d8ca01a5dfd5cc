"""Facts about what does not fit together in a config of Accelerate, for rules to judge."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.config.fsdp import strategy_named
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.arguments import PREFIXES, overwritten
from dsconf.formats.accelerate.live import SECTIONS

CONTAINERS = (
    *SECTIONS.values(),
    *(name for name in PREFIXES if name != "fsdp_config"),
    "parallelism_config",
    "mpirun_config",
)
"""The sections, all of whose keys the launcher copies onto its arguments."""
_SIZES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")


def is_overwritten(read: Reader, name: str) -> bool:
    """Whether a key of the top level does not count, since a section holds one of its name."""
    names = read.fact("overwriting")
    return isinstance(names, list) and name in names


def sagemaker(read: Reader) -> object:
    """Whether the file is one for SageMaker: compute_environment says anything but LOCAL_MACHINE."""
    written = read.written("compute_environment")
    return written if written is UNKNOWN else written not in (None, "LOCAL_MACHINE")


def processes_problem(read: Reader) -> object:
    """What is wrong with num_processes, "none" where nothing is.

    "absent" (-1 too), "wrong" (nothing takes it), "text" (the launcher reckons with it), "few" (less than one per
    machine), "indivisible", "machines" (not all GPUs).
    """
    distributed, written = read.value("distributed_type"), read.written("num_processes")
    if (
        UNKNOWN in (distributed, written)
        or is_overwritten(read, "num_processes")
        or read.fact("sagemaker") is not False
    ):
        return UNKNOWN
    starter, machines = read.fact("launched_by"), read.fact("machines")
    missing = written is None and (starter != "simple" or not read.present("num_processes"))
    if written == -1 or (missing and distributed != "NO"):
        return "none" if read.hint("world_size") else "absent"
    if starter == "tpu":
        return "none"
    several = isinstance(machines, int) and machines > 1
    if (several or starter == "simple") and isinstance(written, str | list):
        return "text" if isinstance(written, str) else "wrong"
    taken = several and starter == "deepspeed" and isinstance(written, int) and written <= 1
    if starter == "simple" or taken:  # DeepSpeed's own launcher may take fewer
        return "none"
    count = read.value("num_processes")
    if count is UNKNOWN:
        return "wrong"
    return _over_machines(read, count, machines) if several and isinstance(count, int) else "none"


def _over_machines(read: Reader, count: int, machines: object) -> str:
    """What is wrong with a number of processes on several machines."""
    assert isinstance(machines, int)
    if count < machines and read.fact("launched_by") == "torchrun":
        return "few"
    gpus = read.hint("gpus_per_node")
    if isinstance(gpus, int) and count != machines * gpus:
        return "machines"
    return "indivisible" if count % machines else "none"


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


def overwriting(read: Reader) -> object:
    """The keys of sections that overwrite an argument of the launcher."""
    found = []
    for section in CONTAINERS:
        content = read.written(section)
        if content is UNKNOWN:
            return UNKNOWN
        if isinstance(content, dict):
            found += [
                name for name, value in content.items() if value is not None and overwritten(section, name)
            ]
    return found


def strategy_word(read: Reader) -> object:
    """What `sharding_strategy` says, a strategy in capitals."""
    return strategy_named(read.written("fsdp_config.sharding_strategy"))


def state_dict_written(read: Reader) -> object:
    """`state_dict_type` as it is written."""
    return read.written("fsdp_config.state_dict_type")


PROBLEMS: dict[str, Callable[[Reader], object]] = {
    fact.__name__: fact
    for fact in (
        sagemaker,
        processes_problem,
        dead_section,
        mesh_words,
        not_quite_true,
        overwriting,
        strategy_word,
        state_dict_written,
    )
}
"""These facts by name."""
