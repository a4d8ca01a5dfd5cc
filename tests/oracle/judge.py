"""What the real DeepSpeedConfig says of a config at any world size, in this one process.

DeepSpeed stops at its first fault. `faults` finds them all: it repairs each one and reads the config again.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import operator
import os
import re
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import pytest

from dsconf.formats.deepspeed.keys import load_keys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
deepspeed = pytest.importorskip("deepspeed")
torch = importlib.import_module("torch")
ds_config = importlib.import_module("deepspeed.runtime.config")
unique_keys = importlib.import_module("deepspeed.runtime.config_utils").dict_raise_error_on_duplicate_keys
hjson = importlib.import_module("hjson")
pydantic = importlib.import_module("pydantic")

# 0.14 knew no mesh.
MESHES = "mesh_device" in inspect.signature(ds_config.DeepSpeedConfig).parameters

Config = dict[str, Any]
Keys = tuple[str, ...]
Constraint = str
"""A kind of constraint, "other", or for one between several keys the rule that says it."""
OTHERS = {
    "Fp16_master_weights_and_grads is only supported": "master-weights-need-zero",
    "Bf16_master_weights_and_grads is only supported": "master-weights-need-zero",
    "bf16_optimizer_states is only supported": "master-weights-need-zero",
    "bf16_optimizer_states requires": "bf16-states-need-master-weights",
    "when dynamic loss scaling is enabled": "fp16-scale-values",
    "fp16.loss_scale must be >= 0": "fp16-scale-values",
    "compute_grad_norm=false is supported only": "grad-norm-needed",
    "Partial offloading only supported": "offload-ratio-needs-zero3",
    "max_tokens must be specified": "dynamic-batching-tokens-missing",
    "curriculum_metrics must be specified": "curriculum-metrics-missing",
    "gradient_allreduce_op='sum' is not supported": "allreduce-sum-zero3",
}
"""Constraints between several keys: what DeepSpeed says of them, and the rule that says it."""
BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
PARALLEL_KEYS = ("sequence_parallel_size", "data_parallel_size")


class Fault(NamedTuple):
    """One reason for which DeepSpeed refuses a config."""

    constraint: Constraint
    path: str
    """The canonical path of the key, of a duplicate its name, "" where several keys are at fault."""
    text: str
    """What DeepSpeed says."""
    hidden: bool = False
    """Whether it shows only once a batch size, or a size that divides it, is a number, or another value is right."""


class World:
    """What DeepSpeedConfig asks of torch.distributed."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_rank(self, group: object = None) -> int:
        return 0

    def get_world_size(self, group: int | None = None) -> int:
        return self.size if group is None else group


class Mesh:
    """What deepspeed.initialize builds where both parallel sizes are given."""

    def __init__(self, data_parallel_size: int) -> None:
        self.data_parallel_size = data_parallel_size

    def get_group(self, mesh_dim: str) -> int:
        return self.data_parallel_size


def read(config: Config, world_size: int = 1) -> Any:
    """The DeepSpeedConfig, or the exception that it raised."""
    sizes = [config.get("data_parallel_size"), config.get("sequence_parallel_size")]
    mesh = Mesh(sizes[0]) if isinstance(sizes[0], int) and isinstance(sizes[1], int) else None
    with mock.patch.object(ds_config, "dist", World(world_size)):
        try:
            return ds_config.DeepSpeedConfig(
                copy.deepcopy(config), **({"mesh_device": mesh} if MESHES else {})
            )
        except Exception as error:
            return error


def refusal(text: str, world_size: int) -> Exception | None:
    """What DeepSpeedConfig raises over a file, None where it accepts it."""
    try:
        config = hjson.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        return error
    result = read(config, world_size)
    return result if isinstance(result, Exception) else None


def faults(text: str, world_size: int) -> list[Fault]:
    """Every fault of a file, the one at which DeepSpeed stops first. Raises ValueError where HJSON can't read it."""
    found: list[Fault] = []
    try:
        config = hjson.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        if "Duplicate keys" not in str(error):
            raise
        names = str(error).partition("[")[2].rstrip("]").split(", ")
        found += [Fault("duplicate-key", name.strip("'\""), str(error)) for name in names]
        config = hjson.loads(text, object_pairs_hook=dict)
    hidden = False
    while isinstance(result := read(config, world_size), Exception):
        here, config = _diagnose(config, world_size, result)
        wrong = any(fault.constraint in ("quoted-number", "wrong-value") for fault in found)
        found += [
            fault._replace(
                hidden=(hidden and fault.constraint.startswith("batch"))
                or (wrong and fault.constraint in OTHERS.values())
            )
            for fault in here
        ]
        hidden |= any(fault.path in (*BATCH_KEYS, *PARALLEL_KEYS) for fault in here)
        assert here, f"{result!r}: {config}"
    return found


