"""What of a file counts: which section, and which keys are read in it. The rest may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from dsconf.config.environment import Refused, number

SECTIONS = {"FSDP": "fsdp_config", "DEEPSPEED": "deepspeed_config", "MEGATRON_LM": "megatron_lm_config"}
"""By distributed_type the section that counts."""
_ONE_PROCESS = ("NO", "MULTI_CPU")
"""What the simple launcher starts, which hands on no parallelism_config."""
_OTHER_MACHINES = "XLA"


def launcher(distributed: object) -> str:
    """What starts the workers of a distributed_type on this kind of machine: torchrun, deepspeed, tpu or simple."""
    if distributed == "DEEPSPEED":
        return "deepspeed"
    if distributed == _OTHER_MACHINES:
        return "tpu"
    if not isinstance(distributed, str) or distributed in _ONE_PROCESS:
        return "simple"
    return "torchrun"


def has_layout(section: object) -> bool:
    """Whether what stands for parallelism_config makes the launcher hand on a layout."""
    return section is not None and section != {}


def conditions(config: object) -> frozenset[str]:
    """Which of the conditions hold by which keys of the table are read (`read_if`), for a config in plain values."""
    if not isinstance(config, Mapping):
        return frozenset()
    if config.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return frozenset({"sagemaker"} if config["compute_environment"] == "AMAZON_SAGEMAKER" else ())
    distributed = config.get("distributed_type")
    found = set()
    if distributed == "FSDP":
        found |= {"fsdp", *_of_fsdp(_section(config, "fsdp_config"))}
    if distributed == "DEEPSPEED":
        found.add("deepspeed")
        if _above_one(config.get("num_machines", 1)):
            found.add("machines")
    starter = launcher(distributed)
    found |= {"one_process"} if starter == "simple" else set()
    found |= {"dynamo"} if starter in ("simple", "torchrun") else set()
    if starter in ("torchrun", "deepspeed"):
        found |= {"workers"} | _of_parallelism(_section(config, "parallelism_config"))
    precision = config.get("mixed_precision")
    if isinstance(precision, str) and precision.lower() == "fp8":
        found.add("fp8")
    return frozenset(found)


def _of_fsdp(section: Mapping[str, object]) -> set[str]:
    found = set()
    with suppress(Refused):
        found.add(f"fsdp{number(_last(section, 'version', 1))}")
    policy = _last(section, "auto_wrap_policy", None)
    if str(policy).upper() == "SIZE_BASED_WRAP":
        found.add("size_wrap")
    return found


def _last(section: Mapping[str, object], name: str, default: object) -> object:
    """The value of a key with or without its prefix, whichever stands last."""
    values = [value for key, value in section.items() if key in (name, f"fsdp_{name}")]
    return values[-1] if values else default


def _of_parallelism(section: Mapping[str, object]) -> set[str]:
    if not section:
        return set()
    found = {"parallelism"}
    if _above_one(section.get("parallelism_config_cp_size", 1)):
        found.add("cp")
    if _above_one(section.get("parallelism_config_sp_size", 1)):
        found.add("sp")
        if str(section.get("parallelism_config_sp_seq_length_is_variable", True)).lower() != "true":
            found.add("sp_fixed")
    return found


def _section(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _above_one(value: object) -> bool:
    return isinstance(value, int | float) and value > 1
