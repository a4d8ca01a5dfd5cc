"""What a Plan has to become under Accelerate, beside what a real launch makes of the file that was written for it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dsconf.plan import Plan, Unresolved

from .accelerate_answers import WRAPPING, member, offloads
from .accelerating import Outcome, one_machine

_DTYPES = {"fp32": None, "bf16": "bfloat16", "fp16": "float16"}
_WEIGHTS = {None: "SHARDED", "sharded": "SHARDED", "local": "SHARDED", "full": "FULL"}
_SIZES = ("dp_replicate", "dp_shard", "tp", "cp", "sp")


@contextmanager
def many_machines() -> Iterator[SimpleNamespace]:
    """Any number of processes: `processes` of what is given is their number."""
    size = SimpleNamespace(processes=1)
    state = importlib.import_module("accelerate.state")
    with one_machine(), pytest.MonkeyPatch.context() as patch:
        start = state.PartialState.__init__

        def with_all_processes(self: Any, *args: Any, **options: Any) -> None:
            start(self, *args, **options)
            self.num_processes = size.processes

        patch.setattr(state.PartialState, "__init__", with_all_processes)
        yield size


def expected(plan: Plan) -> dict[str, object] | None:
    """The fields of the plugin that trains as a Plan says; None for none: DDP."""
    precision, wrapping = plan.precision, plan.wrapping
    if plan.sharding.partition == "nothing" and plan.parallelism.context == 1:
        return None
    units: str | None = "TRANSFORMER_BASED_WRAP"
    names = list(wrapping.block_classes) or None
    if wrapping.root_only:
        units, names = None, None
    elif wrapping.min_params is not None:
        names = None
    compute = precision.compute if precision.compute != "fp32" else precision.autocast or "fp32"
    if isinstance(compute, Unresolved) or precision.masters != "fp32":
        compute = "fp32"
    dtype = _DTYPES[compute]
    moved = plan.offload.parameters or plan.offload.optimizer
    return {
        "fsdp_version": 2,
        "sharding_strategy": None,
        "reshard_after_forward": plan.sharding.partition == "parameters"
        and plan.sharding.reshard_after_forward is not False,
        "cpu_offload": moved,
        "auto_wrap_policy": units,
        "transformer_cls_names_to_wrap": names,
        "state_dict_type": f"{_WEIGHTS[plan.checkpoint.weights]}_STATE_DICT",
        "cpu_ram_efficient_loading": plan.checkpoint.loads_on_rank_0 is not False,
        "activation_checkpointing": plan.recompute is True,
        "activation_checkpointing_offload": False,
        "use_orig_params": None,
        "backward_prefetch": None,
        "forward_prefetch": None,
        "ignored_modules": None,
        "mixed_precision_policy": (dtype, dtype, dtype) if dtype else None,
    }


def found(plugin: Any) -> dict[str, object] | None:
    """The same fields of a real plugin."""
    if plugin is None:
        return None
    policy, wrapping = plugin.mixed_precision_policy, plugin.auto_wrap_policy
    dtypes = (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) if policy else None
    own = {
        "cpu_offload": offloads(plugin.cpu_offload),
        "auto_wrap_policy": WRAPPING[wrapping.__name__] if wrapping else None,
        "mixed_precision_policy": tuple(str(each).removeprefix("torch.") for each in dtypes)
        if dtypes
        else None,
    }
    names = (
        "fsdp_version sharding_strategy reshard_after_forward transformer_cls_names_to_wrap state_dict_type "
        "cpu_ram_efficient_loading activation_checkpointing activation_checkpointing_offload use_orig_params "
        "backward_prefetch forward_prefetch ignored_modules"
    )
    return {name: member(getattr(plugin, name)) for name in names.split()} | own


def layout(plan: Plan) -> dict[str, int] | None:
    """The sizes of parallelism_config that a Plan needs; None for none."""
    world, group = plan.launch.world_size, plan.sharding.group
    tensor, context = plan.parallelism.tensor, plan.parallelism.context
    sharded = expected(plan) is not None
    if world is None or ((tensor, context) == (1, 1) and (group in (None, world) or not sharded)):
        return None
    if not sharded:
        return dict.fromkeys(_SIZES, 1) | {"tp": tensor} if world == tensor else None
    shards = group or world // tensor
    return {
        "dp_replicate": world // (tensor * shards),
        "dp_shard": shards // context,
        "tp": tensor,
        "cp": context,
        "sp": 1,
    }


def arrived(outcome: Outcome) -> dict[str, int] | None:
    """The sizes that the workers get."""
    if "ACCELERATE_USE_PARALLELISM_CONFIG" not in outcome.env:
        return None
    return {name: int(outcome.env[f"PARALLELISM_CONFIG_{name.upper()}_SIZE"]) for name in _SIZES}


def differences(plan: Plan, outcome: Outcome) -> dict[str, tuple[object, object]]:
    """What of a Plan and of a real launch is not the same, as pairs; whatever fails, too."""
    told: dict[str, object] = {"fails": None, "layout": layout(plan), **(expected(plan) or {"plugin": None})}
    real: dict[str, object] = {"fails": outcome.fails and repr(outcome.error), "layout": arrived(outcome)}
    if not outcome.fails:
        real |= found(outcome.fsdp) or {"plugin": None}
    world, machines = plan.launch.world_size, plan.launch.machines
    if world not in (None, 1) and machines:
        told["local"], real["local"] = world // machines, outcome.local
    keys = {**told, **real}
    return {
        key: (told.get(key, "absent"), real.get(key, "absent"))
        for key in keys
        if told.get(key, "absent") != real.get(key, "absent")
    }
