"""The key table and `coerce` against the real DeepSpeed: what it accepts, and what it ends up with."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.coerce import Invalid, coerce

from .declared import NODES, READ_AT_ONCE, SECTIONS, base_of, found, key_node, with_value
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

# What one key alone can't reproduce: the values, and why they differ.
_FALSE: list[Any] = [0, None, [], {}, ""]
EXCEPTIONS: dict[str, tuple[list[Any], str]] = {
    "aio.use_gds": ([v for v in VALUES if v], "on a CPU it may not be switched on"),
    "data_efficiency.data_routing.random_ltd.enabled": (_FALSE, "anything false becomes false"),
    "tensor_parallel.dtype": (["auto"], "its default, torch.float16, can't be written in JSON"),
    "torch_autocast.lower_precision_safe_modules": (
        [v for v in VALUES if isinstance(v, str | dict)],
        "a string or an object is taken for the list of its letters or keys, until initialization",
    ),
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


STRICT = [path for path in READ_AT_ONCE if NODES[path][1].get("reader") == "pydantic"]


def same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


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


KEPT_NOWHERE = {
    *(path for path in SHOWN_BY if SHOWN_BY[path]),
    "allgather_size",
    "data_parallel_size",
    "datastates_ckpt",
    "optimizer.type",
    "sequence_parallel_size",
    "tensor_parallel.dtype",
    "vocabulary_size",
}
"""Keys of which DeepSpeedConfig has no value that could be compared."""


def test_the_values_of_all_other_keys_are_compared() -> None:
    def is_kept(path: str, value: object) -> bool:
        result = read(with_value(base_of(path), path, value))
        return not isinstance(result, Exception) and found(result, path)[0]

    leaves = {
        path
        for path in READ_AT_ONCE
        if "object" not in NODES[path][0]["type"] and NODES[path][0].get("status") != "removed"
    }
    values: tuple[Any, ...] = (0.5, 1, "a", True, None, [])
    assert {
        path
        for path in leaves
        if not any(is_kept(path, value) for value in (*NODES[path][0].get("values", ()), *values))
    } == KEPT_NOWHERE


@pytest.mark.parametrize("path", EXCEPTIONS)
def test_every_exception_is_needed(path: str) -> None:
    assert all(difference(path, value) for value in EXCEPTIONS[path][0])


@pytest.mark.parametrize("path", SECTIONS)
def test_unknown_keys(path: str) -> None:
    node = key_node(path)
    base = base_of(f"{path}.unheard_of")

    def raises(name: str, value: object) -> bool:
        return isinstance(read(with_value(base, f"{path}.{name}" if path else name, value)), Exception)

    assert raises("unheard_of", 1) == (node.get("unknown") == "raises")
    assert not raises("unheard_of", "auto")
    assert not raises("strict", False)


@pytest.mark.parametrize("path", STRICT)
def test_a_strict_section_does_not_drop_auto(path: str) -> None:
    section = path.rpartition(".")[0]
    for truth in (True, "auto", 1, None, False, ""):
        written = with_value(base_of(path), f"{section}.strict", truth)
        refused = isinstance(read(with_value(written, path, "auto")), Exception)
        ours = coerce(NODES[path][0], "pydantic", "auto", strict=bool(truth))
        assert isinstance(ours, Invalid) == refused, truth


@pytest.mark.parametrize(
    "path", [path for path in SECTIONS if path and NODES[path][0].get("unknown") == "raises"]
)
def test_a_strict_section_refuses_an_unknown_key_with_auto(path: str) -> None:
    assert isinstance(
        read(with_value({"train_batch_size": 1}, path, {"strict": True, "new": "auto"})), Exception
    )


SPELLINGS = [
    (path, name) for path in SECTIONS for name, node in key_node(path)["keys"].items() if "alias" in node
]


@pytest.mark.parametrize(("section", "name"), SPELLINGS)
def test_other_spellings(section: str, name: str) -> None:
    node = key_node(section)["keys"][name]
    path = f"{section}.{node['alias']}" if section else node["alias"]
    written = f"{section}.{name}" if section else name
    base = {"train_batch_size": 1}
    if "object" not in NODES[path][0]["type"]:
        assert found(read(with_value(base, written, "1")), path)[1] == 1
    else:
        below = next(iter(NODES[path][0]["keys"]))
        assert found(read(with_value(base, written, {below: "1"})), f"{path}.{below}")[1] == 1
    ours = coerce({**NODES[path][0], **node}, NODES[path][1].get("reader", "raw"), None)
    assert isinstance(read(with_value(base, written, None)), Exception) == isinstance(ours, Invalid)
    both = read(with_value(with_value(base, written, {}), path, {}))
    assert isinstance(both, Exception) == (NODES[path][1].get("unknown") == "raises")


def test_the_comms_logger_is_on_whatever_its_switch_says() -> None:
    assert NODES["comms_logger.enabled"][0]["status"] == "inert"
    logger = importlib.import_module("deepspeed.utils.comms_logging").CommsLogger()
    for section, on in ({"comms_logger": {"enabled": False}}, True), ({}, False):
        logger.configure(read({"train_batch_size": 1, **section}).comms_config)
        assert logger.enabled == on


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
