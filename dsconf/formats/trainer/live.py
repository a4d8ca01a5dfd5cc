"""What of the arguments is read: which keys of fsdp_config, and whether any. The rest may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dsconf.document.node import UNKNOWN

DEFAULT_VERSION = 2
_POLICIES = {"TRANSFORMER_BASED_WRAP": "layer_wrap", "SIZE_BASED_WRAP": "size_wrap"}


def conditions(config: object) -> frozenset[str]:
    """Which of the conditions hold by which keys of the table are read (`read_if`), for arguments in plain values.

    Arguments that are nothing but a section fsdp_config are read as if FSDP was on.
    """
    if not isinstance(config, Mapping):
        return frozenset()
    section = config.get("fsdp_config")
    on = config.get("fsdp") if "fsdp" in config or config.keys() - {"fsdp_config"} else True
    if not on or on is UNKNOWN or not isinstance(section, Mapping) or _written(section, "xla"):
        return frozenset()
    found = {"fsdp"}
    with suppress(TypeError, ValueError, OverflowError):
        found.add("fsdp2" if int(_written(section, "version", DEFAULT_VERSION)) == 2 else "fsdp1")
    policy = _written(section, "auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    if isinstance(policy, str) and policy in _POLICIES:
        found.add(_POLICIES[policy])
    return frozenset(found)


def _written(section: Mapping[str, Any], name: str, default: object = None) -> Any:
    """A value of fsdp_config by either of its names: that with the prefix wins."""
    return section.get(f"fsdp_{name}", section.get(name, default))