OWN_OPTIMIZERS = ("adam", "adamw", "adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd")
"""The names for which `_configure_basic_optimizer` of the engine has a branch."""


def engine_finds(optimizer: str) -> bool:
    """Whether the engine takes an `optimizer.type`, and has a class for it that can be built.

    The first half is the check of the engine. What passes it without a branch of its own is looked up in torch.optim,
    where modules (lr_scheduler) and the abstract Optimizer pass the check too.
    """
    settled = read({"train_batch_size": 1, "optimizer": {"type": optimizer}}).optimizer_name
    engine = importlib.import_module("deepspeed.runtime.engine").DeepSpeedEngine
    if not engine._is_supported_optimizer(None, settled):
        return False
    if settled in OWN_OPTIMIZERS:
        return True
    found = getattr(torch.optim, settled)
    return isinstance(found, type) and found is not torch.optim.Optimizer


def _diagnose(config: Config, world_size: int, error: Exception) -> tuple[list[Fault], Config]:
    """What `error` is about, and the config without that."""
    config = copy.deepcopy(config)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, pydantic.ValidationError) and error.title in sections_by_model():
        return _validation_faults(config, world_size, error)
    if isinstance(error, ds_config.DeepSpeedConfigError):
        for section, removed in (
            (config, ds_config._REMOVED_TOP_LEVEL_CONFIG_KEYS),
            (config.get("zero_optimization"), ds_config._REMOVED_ZERO_CONFIG_KEYS),
        ):
            for key, message in removed.items():
                if isinstance(section, dict) and key in section and message == str(error):
                    del section[key]
                    path = key if section is config else f"zero_optimization.{key}"
                    return [Fault("removed-key", path, text)], config
    if "cannot be simultaneously enabled" in text:
        config["fp16"]["enabled"] = False
        return [Fault("precision-both", "", text)], config
    old = re.search(r"deprecated parameter '(\w+)' and replacing parameter", text)
    if old is not None:
        del config["zero_optimization"][old[1]]
        return [Fault("deprecated-and-new", f"zero_optimization.{old[1]}", text)], config
    functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    numbers = all(isinstance(config.get(key), int | float | None) for key in BATCH_KEYS)
    if isinstance(error, TypeError) and "_configure_train_batch_size" in functions and not numbers:
        return _batch_type_faults(config, text)
    constraint = _batch_constraint(config, error)
    if constraint is not None:
        for key in BATCH_KEYS:
            # What is no number has a fault of its own that is still to be found.
            if constraint != "batch-missing" and isinstance(config.get(key), int | float):
                del config[key]
        return [Fault(constraint, "", text)], with_batch(config)
    for keys, value in leaves(config):
        number = json_number(value)
        if number is not None and _takes_number(canonical(keys)) and not _in_value(keys):
            unquoted = with_leaf(config, keys, number)
            if changed(error, read(unquoted, world_size)):
                path = canonical(keys)
                return [Fault(_kind(path, "quoted-number"), path, text)], unquoted
    explained: list[tuple[bool, Keys, Config]] = []
    for keys in sorted((keys for keys, _ in parts(config)), key=len, reverse=True):
        if keys[0] not in BATCH_KEYS and not _in_value(keys):
            without = _without(config, keys)
            after = read(without, world_size)
            if changed(error, after):
                # Without a key that is sound, a constraint between others may show.
                emerged = any(words in str(after) and words not in text for words in OTHERS)
                explained.append((emerged, keys, without))
    assert explained, f"nothing explains {error!r}: {config}"
    _, keys, without = min(explained, key=operator.itemgetter(0))
    path = canonical(keys)
    return [Fault(_between(text) or _kind(path, "wrong-value"), path, text)], without


def _between(text: str) -> Constraint | None:
    """The rule for a constraint between several keys, None for what is none."""
    return next((rule for words, rule in OTHERS.items() if words in text), None)


def _takes_number(path: str) -> bool:
    types = (spec_of(path) or {}).get("type", "float")
    return bool({"int", "float"} & set([types] if isinstance(types, str) else types))


