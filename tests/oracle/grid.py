"""Every key with every kind of value, and how what DeepSpeed makes of it is compared with `coerce`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from dsconf.config.coerce import Invalid, coerce
from dsconf.formats.deepspeed.keys import load_keys

Config = dict[str, Any]

VALUES: list[Any] = [
    0, 1, 2, 3, 5, -1, 2**63, 10**25, 3.0, 1.0, 1.5, 0.5, 5e8, 1e25, 2.0**63, float("inf"),
    True, False, None, [], [1], ["a"], ["a", "b", "a"], ["a", 1], {}, {"a": 1}, {"enabled": False},
    "", "auto", "Auto", "x", "cpu", "nvme", "none", "step", "fp16", "FP32", "SUM",
    "true", "tRuE", "yes", "off", "n", " true",
    "0", "3", "5", "+3", "-0", "007", " 7 ", "\n5\t", "\xa05", "0x1", "\u0663", "1,000", "--1",
    "5e8", "1e-3", "1e400", "inf", "nan", "1.5", "1.0", "1.", ".5",
    "1.0_0", "1_0", "0_.5", "1__0", "_1", "1_",
]  # fmt: skip

# Keys, or sections, that need others beside them before all their values can be read.
BASES: dict[str, Config] = {
    "train_batch_size": {},
    "train_micro_batch_size_per_gpu": {},
    "gradient_accumulation_steps": {"train_micro_batch_size_per_gpu": 1},
    "sequence_parallel_size": {"train_micro_batch_size_per_gpu": 1},
    "fp16.fp16_master_weights_and_grads": {"train_batch_size": 1, "zero_optimization": {"stage": 2}},
    "bf16.bf16_master_weights_and_grads": {"train_batch_size": 1, "zero_optimization": {"stage": 1}},
    "bf16.bf16_optimizer_states": {
        "train_batch_size": 1,
        "zero_optimization": {"stage": 1},
        "bf16": {"bf16_master_weights_and_grads": True},
    },
    "data_efficiency.data_sampling.curriculum_learning": {
        "train_batch_size": 1,
        "data_efficiency": {
            "data_sampling": {"curriculum_learning": {"enabled": True, "curriculum_metrics": {}}}
        },
    },
    "data_efficiency.data_sampling.dynamic_batching.enabled": {
        "train_batch_size": 1,
        "data_efficiency": {"data_sampling": {"dynamic_batching": {"max_tokens": 8}}},
    },
    "data_efficiency.data_routing.random_ltd": {
        "train_batch_size": 1,
        "data_efficiency": {"data_routing": {"random_ltd": {"enabled": True}}},
    },
    "zero_optimization.compute_grad_norm": {"train_batch_size": 1, "zero_optimization": {"stage": 1}},
    "zero_optimization.offload_optimizer.ratio": {"train_batch_size": 1, "zero_optimization": {"stage": 3}},
}

# What one key alone can't reproduce: the values, and why they differ.
_FALSE: list[Any] = [0, None, [], {}, ""]
EXCEPTIONS: dict[str, tuple[list[Any], str]] = {
    "aio.use_gds": ([v for v in VALUES if v], "on a CPU it may not be switched on"),
    "data_efficiency.data_routing.random_ltd.enabled": (_FALSE, "anything false becomes false"),
    "tensor_parallel.dtype": (["auto"], "its default, torch.float16, can't be written in JSON"),
    "train_batch_size": ([1.5, 0.5, float("inf"), None], "the other batch sizes have to be found from it"),
    "train_micro_batch_size_per_gpu": ([None], "it or train_batch_size is needed"),
    "sequence_parallel_size": ([float("inf")], "it divides the world size, which rounds to 0"),
    "vocabulary_size": (["", [], {}], "nothing false is looked at"),
    "expert_parallel": ([False, 0, "", []], "anything false counts as absent"),
    "timers": ([v for v in VALUES if isinstance(v, str | list)], "it is only searched with `in`"),
    "tensorboard": (["auto"], "the monitors are keys of a pydantic model that is built from the top level"),
    "wandb": (["auto"], "as tensorboard"),
    "comet": (["auto"], "as tensorboard"),
    "csv_monitor": (["auto"], "as tensorboard"),
}

# Absent or null, these follow from other keys.
COMPUTED = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "zero_optimization.overlap_comm",
}

# Deprecated keys are gone after reading; what shows that they counted.
SHOWN_BY = {
    "zero_optimization.cpu_offload": "offload_optimizer",
    "zero_optimization.cpu_offload_param": "offload_param",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": "gather_16bit_weights_on_model_save",
    "zero_optimization.cpu_offload_use_pin_memory": None,
}


def nodes(node: Config, path: str = "") -> Iterator[tuple[str, Config, Config]]:
    """Every declared key: its path, its node, the node of its section.

    Of free names and of the items of a list one stands for all: "0".
    """
    for name, below in node.get("keys", {"0": node.get("each")}).items():
        here = f"{path}.{name}" if path else name
        if "alias" not in below:
            yield here, below, node
            if "keys" in below or "each" in below:
                yield from nodes(below, here)


NODES = {path: (node, section) for path, node, section in nodes(load_keys())}
SECTIONS = ["", *(path for path, (node, _) in NODES.items() if "keys" in node)]
# The arguments of optimizers and schedulers are not looked at before deepspeed.initialize.
READ_AT_ONCE = [path for path in NODES if ".params." not in path]


def key_node(path: str) -> Config:
    """The node of a section, the top level under the path ""."""
    return NODES[path][0] if path else load_keys()


def base_of(path: str) -> Config:
    """A config in which a key can be written."""
    keys = path.split(".")
    places = [".".join(keys[:depth]) for depth in range(len(keys), 0, -1)]
    return next((BASES[place] for place in places if place in BASES), {"train_batch_size": 1})


def with_value(base: Config, path: str, value: object) -> Config:
    config = copy.deepcopy(base)
    *sections, name = path.split(".")
    place: Any = config
    for depth, section in enumerate(sections):
        if isinstance(place, list):
            place.append({})
            place = place[0]
        else:
            here = NODES.get(".".join(sections[: depth + 1]))
            place = place.setdefault(section, [] if here and here[0]["type"] == "list" else {})
        if section in ("optimizer", "scheduler"):
            place.setdefault("type", "AdamW" if section == "optimizer" else "WarmupLR")
    if isinstance(place, list):
        place.append(value)
    else:
        place[name] = value
    return config


def same(left: object, right: object) -> bool:
    """Whether two values are one, nan included."""
    return type(left) is type(right) and (left == right or (left != left and right != right))


class Observed(NamedTuple):
    """What DeepSpeed makes of one value."""

    refused: str | None = None
    """The exception."""
    kept: bool = False
    value: object = None


def difference(path: str, node: Mapping[str, Any], reader: str, value: object, seen: Observed) -> str | None:
    """How `coerce` and DeepSpeed differ over one value."""
    ours = coerce(node, reader, value)
    refused = isinstance(ours, Invalid) and ours.fails == "parse"
    if refused != (seen.refused is not None):
        return f"{value!r}: {ours!r}, DeepSpeed: {seen}"
    if isinstance(ours, Invalid) or "object" in node["type"] or not seen.kept:
        return None
    if path in COMPUTED and ours is None:
        return None
    if path in SHOWN_BY:
        ours = bool(ours)
    if path.endswith(".nvme_path") and ours is not None:
        ours = str(PurePath(str(ours)))
    return None if same(ours, seen.value) else f"{value!r}: {ours!r}, DeepSpeed: {seen.value!r}"


def values_of(path: str, node: Mapping[str, Any]) -> list[Any]:
    """The values of the grid by which a key can be judged alone."""
    excepted = list(EXCEPTIONS.get(path, ([], ""))[0])
    if "object" in node["type"]:
        excepted.append({"a": 1})  # its keys are judged one by one
    if not (path in NODES and NODES[path][0].get("status") == "removed"):
        excepted.append({"enabled": False})  # the least with which a section that is gone was accepted
    return [value for value in VALUES if not any(same(value, other) for other in excepted)]
