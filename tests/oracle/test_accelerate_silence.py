"""Settings of which Accelerate makes nothing, or something else, without a word: what trains, and what lint says."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from examples import lint_json

from .accelerate_answers import member
from .accelerating import Outcome, launched, one_machine

pytestmark = pytest.mark.oracle

FSDP = """
distributed_type: FSDP
num_processes: 8
mixed_precision: bf16
fsdp_config:
  fsdp_version: {}
"""
FSDP1, FSDP2 = FSDP.format(1), FSDP.format(2)
DEEPSPEED = """
distributed_type: DEEPSPEED
num_processes: 8
mixed_precision: bf16
deepspeed_config:
"""
NVME = (
    DEEPSPEED
    + "  zero_stage: 3\n  zero3_save_16bit_model: true\n  offload_{0}_device: nvme\n  offload_{0}_nvme_path: {1}"
)
GPUS = "distributed_type: MULTI_GPU\n"
MACHINES = GPUS + "num_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\nnum_processes: "
WRAP = "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
SIZE = "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
CLASS = "  fsdp_transformer_layer_cls_to_wrap: Layer\n"
LAYOUT = GPUS + "num_processes: 8\nparallelism_config:\n"


class Silent(NamedTuple):
    """Two files that train the same."""

    code: str | None
    """The rule that speaks of the first one; None where it means the same as the other one anyway."""
    text: str
    other: str


SILENT = {
    "processes that machines do not divide": Silent("AC104", MACHINES + "15", MACHINES + "14"),
    "fsdp_config for MULTI_GPU": Silent(
        "AC106", FSDP2.replace("FSDP\n", "MULTI_GPU\n"), GPUS + "num_processes: 8\nmixed_precision: bf16"
    ),
    "deepspeed_config for FSDP": Silent(
        "AC106", FSDP2 + WRAP + "deepspeed_config:\n  zero_stage: 3", FSDP2 + WRAP
    ),
    "fsdp_config for DEEPSPEED": Silent(
        "AC106", DEEPSPEED + "  zero_stage: 2\nfsdp_config:\n  fsdp_version: 2", DEEPSPEED + "  zero_stage: 2"
    ),
    "a key written twice": Silent(
        "DS102", DEEPSPEED + "  zero_stage: 3\n  zero_stage: 2", DEEPSPEED + "  zero_stage: 2"
    ),
    **{
        f"{word} in reshard_after_forward of FSDP1": Silent(
            "FS101",
            FSDP1 + WRAP + f"  fsdp_reshard_after_forward: {word}",
            FSDP1 + WRAP + "  fsdp_sharding_strategy: FULL_SHARD",
        )
        for word in ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "false")
    },
    "true in reshard_after_forward of FSDP1": Silent(
        "FS116", FSDP1 + WRAP + "  fsdp_reshard_after_forward: true", FSDP1 + WRAP
    ),
    "reshard_after_forward beside a strategy of FSDP1": Silent(
        "FS116",
        FSDP1 + WRAP + "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_reshard_after_forward: false",
        FSDP1 + WRAP + "  fsdp_sharding_strategy: FULL_SHARD",
    ),
    **{
        f"{word} of FSDP2": Silent(
            "FS102",
            FSDP2 + WRAP + f"  fsdp_sharding_strategy: {word}",
            FSDP2 + WRAP + "  fsdp_reshard_after_forward: true",
        )
        for word in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")
    },
    **{
        f"{key} of FSDP2": Silent("FS104", FSDP2 + WRAP + f"  fsdp_{key}: {value}", FSDP2 + WRAP)
        for key, value in {
            "backward_prefetch": "BACKWARD_PRE",
            "forward_prefetch": "true",
            "use_orig_params": "false",
            "sync_module_states": "true",
        }.items()
    },
    **{
        f"{word} beside reshard_after_forward {reshard} of FSDP2": Silent(
            "FS104",
            FSDP2 + WRAP + f"  fsdp_sharding_strategy: {word}\n  fsdp_reshard_after_forward: {reshard}",
            FSDP2 + WRAP + f"  fsdp_reshard_after_forward: {reshard}",
        )
        for word in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")
        for reshard in ("true", "false")
    },
    **{
        f"a layer class without a policy, FSDP{version}": Silent(
            "FS108", base + CLASS, base + "  fsdp_auto_wrap_policy: NO_WRAP"
        )
        for version, base in ((1, FSDP1), (2, FSDP2))
    },
    "a layer class with NO_WRAP": Silent(
        "FS109",
        FSDP2 + "  fsdp_auto_wrap_policy: NO_WRAP\n" + CLASS,
        FSDP2 + "  fsdp_auto_wrap_policy: NO_WRAP",
    ),
    "a layer class with a size": Silent("FS109", FSDP2 + SIZE + CLASS, FSDP2 + SIZE),
    "a size with layers": Silent("FS109", FSDP2 + WRAP + "  fsdp_min_num_params: 2000", FSDP2 + WRAP),
    **{
        f"the size 0, FSDP{version}": Silent(
            "FS107", base + SIZE + "  fsdp_min_num_params: 0", base + "  fsdp_auto_wrap_policy: NO_WRAP"
        )
        for version, base in ((1, FSDP1), (2, FSDP2))
    },
    **{
        f"no key of fsdp_config: {key}": Silent("AC101", FSDP1 + WRAP + f"  {key}: {value}", FSDP1 + WRAP)
        for key, value in {
            "fsdp_cpu_offload": "true",
            "fsdp_backward_prefetch_policy": "BACKWARD_PRE",
            "fsdp_transformer_cls_names_to_wrap": "Other",
            "fsdp_limit_all_gathers": "true",
            "fsdp_mixed_precision_policy": "fp32",
        }.items()
    },
    "keys without the prefix": Silent(
        None,
        FSDP2.replace("fsdp_v", "v") + "  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  offload_params: true",
        FSDP2 + WRAP + "  fsdp_offload_params: true",
    ),
    "sizes without the prefix": Silent(
        "AC101", LAYOUT + "  tp_size: 2", LAYOUT + "  parallelism_config_tp_size: 1"
    ),
    **{
        f"a path for {what} on NVMe": Silent(
            "AC120",
            NVME.format(what, "/nvme"),
            NVME.format(what, "none"),
        )
        for what in ("optimizer", "param")
    },
    **{
        f"zero3_save_16bit_model {word}": Silent(
            "AC124",
            DEEPSPEED + f"  zero3_save_16bit_model: {word}",
            DEEPSPEED + "  zero3_save_16bit_model: false",
        )
        for word in ('"yes"', '"on"', "1")
    },
    "another number of processes in a section": Silent(
        "AC131", DEEPSPEED + "  num_processes: 64", DEEPSPEED.replace("8", "64") + "  zero_stage: 2"
    ),
    "a way of context parallelism without any": Silent(
        "AC130",
        LAYOUT + "  parallelism_config_cp_size: 1\n  parallelism_config_cp_comm_strategy: any word",
        LAYOUT + "  parallelism_config_cp_size: 1",
    ),
    "the attention of sequence parallelism without any": Silent(
        "AC130",
        LAYOUT + "  parallelism_config_sp_size: 1\n  parallelism_config_sp_attn_implementation: eager",
        LAYOUT + "  parallelism_config_sp_size: 1",
    ),
    "a section of DeepSpeed's JSON": Silent(
        "AC101", DEEPSPEED + "  zero_optimization: {stage: 3}", DEEPSPEED + "  zero_stage: 2"
    ),
    "a misspelt stage": Silent("AC101", DEEPSPEED + "  zero_stge: 3", DEEPSPEED + "  zero_stage: 2"),
}
_AS_WRITTEN = ("min_num_params", "transformer_cls_names_to_wrap", "param_init_fn", "hf_ds_config", "dschf")
"""Fields of plugins that say what another field says too, or are other objects each time."""


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


def trains(real: Outcome) -> dict[str, object]:
    """What a training goes by: the plugins once a model is wrapped, or the environment where there are none."""
    assert real.fails is None, real.error
    if real.fsdp is not None:
        real.fsdp.set_auto_wrap_policy(a_model())
        return {"local": real.local} | {
            name: comparable(value) for name, value in vars(real.fsdp).items() if name not in _AS_WRITTEN
        }
    if real.deepspeed is not None:
        return {"local": real.local} | {
            name: value for name, value in vars(real.deepspeed).items() if name not in _AS_WRITTEN
        }
    layout = vars(real.layout) if real.layout else {}
    return {"env": real.env, "local": real.local, **layout}


def comparable(value: Any) -> object:
    if hasattr(value, "keywords"):
        return value.func.__name__, value.keywords
    return vars(value) if type(value).__name__ == "CPUOffloadPolicy" else member(value)


@cache
def a_model() -> Any:
    """A model of two layers of the class Layer."""
    nn = importlib.import_module("torch.nn")
    layer = type("Layer", (nn.Linear,), {})
    return nn.Sequential(layer(2, 2), layer(2, 2))


@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT)
def test_it_trains_the_same(case: Silent, tmp_path: Path) -> None:
    assert trains(launched(case.text, tmp_path)) == trains(launched(case.other, tmp_path))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (FSDP1 + WRAP + "  fsdp_sharding_strategy: SHARD_GRAD_OP", FSDP1 + WRAP),
        (FSDP2 + WRAP + "  fsdp_reshard_after_forward: false", FSDP2 + WRAP),
        (FSDP1 + WRAP + "  fsdp_backward_prefetch: BACKWARD_PRE", FSDP1 + WRAP),
        (FSDP2 + WRAP + CLASS, FSDP2 + WRAP),
        (FSDP2 + SIZE + "  fsdp_min_num_params: 2000", FSDP2 + SIZE),
        (FSDP2 + WRAP + "  offload_params: true", FSDP2 + WRAP),
        (DEEPSPEED + "  zero_stage: 3", DEEPSPEED + "  zero_stage: 2"),
        (DEEPSPEED + "  zero3_save_16bit_model: true", DEEPSPEED + "  zero3_save_16bit_model: false"),
        (LAYOUT + "  parallelism_config_tp_size: 2", LAYOUT + "  parallelism_config_tp_size: 1"),
        (MACHINES + "16", MACHINES + "14"),
    ],
)
def test_what_counts_makes_a_difference(text: str, other: str, tmp_path: Path) -> None:
    assert trains(launched(text, tmp_path)) != trains(launched(other, tmp_path))


@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT)
def test_lint_speaks_of_it(case: Silent, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(case.text, encoding="utf-8")
    findings = lint_json(path)[1]["findings"]
    serious = {finding["code"] for finding in findings if finding["severity"] != "info"}
    assert serious <= {case.code}
    assert case.code is None or case.code in {finding["code"] for finding in findings}


@pytest.mark.parametrize(("value", "found"), [("0", None), ("0.0", None), ("0.5", 0.5)])
def test_clipping_to_zero_is_none(value: str, found: float | None, tmp_path: Path) -> None:
    real = launched(DEEPSPEED + f"  gradient_clipping: {value}", tmp_path)
    assert real.deepspeed.deepspeed_config.get("gradient_clipping") == found
