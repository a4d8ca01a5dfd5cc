"""Says what the DeepSpeed on the path makes of configs: `python -m oracle.observe <asked.json >seen.json`.

Reads a JSON object: `paths`, dotted ones, and `configs`, each with a number of processes. Other versions of DeepSpeed
are judged in processes of their own, in which the environment variable PYTHONPATH names the folder of that version
first.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import re
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path, PurePath
from typing import Any
from unittest import mock

from .grid import SECTIONS, SHOWN_BY, VALUES, Config, Observed, base_of, with_value
from .judge import World, canonical, deepspeed, ds_config, read, torch
from .recorder import Recorder

LENGTHS: tuple[Any, ...] = (0, -1, 2.0, True)
_CYCLE = {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}
SCHEDULES: dict[str, tuple[str, Config]] = {
    "warmup_num_steps": ("WarmupLR", {}),
    "cycle_first_step_size": ("OneCycle", {**_CYCLE, "cycle_second_step_size": 5}),
    "cycle_second_step_size": ("OneCycle", _CYCLE),
    "lr_range_test_step_size": ("LRRangeTest", {}),
}
"""Parameters that are numbers of steps, with the schedule that takes them and what else that one needs."""
_NAME = re.compile(r"""["']([a-z][a-z0-9_]+)["']""")


ATTRIBUTES = {
    "activation_checkpointing": "activation_checkpointing_config",
    "aio": "aio_config",
    "autotuning": "autotuning_config",
    "bf16": "bfloat16_config",
    "checkpoint": "checkpoint_config",
    "checkpoint.load_universal": "load_universal_checkpoint",
    "checkpoint.parallel_write.pipeline_stage": "checkpoint_parallel_write_pipeline",
    "checkpoint.use_node_local_storage": "use_node_local_storage",
    "comet": "monitor_config.comet",
    "comms_logger": "comms_config.comms_logger",
    "compile": "compile_config",
    "csv_monitor": "monitor_config.csv_monitor",
    "data_efficiency": "data_efficiency_config",
    "data_types": "",
    "expert_parallel": "expert_parallel_config",
    "flops_profiler": "flops_profiler_config",
    "fp16": "float16_config",
    "optimizer.legacy_fusion": "optimizer_legacy_fusion",
    "scheduler.type": "scheduler_name",
    "tensor_parallel": "tensor_parallel_config",
    "tensor_parallel.kernel_inject": "tensor_parallel_config.replace_with_kernel_inject",
    "tensor_parallel.tp": "tensor_parallel_config.tensor_parallel",
    "tensorboard": "monitor_config.tensorboard",
    "timers.throughput": "timers_config",
    "torch_autocast.dtype": "torch_autocast_dtype",
    "torch_autocast.enabled": "torch_autocast_enabled",
    "torch_autocast.lower_precision_safe_modules": "torch_autocast_lower_precision_safe_modules",
    "use_data_before_expert_parallelism": "use_data_before_expert_parallel_",
    "wandb": "monitor_config.wandb",
    "weight_quantization": "weight_quantization_config",
    "zero_optimization": "zero_config",
}
"""Where DeepSpeedConfig keeps a key or a section, where that is not its own name."""
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.int8: "int8"}

# Before 0.17 the precision sections were not kept; of their keys these are, whatever else is written.
KEPT_ALONE = {
    "fp16.enabled": "fp16_enabled",
    "bf16.enabled": "bfloat16_enabled",
    "bf16.immediate_grad_update": "bfloat16_immediate_grad_update",
}


def fields_of(model: Any) -> dict[str, Any]:
    """The fields of a pydantic model of either version, by name."""
    fields: dict[str, Any] = getattr(model, "model_fields", None) or getattr(model, "__fields__", {})
    return fields


def found(result: Any, path: str) -> tuple[bool, object]:
    """Whether DeepSpeed keeps the value of a key, and that value."""
    keys = path.split(".")
    if path in KEPT_ALONE and not hasattr(result, ATTRIBUTES[keys[0]]):
        place = getattr(result, KEPT_ALONE[path], result)
        return place is not result, place
    depth = next((depth for depth in range(len(keys), 0, -1) if ".".join(keys[:depth]) in ATTRIBUTES), 0)
    attribute = ATTRIBUTES.get(".".join(keys[:depth]), "")
    place = result
    for name in [*filter(None, attribute.split(".")), *keys[depth:]]:
        if isinstance(place, list):
            place = place[int(name)]
        elif isinstance(place, dict):
            place = place.get(name, result)
        else:
            place = getattr(place, name, getattr(place, name.removeprefix("stage3_"), result))
        if place is result:
            return False, None
    if isinstance(place, torch.dtype):
        place = DTYPES[place]
    if isinstance(place, Enum):
        place = place.value
    return True, str(place) if isinstance(place, PurePath) else list(place) if isinstance(
        place, tuple
    ) else place


def observe(path: str, value: object) -> Observed:
    """What the installed DeepSpeed makes of a value in a key."""
    result = read(with_value(base_of(path), path, value))
    if isinstance(result, Exception):
        return Observed(repr(result))
    if path in SHOWN_BY:
        shown = SHOWN_BY[path]
        return Observed(None, shown is not None, bool(getattr(result.zero_config, shown)) if shown else None)
    return Observed(None, *found(result, path))


ENABLED: Config = {
    "data_efficiency.data_sampling.curriculum_learning": {"enabled": True, "curriculum_metrics": {}},
    "data_efficiency.data_sampling.dynamic_batching": {"enabled": True, "max_tokens": 8},
    "data_efficiency.data_routing.random_ltd.enabled": True,
    "torch_autocast.lower_precision_safe_modules": [],
    "expert_parallel.enabled": False,
}
"""What has to be there before DeepSpeed reads the rest of a section."""


