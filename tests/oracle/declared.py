"""Every declared key, where to write it in a config, and where DeepSpeedConfig keeps it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsconf.formats.deepspeed.keys import load_keys

from .judge import Config, torch

# Keys, or sections, that need others beside them before all their values can be read.
BASES: dict[str, Config] = {
    "train_batch_size": {},
    "train_micro_batch_size_per_gpu": {},
    "gradient_accumulation_steps": {"train_micro_batch_size_per_gpu": 1},
    "sequence_parallel_size": {"train_micro_batch_size_per_gpu": 1},
    "fp16.fp16_master_weights_and_grads": {"train_batch_size": 1, "zero_optimization": {"stage": 1}},
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
            here = NODES[".".join(sections[: depth + 1])][0]
            place = place.setdefault(section, [] if here["type"] == "list" else {})
        if section in ("optimizer", "scheduler"):
            place.setdefault("type", "AdamW" if section == "optimizer" else "WarmupLR")
    if isinstance(place, list):
        place.append(value)
    else:
        place[name] = value
    return config


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


def found(result: Any, path: str) -> tuple[bool, object]:
    """Whether DeepSpeed keeps the value of a key, and that value."""
    keys = path.split(".")
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
    return True, str(place) if isinstance(place, Path) else list(place) if isinstance(place, tuple) else place
