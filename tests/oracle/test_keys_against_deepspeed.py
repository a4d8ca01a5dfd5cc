"""The key table and `coerce` against the real DeepSpeed: what it accepts, and what it ends up with."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.coerce import Invalid, coerce
from dsconf.formats.deepspeed.keys import load_keys

from .judge import Config, deepspeed, read, torch

pytestmark = pytest.mark.oracle

VALUES: list[Any] = [
    0, 1, 2, 3, 5, -1, 2**63, 10**25, 3.0, 1.0, 1.5, 0.5, 5e8, 1e25, 2.0**63, float("inf"),
    True, False, None, [], [1], ["a"], ["a", "b", "a"], ["a", 1], {}, {"a": 1},
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

# What one key alone can't reproduce: the values, and why they differ.
EXCEPTIONS: dict[str, tuple[list[Any], str]] = {
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


def base_of(path: str) -> Config:
    """A config in which a key can be written."""
    return next((BASES[key] for key in (path, path.rpartition(".")[0]) if key in BASES), {"train_batch_size": 1})


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


def same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


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
    "wandb": "monitor_config.wandb",
    "weight_quantization": "weight_quantization_config",
    "zero_optimization": "zero_config",
}
"""Where DeepSpeedConfig keeps a key or a section, where that is not its own name."""
NOT_KEPT = ("datastates_ckpt", "optimizer.", "scheduler.", "vocabulary_size", "data_parallel_size")
"""Keys, and beginnings of keys, of which DeepSpeedConfig holds no value of the same form."""
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


def difference(path: str, value: object) -> str | None:
    """How `coerce` and DeepSpeed differ over one value."""
    node, section = NODES[path]
    result = read(with_value(base_of(path), path, value))
    ours = coerce(node, section.get("reader", "raw"), value)
    refused = isinstance(ours, Invalid) and ours.fails == "parse"
    if refused != isinstance(result, Exception):
        return f"{value!r}: {ours!r}, DeepSpeed: {result!r}"
    if isinstance(ours, Invalid) or "object" in node["type"] or (path in COMPUTED and ours is None):
        return None
    if path in SHOWN_BY:
        shown = SHOWN_BY[path]
        if shown and bool(getattr(result.zero_config, shown)) != bool(ours):
            return f"{value!r}: {ours!r}, DeepSpeed: {shown} {getattr(result.zero_config, shown)!r}"
        return None
    kept, theirs = found(result, path)
    if path.endswith(".nvme_path") and ours is not None:
        ours = str(Path(str(ours)))
    return f"{value!r}: {ours!r}, DeepSpeed: {theirs!r}" if kept and not same(ours, theirs) else None


@pytest.mark.parametrize("path", READ_AT_ONCE)
def test_coerce_does_what_deepspeed_does(path: str) -> None:
    excepted = EXCEPTIONS.get(path, ([], ""))[0]
    values = [value for value in VALUES if not any(same(value, other) for other in excepted)]
    if "object" in NODES[path][0]["type"]:
        # Its keys are judged one by one.
        values.remove({"a": 1})
    assert [text for value in values if (text := difference(path, value))] == []


@pytest.mark.parametrize("path", EXCEPTIONS)
def test_every_exception_is_needed(path: str) -> None:
    assert all(difference(path, value) for value in EXCEPTIONS[path][0])


@pytest.mark.parametrize("path", SECTIONS)
def test_unknown_keys(path: str) -> None:
    node = NODES[path][0] if path else load_keys()
    base = base_of(f"{path}.unheard_of")

    def raises(name: str, value: object) -> bool:
        return isinstance(read(with_value(base, f"{path}.{name}" if path else name, value)), Exception)

    assert raises("unheard_of", 1) == (node.get("unknown") == "raises")
    assert not raises("unheard_of", "auto")
    assert not raises("strict", False)


ZERO_KEYS = load_keys()["keys"]["zero_optimization"]["keys"]


@pytest.mark.parametrize("name", [name for name, node in ZERO_KEYS.items() if "alias" in node])
def test_other_spellings(name: str) -> None:
    canonical = ZERO_KEYS[name]["alias"]
    written = read({"train_batch_size": 1, "zero_optimization": {name: "1"}})
    assert found(written, f"zero_optimization.{canonical}")[1] == 1
    assert isinstance(read({"train_batch_size": 1, "zero_optimization": {name: 1, canonical: 1}}), ValueError)


def test_the_defaults() -> None:
    sections: Config = {"offload_param": {}, "offload_optimizer": {}, "zenflow": {}}
    result = read({"train_batch_size": 1, "zero_optimization": sections})
    wrong = {}
    for path, (node, _) in NODES.items():
        if "default" in node and "object" not in node["type"] and path not in (*SHOWN_BY, *COMPUTED):
            kept, theirs = found(result, path)
            if kept and theirs != node["default"]:
                wrong[path] = theirs
    assert wrong == {}


TORCH_ADAMW = {"type": "AdamW", "params": {"torch_adam": True, "lr": 0.001}}
SCHEDULES: dict[str, Config] = {
    "WarmupLR": {"warmup_num_steps": 2},
    "WarmupDecayLR": {"warmup_num_steps": 2, "total_num_steps": 10},
    "WarmupCosineLR": {"warmup_num_steps": 2, "total_num_steps": 10},
    "OneCycle": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 2},
    "LRRangeTest": {},
}
OF_SCHEDULE = {
    "WarmupLR": "warmup_min_lr warmup_max_lr warmup_num_steps warmup_type last_batch_iteration",
    "WarmupDecayLR": "warmup_min_lr warmup_max_lr warmup_num_steps total_num_steps",
    "WarmupCosineLR": "warmup_num_steps total_num_steps warmup_min_ratio cos_min_ratio",
    "OneCycle": "cycle_min_lr cycle_max_lr decay_lr_rate cycle_first_step_size cycle_second_step_size "
    "cycle_first_stair_count cycle_second_stair_count decay_step_size cycle_min_mom cycle_max_mom "
    "decay_mom_rate",
    "LRRangeTest": "lr_range_test_min_lr lr_range_test_step_size lr_range_test_step_rate "
    "lr_range_test_staircase",
}


def scheduled(kind: str, name: str) -> Config:
    params = dict(SCHEDULES[kind])
    # After a TypeError the engine tries once more with the batch size, here 2, as the number of the step:
    # only a schedule that needs the value there too really fails.
    if name == "warmup_min_ratio":
        params["warmup_num_steps"] = 4
    return {"optimizer": TORCH_ADAMW, "scheduler": {"type": kind, "params": params}}


def fails(config: Config) -> str | None:
    """The moment at which a run of eight steps fails."""
    config = {"train_batch_size": 2, **copy.deepcopy(config)}
    if isinstance(read(config), Exception):
        return "parse"
    model = torch.nn.Linear(4, 4)
    try:
        engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
    except Exception:
        return "init"
    try:
        for _ in range(8):
            engine.backward(engine(torch.ones(2, 4, dtype=next(engine.module.parameters()).dtype)).sum())
            engine.step()
    except Exception:
        return "step"
    return None


def said(path: str, value: object) -> str | None:
    result = coerce(NODES[path][0], "raw", value)
    return result.fails if isinstance(result, Invalid) else None


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in OF_SCHEDULE.items() for name in names.split()]
)
def test_when_scheduler_arguments_fail(kind: str, name: str) -> None:
    path = f"scheduler.params.{name}"
    values: list[Any] = ["5", None, 2.0, 2]
    if {"min", "exclusive_min", "int_only"} & set(NODES[path][0]):
        values += [0, -1, 1.5, True]
    base = scheduled(kind, name)
    assert [(value, fails(with_value(base, path, value))) for value in values] == [
        (value, said(path, value)) for value in values
    ]


MUON: Config = {"type": "Muon", "params": {"torch_adam": True}}
OTHERS: list[tuple[str, list[Any], Config]] = [
    ("gradient_clipping", ["1.0", "auto", None, [], True, 1, 0.0], {}),
    ("gradient_predivide_factor", ["2.0", "auto", None, [], 2, 1.0], {}),
    ("steps_per_print", ["5", "auto", [], None, 1.5, 5, True], {}),
    ("data_parallel_size", ["1", None, 1], {"sequence_parallel_size": 1}),
    ("sequence_parallel_size", ["1", None, 1], {"data_parallel_size": 1}),
    ("log_level", ["loud", 5, "", "INFO", None], {}),
    ("data_types.grad_accum_dtype", ["auto", "FP32", 5, "fp32", "float", None], {}),
    ("data_types.param_dtype", ["auto", "FP32", 5, "fp32", "torch.float32", None], {}),
    ("data_types.buffer_dtype", ["auto", "FP32", 5, "bf16", "bfloat16", None], {"bf16": {"enabled": True}}),
    ("scheduler.type", [5, [], None, "WarmupLR"], {"scheduler": {"params": {}}}),
    ("scheduler.params", [None, "x", [], {}], {"scheduler": {"type": "WarmupLR"}}),
    ("optimizer.params", ["x", [], None, {}], {"optimizer": {"type": "SGD"}}),
    ("optimizer.params.max_grad_norm", [1.0, 0], {}),
    ("optimizer.params.ns_method", ["fast", None, 5, "gram"], {"optimizer": MUON}),
]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(("path", "values", "extra"), OTHERS, ids=[path for path, *_ in OTHERS])
def test_when_other_raw_values_fail(path: str, values: list[Any], extra: Config) -> None:
    base = {"optimizer": TORCH_ADAMW, **extra}
    assert [(value, fails(with_value(base, path, value))) for value in values] == [
        (value, said(path, value)) for value in values
    ]


QUOTED = {"lr": "1e-3", "eps": "1e-8", "weight_decay": "0.01", "betas": ["0.9", "0.999"]}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("name", QUOTED)
def test_quoted_numbers_of_the_optimizer(name: str) -> None:
    own: Config = {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}
    path = f"optimizer.params.{name}"
    assert fails(own) is None
    assert fails(with_value(own, path, QUOTED[name])) == said(path, QUOTED[name]) == "step"
    # A class of torch.optim looks at them at once.
    assert fails(with_value({"optimizer": TORCH_ADAMW}, path, QUOTED[name])) == "init"