def _in_value(keys: Keys) -> bool:
    """Whether it stands in the value of a declared key that is no section."""
    above = [spec_of(canonical(keys[:depth])) for depth in range(1, len(keys))]
    return any(spec is not None and not {"keys", "open"} & set(spec) for spec in above)


def _without(config: Config, keys: Keys) -> Config:
    """The config without what stands at a key, but so that the rest of the file is read as before."""
    path = canonical(keys)
    if "keys" in (spec_of(path) or {}) and (len(keys) == 1 or keys[-1] == "params"):
        return with_leaf(config, keys, {})
    if path == "optimizer.type":
        return with_leaf(config, keys, "AdamW")
    return with_leaf(config, keys, None, delete=True)


def _kind(path: str, constraint: Constraint) -> Constraint:
    """The constraint for a declared key; a removed one has its own, and what is not declared none."""
    return constraint if declared(path) else "removed-key" if removed(path) else "other"


def _batch_type_faults(config: Config, text: str) -> tuple[list[Fault], Config]:
    """DeepSpeed reckons with all three at once, so that several texts share one exception."""
    found: list[Fault] = []
    for key in BATCH_KEYS:
        if not isinstance(config.get(key), int | float | None):
            number = json_number(config[key])
            found.append(Fault("wrong-value" if number is None else "quoted-number", key, text))
            config[key] = number
    return found, with_batch(config)


def with_batch(config: Config) -> Config:
    """The config, with a micro batch of 1 where a batch size is missing."""
    missing = all(config.get(key) is None for key in BATCH_KEYS[:2])
    return {**config, BATCH_KEYS[1]: 1} if missing else config


def _batch_constraint(config: Config, error: Exception) -> Constraint | None:
    text = str(error)
    total, micro, steps = (config.get(key) for key in BATCH_KEYS)
    numbers = [value for value in (total, micro, steps) if isinstance(value, int | float)]
    if "needs to be provided" in text:
        return "batch-missing"
    if "has to be greater than 0" in text or (isinstance(error, ZeroDivisionError) and numbers):
        return "batch-not-positive" if any(number <= 0 for number in numbers) else "batch-indivisible"
    if "Check batch related parameters" in text:
        return "batch-indivisible" if None in (total, micro, steps) else "batch-product"
    return None


def _validation_faults(config: Config, world_size: int, error: Any) -> tuple[list[Fault], Config]:
    section = sections_by_model()[error.title]
    if section == ("zero_optimization",) and config["zero_optimization"] is True:
        found = [Fault("other", "allgather_size", f"beside zero_optimization: true it is read: {error}")]
        return found, with_leaf(config, ("allgather_size",), None, delete=True)
    found = []
    repaired = config
    for detail in error.errors():
        keys = spelt(config, (*section, *_place(section, detail)))
        path, text = canonical(keys), f"{detail['loc']}: {detail['msg']}"
        number = json_number(detail["input"])
        if detail["type"] == "extra_forbidden":
            # A known key is refused too where another spelling of it stands beside it.
            known = declared(path)
            found.append(Fault("both-spellings" if known else "unknown-nested-key", path, text))
        elif (
            number is not None
            and detail["type"] != "bool_parsing"
            and fits(with_leaf(config, keys, number), world_size, error.title, detail["loc"])
        ):
            found.append(Fault("quoted-number", path, text))
            repaired = with_leaf(repaired, keys, number)
            continue
        else:
            between = None if isinstance(detail["input"], str) else _between(text)
            found.append(Fault(between or ("wrong-value" if detail["loc"] else "other"), path, text))
            spec = spec_of(path)
            if detail["loc"] and spec is not None and "default" in spec:
                # The key stays, so that what it must not stand beside is found too.
                repaired = with_leaf(repaired, keys, copy.deepcopy(spec["default"]))
                continue
        if detail["loc"]:
            repaired = with_leaf(repaired, keys, None, delete=True)
        else:
            for involved in _involved(repaired[keys[0]], detail["msg"]):
                repaired = with_leaf(repaired, (keys[0], *involved), None, delete=True)
    return found, repaired


def _involved(section: Config, text: str) -> list[Keys]:
    """The keys that of a section that a constraint between several of them names."""
    if "Partial offloading" in text:
        return [("offload_optimizer", "ratio")]
    return [(key,) for key in section if key != "enabled" and re.search(rf"\b{key}\b", text)]


