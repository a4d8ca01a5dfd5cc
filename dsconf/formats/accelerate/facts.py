"""What follows from a config of Accelerate: which section counts, and what a training gets from it."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.config.fsdp import FSDP_FACTS
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.live import SECTIONS, has_layout, launcher
from dsconf.formats.accelerate.problems import PROBLEMS, is_overwritten

SIZES = tuple(
    f"parallelism_config.parallelism_config_{name}_size"
    for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
)


def live_section(read: Reader) -> object:
    """The section that distributed_type makes count, None for none."""
    distributed = read.value("distributed_type")
    return (
        UNKNOWN
        if distributed is UNKNOWN
        else SECTIONS.get(distributed)
        if isinstance(distributed, str)
        else None
    )


def fsdp_on(read: Reader) -> object:
    """Whether the training uses FSDP."""
    section = read.fact("live_section")
    return UNKNOWN if section is UNKNOWN else section == "fsdp_config"


def deepspeed_on(read: Reader) -> object:
    """Whether the training uses DeepSpeed."""
    section = read.fact("live_section")
    return UNKNOWN if section is UNKNOWN else section == "deepspeed_config"


def launched_by(read: Reader) -> object:
    """What starts the workers: torchrun, deepspeed, tpu, or simple for a single process or CPUs."""
    distributed = read.value("distributed_type")
    return UNKNOWN if distributed is UNKNOWN else launcher(distributed)


def _of_fsdp(name: str) -> Callable[[Reader], object]:
    def fact(read: Reader) -> object:
        return read.value(f"fsdp_config.{name}") if read.fact("fsdp_on") is True else UNKNOWN

    return fact


def min_num_params(read: Reader) -> object:
    """The number of parameters from which on a module is wrapped, where that counts."""
    value = read.value("fsdp_config.min_num_params") if read.fact("fsdp_on") is True else UNKNOWN
    return value if isinstance(value, int) and not isinstance(value, bool) else UNKNOWN


def state_dict_type(read: Reader) -> object:
    """How a checkpoint is written, by the version where the file does not say."""
    version = read.fact("fsdp_version")
    if version is UNKNOWN:
        return UNKNOWN
    written = read.given("fsdp_config.state_dict_type")
    return written if written is not None else "FULL_STATE_DICT" if version == 1 else "SHARDED_STATE_DICT"


def loading_conflict(read: Reader) -> object:
    """Whether the launcher stops for cpu_ram_efficient_loading without sync_module_states.

    It looks at the values as they stand in the file, where the text "false" is true to Python.
    """
    if read.fact("fsdp_on") is not True:
        return read.fact("fsdp_on")
    values = []
    for name in ("cpu_ram_efficient_loading", "sync_module_states"):
        path = f"fsdp_config.{name}"
        values.append(read.written(path) if read.present(path) or read.may_hold(path) else read.value(path))
    if UNKNOWN in values:
        return UNKNOWN
    return bool(values[0]) and not values[1]


def mixed_precision(read: Reader) -> object:
    """The number format in lower case: "no" where nothing is written; the old key fp16 counts without the new one."""
    if is_overwritten(read, "mixed_precision"):
        return UNKNOWN
    if not read.present("mixed_precision") and not read.may_hold("mixed_precision"):
        old = read.written("fp16")
        return UNKNOWN if old is UNKNOWN else "fp16" if old else "no"
    return read.value("mixed_precision")


def machines(read: Reader) -> object:
    """The number of machines."""
    value = UNKNOWN if is_overwritten(read, "num_machines") else read.value("num_machines")
    return value if isinstance(value, int) and not isinstance(value, bool) else UNKNOWN


def processes(read: Reader) -> object:
    """The number of processes of all machines: of the circumstances, or of the file; -1 leaves it open."""
    given = read.hint("world_size")
    if given is not None:
        return given
    if is_overwritten(read, "num_processes"):
        return UNKNOWN
    if not read.present("num_processes") and not read.may_hold("num_processes"):
        return 1 if read.value("distributed_type") == "NO" else UNKNOWN
    value = read.value("num_processes")
    return value if isinstance(value, int) and value > 0 else UNKNOWN


def ds_file(read: Reader) -> object:
    """The DeepSpeed config file that the plugin reads, None for none."""
    on = read.fact("deepspeed_on")
    if on is not True:
        return UNKNOWN if on is UNKNOWN else None
    path = read.value("deepspeed_config.deepspeed_config_file")
    return None if path == "none" else path


def zero_stage(read: Reader) -> object:
    """The ZeRO stage of a DeepSpeed training without a file of its own."""
    if read.fact("deepspeed_on") is not True or read.fact("ds_file") is not None:
        return UNKNOWN
    return read.value("deepspeed_config.zero_stage")


def parallelism_on(read: Reader) -> object:
    """Whether the workers are given a layout: any parallelism_config but an empty one."""
    starter = read.fact("launched_by")
    if starter is UNKNOWN or read.may_hold("parallelism_config"):
        return UNKNOWN
    section = read.written("parallelism_config")
    return UNKNOWN if section is UNKNOWN else starter in ("torchrun", "deepspeed") and has_layout(section)


def mesh_product(read: Reader) -> object:
    """The product of all sizes of the layout, None without one."""
    on = read.fact("parallelism_on")
    if on is not True:
        return UNKNOWN if on is UNKNOWN else None
    product = 1
    for path in SIZES:
        size = read.value(path)
        if not isinstance(size, int):
            return UNKNOWN
        product *= size
    return product


FACTS: dict[str, Callable[[Reader], object]] = {
    **FSDP_FACTS,
    **PROBLEMS,
    "live_section": live_section,
    "fsdp_on": fsdp_on,
    "deepspeed_on": deepspeed_on,
    "launched_by": launched_by,
    "fsdp_version": _of_fsdp("version"),
    "fsdp_offload": _of_fsdp("offload_params"),
    "wrap_policy": _of_fsdp("auto_wrap_policy"),
    "min_num_params": min_num_params,
    "ram_efficient": _of_fsdp("cpu_ram_efficient_loading"),
    "state_dict_type": state_dict_type,
    "loading_conflict": loading_conflict,
    "mixed_precision": mixed_precision,
    "machines": machines,
    "processes": processes,
    "ds_file": ds_file,
    "zero_stage": zero_stage,
    "parallelism_on": parallelism_on,
    "mesh_product": mesh_product,
}
"""The facts by name."""
