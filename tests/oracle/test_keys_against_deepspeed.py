"""The key table and `coerce` against the real DeepSpeed: what it accepts, and what it ends up with."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import pytest
from configs import config_of

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.resolve import resolve

from .grid import (
    COMPUTED,
    EXCEPTIONS,
    NODES,
    READ_AT_ONCE,
    SECTIONS,
    SHOWN_BY,
    Config,
    base_of,
    difference,
    key_node,
    same,
    values_of,
    with_value,
)
from .judge import deepspeed, read, torch
from .observe import found, observe

pytestmark = pytest.mark.oracle


STRICT = [path for path in READ_AT_ONCE if NODES[path][1].get("reader") == "pydantic"]


def differences(path: str, values: list[Any]) -> list[str]:
    node, section = NODES[path]
    reader = section.get("reader", "raw")
    return [text for value in values if (text := difference(path, node, reader, value, observe(path, value)))]


@pytest.mark.parametrize("path", READ_AT_ONCE)
def test_coerce_does_what_deepspeed_does(path: str) -> None:
    assert differences(path, values_of(path, NODES[path][0])) == []


@pytest.mark.parametrize("path", [path for path in READ_AT_ONCE if "[]" not in path and "*" not in path])
def test_resolve_shows_what_deepspeed_ends_up_with(path: str) -> None:
    """Values that are read in isolation, and three of them in the whole table of `resolve`."""
    node = NODES[path][0]
    if "object" in node["type"] or path in SHOWN_BY or path.endswith(".nvme_path"):
        return
    shown = 0
    for value in values_of(path, node):
        seen = observe(path, value)
        if (
            seen.refused is not None
            or not seen.kept
            or value in (float("inf"), float("-inf"))
            or value != value
        ):
            continue
        reader = NODES[path][1].get("reader", "raw")
        if (value == "auto" and reader == "raw") or isinstance(coerce(node, reader, value), Invalid):
            continue  # kept as text, or until something fails on it
        config = config_of(with_value(base_of(path), path, value), "deepspeed", 1)
        found_value = config.value(path)
        if path in COMPUTED and found_value is None:
            continue
        assert same(found_value, seen.value), (value, found_value, seen.value)
        if shown < 3:
            row = next(row for row in resolve(config) if row.path == path)
            assert row.origin == "derived" or same(row.value, seen.value), (value, row, seen.value)
            shown += 1


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
    values = EXCEPTIONS[path][0]
    assert len(differences(path, values)) == len(values)


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
