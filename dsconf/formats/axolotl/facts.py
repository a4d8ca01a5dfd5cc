"""What follows from an Axolotl config: whether FSDP is on, which one, and what it does."""

from __future__ import annotations

from collections.abc import Callable

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN

_OLDER = 1
"""What Axolotl writes where no version is given."""


def fsdp_on(read: Reader) -> object:
    """Whether the training uses FSDP: any content of fsdp_config, or the old list, turns it on."""
    section, words = read.written("fsdp_config"), read.written("fsdp")
    if section or words:
        return UNKNOWN if UNKNOWN in (section or words, words or section) else True
    return False


def deepspeed_on(read: Reader) -> object:
    """Whether the training uses DeepSpeed."""
    raw = read.written("deepspeed")
    return UNKNOWN if raw is UNKNOWN else bool(raw)


def fsdp_version(read: Reader) -> object:
    """The version, of which the one at the top level counts."""
    if read.fact("fsdp_on") is not True:
        return UNKNOWN
    above, inner = read.value("fsdp_version"), read.value("fsdp_config.version")
    if above and inner and above != inner:
        return UNKNOWN  # parts of Axolotl go by one, parts by the other
    found = above or inner or _OLDER
    return found if found in (1, 2) else UNKNOWN


def _of_fsdp(name: str) -> Callable[[Reader], object]:
    def fact(read: Reader) -> object:
        return read.value(f"fsdp_config.{name}") if read.fact("fsdp_on") is True else UNKNOWN

    return fact


FACTS: dict[str, Callable[[Reader], object]] = {
    "fsdp_on": fsdp_on,
    "deepspeed_on": deepspeed_on,
    "fsdp_version": fsdp_version,
    "fsdp_offload": _of_fsdp("offload_params"),
    "wrap_policy": _of_fsdp("auto_wrap_policy"),
    "state_dict_type": _of_fsdp("state_dict_type"),
}
"""The facts by name."""
