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

from .grid import BASES, PLACES, SHOWN_BY, VALUES, Config, Observed, with_value
from .judge import deepspeed, ds_config, read, torch

FULL: Config = {
    "train_batch_size": 1,
    "fp16": {},
    "bf16": {},
    "data_types": {},
    "optimizer": {"type": "AdamW", "params": {}},
    "scheduler": {"type": "WarmupLR", "params": {}},
    "zero_optimization": {"offload_param": {}, "offload_optimizer": {}, "zenflow": {}, "leaf_module": {}},
}
"""Every declared section, with nothing in it."""
WARMUPS: tuple[Any, ...] = (0, -1, 2.0, "2", True)
_NAME = re.compile(r"""["']([a-z][a-z0-9_]+)["']""")


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
    *sections, name = path.split(".")
    if not sections or (path in KEPT_ALONE and not hasattr(result, PLACES[sections[0]])):
        attribute = result.__dict__.get(KEPT_ALONE.get(path, name), result)
        dtypes = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
        if isinstance(attribute, torch.dtype):
            attribute = dtypes[attribute]
        return attribute is not result, attribute
    place = getattr(result, PLACES.get(sections[0], "absent"), None)
    for section in sections[1:]:
        place = getattr(place, section, None)
    names = fields_of(type(place))
    name = name if name in names else name.removeprefix("stage3_")
    if not hasattr(place, name):
        return False, None
    value = getattr(place, name)
    if isinstance(value, Enum):
        value = value.value
    return True, str(value) if isinstance(value, PurePath) else value


def observe(path: str, value: object) -> Observed:
    """What the installed DeepSpeed makes of a value in a key."""
    result = read(with_value(BASES.get(path, {"train_batch_size": 1}), path, value))
    if isinstance(result, Exception):
        return Observed(repr(result))
    if path in SHOWN_BY:
        shown = SHOWN_BY[path]
        return Observed(None, shown is not None, bool(getattr(result.zero_config, shown)) if shown else None)
    return Observed(None, *found(result, path))


class _Recorder(dict[str, Any]):
    """A config that remembers which keys were looked up, by dotted path."""

    def __init__(self, config: Config, path: str, asked: set[str]) -> None:
        inner = {
            k: _Recorder(v, f"{path}{k}.", asked) if isinstance(v, dict) else v for k, v in config.items()
        }
        super().__init__(inner)
        self.path, self.asked = path, asked

    def __contains__(self, key: object) -> bool:
        self.asked.add(f"{self.path}{key}")
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(f"{self.path}{key}")
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(f"{self.path}{key}")
        return super().get(key, default)

    def keys(self) -> Any:
        return self

    def __copy__(self) -> _Recorder:
        return self

    def __deepcopy__(self, memo: object) -> _Recorder:
        return self


def asked() -> set[str]:
    """The keys that DeepSpeedConfig looks up in sections that it reads without pydantic."""
    names: set[str] = set()
    for extra in ({}, {"fp16": {"enabled": True}}, {"bf16": {"enabled": True}}):
        config = {key: value for key, value in {**FULL, **extra}.items() if key != "zero_optimization"}
        outcome = ds_config.DeepSpeedConfig(_Recorder(config, "", names))
        names |= {"zero_optimization"} if hasattr(outcome, "zero_config") else set()
    return names


def models() -> dict[str, Any]:
    """The pydantic model of each section that is read with one."""
    found_models: dict[str, Any] = {}
    zero = FULL["zero_optimization"]
    known: Config = {key: {} for key in zero if "extra" not in _refusal({"zero_optimization": {key: {}}})}
    result = ds_config.DeepSpeedConfig({**FULL, "zero_optimization": known})
    for section, attribute in PLACES.items():
        place = getattr(result, attribute, None)
        if place is not None:
            found_models[section] = type(place)
    for section in known:
        found_models[f"zero_optimization.{section}"] = type(getattr(result.zero_config, section))
    return found_models


def refusal(config: Config, world_size: int = 1) -> str | None:
    """The exception with which a config is refused."""
    result = read(config, world_size)
    return repr(result) if isinstance(result, Exception) else None


def _refusal(config: Config) -> str:
    return (refusal({"train_batch_size": 1, **config}) or "").lower()


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
    result = ds_config.DeepSpeedConfig({"train_batch_size": 1, "zero_optimization": sections})
    seen = {path: found(result, path) for path in paths}
    return {path: value for path, (kept, value) in seen.items() if kept}


def everything(paths: list[str], configs: list[tuple[Config, int]]) -> dict[str, Any]:
    """All that is to be said of this DeepSpeed, as JSON; of keys that it has beyond `paths` too.

    Of each of the `configs` the exception with which it is refused, None where it is accepted.
    """
    pydantic = {section: names_of(model) for section, model in models().items()}
    plain = {path for path in asked() if path.partition(".")[0] not in pydantic and ".params." not in path}
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
        "raises": {
            section: bool(_refusal(_nested(section, {"unheard_of": 1}))) for section in _sections_of(FULL)
        },
        "optimizers": sorted(ds_config.DEEPSPEED_OPTIMIZERS),
        "schedules": schedules(),
        "warmup": {repr(value): builds("WarmupLR", {"warmup_num_steps": value}) for value in WARMUPS},
        "defaults": defaults(paths),
        "refusals": [refusal(config, world_size) for config, world_size in configs],
        "values": {path: [observe(path, value) for value in VALUES] for path in paths},
    }


def literals() -> set[str]:
    """The texts in DeepSpeed's source that look like the name of a key."""
    folder = Path(deepspeed.__file__).parent
    sources = [folder / "__init__.py", *folder.glob("runtime/**/*.py"), *folder.glob("compile/**/*.py")]
    return {name for source in sources for name in _NAME.findall(source.read_text(encoding="utf-8"))}


def _sections_of(config: Config, above: str = "") -> list[str]:
    found_sections = []
    for key, value in config.items():
        if isinstance(value, dict):
            found_sections += [above + key, *_sections_of(value, f"{above}{key}.")]
    return found_sections


def _nested(path: str, inner: Config) -> Config:
    for key in reversed(path.split(".")):
        inner = {key: inner}
    return inner


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
