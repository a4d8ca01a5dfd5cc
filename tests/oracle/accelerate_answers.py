"""What dsconf says of a config of Accelerate, beside what a real launch shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.formats.accelerate.keys import table_for
from dsconf.formats.accelerate.launch import environment
from dsconf.formats.accelerate.plugins import parallelism, plugin

from .accelerating import Outcome

WRAPPING = {
    "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
}


def config_of(settings: Mapping[str, object]) -> Config:
    document = scan("accelerate.json", json.dumps(settings), reader="json")
    return Config(document, table_for(document), Context())


def offloads(policy: Any) -> bool:
    """Whether the cpu_offload of a plugin offloads: each version of FSDP has its own class."""
    return (
        bool(policy.offload_params) if hasattr(policy, "offload_params") else "CPU" in type(policy).__name__
    )


def member(value: Any) -> object:
    return value.name.removeprefix("_") if hasattr(value, "name") else value


def fields(real: Any, names: list[str]) -> dict[str, object]:
    """The fields of a real plugin, as `plugin` writes them."""
    found = {name: getattr(real, name) for name in names}
    if "cpu_offload" in found:
        found["cpu_offload"] = offloads(found["cpu_offload"])
        policy = found["mixed_precision_policy"]
        found["mixed_precision_policy"] = str(policy.param_dtype).removeprefix("torch.") if policy else None
        wrapping = found["auto_wrap_policy"]
        found["auto_wrap_policy"] = WRAPPING[wrapping.__name__] if wrapping else None
    return {name: member(value) for name, value in found.items()}


def layout_fields(real: Any, names: list[str]) -> dict[str, object]:
    """The fields of a real ParallelismConfig, as `parallelism` writes them."""
    parts = [part for part in (real, real.cp_handler, real.sp_handler) if part is not None]
    return {name: next(getattr(part, name) for part in parts if hasattr(part, name)) for name in names}


def differences(config: Config, real: Outcome, *, worker: bool = True) -> object:
    """What dsconf says otherwise of the environment and of the plugins than a real launch, None where it agrees."""
    if real.env:
        exported = environment(config)
        if exported != real.env:
            return set(exported.items()) ^ set(real.env.items())
    if real.fails or not worker:
        return None
    for rows, plugged, read in (
        (plugin(config), real.fsdp or real.deepspeed, fields),
        (parallelism(config), real.layout, layout_fields),
    ):
        assert bool(rows) == (plugged is not None)
        if rows:
            told = {row.name: row.value for row in rows}
            told.pop("hf_ds_config", None)  # a path to us, what it holds to the plugin
            got = read(plugged, list(told))
            if repr(told) != repr(got):
                return told, got
    return None