def _place(section: Keys, detail: Any) -> Keys:
    """Where a fault is, as keys of the section: without the places in a list and the members of a union.

    What a model says of itself as a whole may name the key that it means.
    """
    keys: list[str] = []
    for key in detail["loc"]:
        if keys and not (spec_of(canonical((*section, *keys))) or {}).get("keys"):
            break
        keys.append(key)
    spec = spec_of(canonical((*section, *keys))) or {} if keys else {}
    named = [key for key in spec.get("keys", {}) if re.search(rf"\b{key}\b", detail["msg"])]
    return (*keys, *named) if detail["type"] == "value_error" and len(named) == 1 else tuple(keys)


def fits(config: Config, world_size: int, model: str, place: tuple[object, ...]) -> bool:
    """Whether pydantic has no fault left at a place of one of its models."""
    error = read(config, world_size)
    if not isinstance(error, pydantic.ValidationError) or error.title != model:
        return True
    return place not in {detail["loc"] for detail in error.errors()}


@cache
def sections_by_model() -> dict[str, Keys]:
    """The declared section that each pydantic model of DeepSpeed is built from, by the name in its errors."""
    found = {}
    for keys, node in sections():
        if node.get("unknown") == "raises":
            error = read(with_leaf({"train_batch_size": 1}, (*keys, "unheard_of"), 1))
            (detail,) = error.errors()
            found[error.title] = (*keys, "unheard_of")[: -len(detail["loc"])]
    return found


def sections(node: Config | None = None, above: Keys = ()) -> Iterator[tuple[Keys, Config]]:
    """Every declared section, the outer ones first."""
    for key, below in (node or load_keys())["keys"].items():
        if "keys" in below:
            yield (*above, key), below
            yield from sections(below, (*above, key))


def canonical(keys: Keys) -> str:
    """The dotted path, each key by its canonical name."""
    node, names = load_keys(), []
    for key in keys:
        spec = node.get("keys", {}).get(key, {})
        names.append(spec.get("alias", key))
        node = node["keys"][spec["alias"]] if "alias" in spec else spec
    return ".".join(names)


def spec_of(path: str) -> Config | None:
    """The node of the key table at a canonical path, None where there is none."""
    node: Config | None = load_keys()
    for key in path.split("."):
        node = node.get("keys", {}).get(key) if node else None
    return node


def declared(path: str) -> bool:
    """Whether the key table has a canonical path, for a key that was not removed."""
    spec = spec_of(path)
    return spec is not None and spec.get("status") != "removed"


def removed(path: str) -> bool:
    """Whether the key table has a canonical path, for a key that was removed."""
    return (spec_of(path) or {}).get("status") == "removed"


def spelt(config: Config, keys: Keys) -> Keys:
    """A path as the config spells it: pydantic names a key by its alias, and of a null `bf16` DeepSpeed goes on."""
    found: list[str] = []
    place: Any = config
    for depth, key in enumerate(keys):
        name = canonical((*keys[:depth], key))
        there = [other for other in place if canonical((*keys[:depth], other)) == name]
        if depth == 0:
            there = [other for other in there if place[other] is not None] or there
        there.sort(key=key.__ne__)
        found.append(there[0] if there else key)
        place = place.get(found[-1])
        place = place if isinstance(place, dict) else {}
    return tuple(found)


def parts(config: Config, above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every key with its value, sections included."""
    for key, value in config.items():
        yield (*above, key), value
        if isinstance(value, dict):
            yield from parts(value, (*above, key))


def leaves(config: Config) -> Iterator[tuple[Keys, Any]]:
    """Every key that holds no section."""
    return ((keys, value) for keys, value in parts(config) if not isinstance(value, dict))


def with_leaf(config: Config, keys: Keys, value: object, *, delete: bool = False) -> Config:
    """A copy with one key set, or deleted; sections on the way are made."""
    config = copy.deepcopy(config)
    place = config
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    if delete:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return config


def changed(before: Exception, after: object) -> bool:
    """Whether it is another exception, or none."""
    return not isinstance(after, Exception) or _signature(before) != _signature(after)


def _signature(error: Exception) -> tuple[type, str, list[int]]:
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__)]
    return type(error), str(error), lines


def json_number(value: object) -> float | None:
    """The number that a string holds, None where it holds none."""
    if not isinstance(value, str):
        return None
    try:
        number = json.loads(value)
    except ValueError:
        return None
    finite = type(number) in (int, float) and number - number == 0
    return number if finite else None
