"""What follows from a config of LLaMA-Factory 1."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

_FSDP = ("fsdp2", "fsdpturbo")


def backend(read: Reader) -> object:
    """Who shards the model, None for nobody."""
    return read.written("dist_config.name")


def fsdp_on(read: Reader) -> object:
    """Whether the training uses FSDP."""
    name = read.fact("backend")
    return UNKNOWN if name is UNKNOWN else name in _FSDP


def deepspeed_on(read: Reader) -> object:
    """Whether the training uses DeepSpeed."""
    name = read.fact("backend")
    return UNKNOWN if name is UNKNOWN else name == "deepspeed"


def fsdp_version(read: Reader) -> object:
    """There is no other than 2."""
    return 2 if read.fact("fsdp_on") is True else UNKNOWN


def fsdp_offload(read: Reader) -> object:
    """Whether parameters are kept on the CPU."""
    value = read.value("dist_config.offload_params") if read.fact("fsdp_on") is True else UNKNOWN
    return UNKNOWN if value is UNKNOWN else bool(value)


FACTS: dict[str, Callable[[Reader], object]] = {
    fact.__name__: fact for fact in (backend, fsdp_on, deepspeed_on, fsdp_version, fsdp_offload)
}
"""The facts by name."""