def full() -> Config:
    """Every declared section that this DeepSpeed takes, and all that has to be on before it reads the rest."""
    sections: Config = {path: {} for path in SECTIONS if path and not path.endswith(".0")}
    config: Config = {"train_batch_size": 1}
    for path, value in [*sections.items(), *ENABLED.items()]:
        longer = with_value(config, path, value)
        config = longer if refusal(longer) is None else config
    return config


def asked(config: Config) -> set[str]:
    """The keys that DeepSpeedConfig looks up in a config, but not those that pydantic takes by itself."""
    names: set[str] = set()
    with mock.patch.object(ds_config, "dist", World(1)):
        ds_config.DeepSpeedConfig(Recorder(config, "", names))
    return names


def plain_names() -> set[str]:
    """The keys that DeepSpeedConfig looks up, with one precision on or none, whatever reads their sections."""
    rest = {key: value for key, value in full().items() if key != "zero_optimization"}
    return set().union(
        *(
            asked({**rest, **extra})
            for extra in ({}, {"fp16": {"enabled": True}}, {"bf16": {"enabled": True}})
        )
    )


def models() -> dict[str, Any]:
    """The pydantic model of each section that is read with one."""
    result = read(full())
    kept = {path: found(result, path)[1] for path in SECTIONS if path}
    return {path: type(place) for path, place in kept.items() if fields_of(type(place))}


def refusal(config: Config, world_size: int = 1) -> str | None:
    """The exception with which a config is refused."""
    result = read(config, world_size)
    return repr(result) if isinstance(result, Exception) else None


def names_of(model: Any) -> dict[str, str]:
    """The names that a pydantic model takes, each with the one that DeepSpeed writes in its errors."""
    names: dict[str, str] = {}
    for name, field in fields_of(model).items():
        written = field.alias or name
        names[name] = names[written] = written
    return names


def schedules() -> dict[str, dict[str, Any]]:
    """The arguments of every scheduler with their defaults, `null` for none."""
    module = importlib.import_module("deepspeed.runtime.lr_schedules")
    arguments: dict[str, dict[str, Any]] = {}
    for name in module.VALID_LR_SCHEDULES:
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        arguments[name] = {p.name: None if p.default is p.empty else p.default for p in parameters}
        del arguments[name]["optimizer"]
    return arguments


def builds(name: str, params: Config) -> bool:
    """Whether a scheduler takes these arguments."""
    module = importlib.import_module("deepspeed.runtime.lr_schedules")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    try:
        getattr(module, name)(optimizer, **params)
    except Exception:
        return False
    return True


def defaults(paths: Iterable[str]) -> dict[str, Any]:
    """What counts for each key that is not written, where DeepSpeedConfig keeps it."""
    sections: Config = {
        name.partition(".")[2]: {} for name in models() if name.startswith("zero_optimization.")
    }
    result = read({"train_batch_size": 1, "zero_optimization": sections})
    seen = {path: found(result, path) for path in paths}
    return {path: value for path, (kept, value) in seen.items() if kept}


def everything(paths: list[str], configs: list[tuple[Config, int]]) -> dict[str, Any]:
    """All that is to be said of this DeepSpeed, as JSON; of keys that it has beyond `paths` too.

    Of each of the `configs` the exception with which it is refused, None where it is accepted.
    """
    pydantic = {section: names_of(model) for section, model in models().items()}
    plain = {
        path
        for path in map(canonical, (tuple(name.split(".")) for name in plain_names()))
        if not any(path.startswith(f"{section}.") for section in pydantic) and ".params." not in path
    }
    known = {f"{section}.{name}" for section, names in pydantic.items() for name in names.values()} | plain
    paths = sorted({*paths, *known})
    return {
        "version": deepspeed.__version__,
        "pydantic": pydantic,
        "pydantic_version": 2
        if hasattr(type(read({"train_batch_size": 1}).zero_config), "model_fields")
        else 1,
        "plain": sorted(plain),
        "literals": sorted(literals()),
        "initialize": sorted(names_in(Path(deepspeed.__file__))),
        "raises": {
            section: refusal(with_value(base_of(f"{section}.unheard_of"), f"{section}.unheard_of", 1))
            is not None
            for section in SECTIONS
            if section
        },
        "optimizers": sorted(ds_config.DEEPSPEED_OPTIMIZERS),
        "schedules": schedules(),
        "lengths": {
            f"scheduler.params.{key}": {
                repr(value): builds(name, {**params, key: value}) for value in LENGTHS
            }
            for key, (name, params) in SCHEDULES.items()
        },
        "defaults": defaults(paths),
        "refusals": [refusal(config, world_size) for config, world_size in configs],
        "values": {path: [observe(path, value) for value in VALUES] for path in paths},
    }


def literals() -> set[str]:
    """The texts in the source of what reads a config that look like the name of a key."""
    folder = Path(deepspeed.__file__).parent
    parts = [
        path for part in ("runtime", "compile", "module_inject") for path in folder.glob(f"{part}/**/*.py")
    ]
    return set().union(*map(names_in, [folder / "__init__.py", *parts]))


def names_in(source: Path) -> set[str]:
    """The texts in a source that look like the name of a key."""
    return set(_NAME.findall(source.read_text(encoding="utf-8")))


def plain_value(value: object) -> object:
    """What JSON can hold of a value that DeepSpeed keeps."""
    return {"python": type(value).__name__}


def main() -> None:
    """Print what this DeepSpeed says of what stands on stdin."""
    deepspeed.utils.logger.setLevel(logging.CRITICAL)
    said = json.dumps(everything(**json.load(sys.stdin)), default=plain_value)
    sys.stdout.write(f"\n{said}\n")


if __name__ == "__main__":
    main()
