"""Every key that `accelerate launch` hands on, with values of all kinds, against the real launcher and plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.coerce import Invalid, coerce
from dsconf.config.effective import Config, Written
from dsconf.formats.accelerate.keys import load_keys

from .accelerate_answers import config_of, differences
from .accelerating import launched, one_machine

pytestmark = pytest.mark.oracle

KINDS: list[object] = [
    None, True, False, 0, 1, 2, 3, 4, 6, -1, 0.0, 2.0, 2.5, 1e8, 1e400, "", "0", "1", "2", " 2 ", "1_000", "1e8",
    "auto", "none", "None", "true", "True", "FALSE", "yes", "off", "enabled", "A,B", [], ["A", "B"], {}, {"a": 1},
]  # fmt: skip
WORDS: dict[str, list[object]] = {
    "fsdp_config": [
        5, "FULL_SHARD", "shard_grad_op", "_HYBRID_SHARD_ZERO2", "_NO_SHARD", "TRANSFORMER_BASED_WRAP",
        "size_based_wrap", "NO_WRAP", "BACKWARD_PRE", "backward_post", "no_prefetch", "FULL_STATE_DICT",
        "sharded_state_dict", "local_state_dict", "cpu", "3", "7", "y",
    ],
    "deepspeed_config": ["AUTO", "inf", "cpu", "NVMe", "None ", "pdsh", "OpenMPI"],
    "parallelism_config": [
        "torch", "Torch", "deepspeed", "allgather", "alltoall", "ALLTOALL", "sdpa", "eager", "flash_attention_3",
        "org/flash-attn2", "flash-attn",
    ],
    "fp8_config": ["TE", "te", "AO", "MSAMP", "NO"],
    "": [
        "bf16", "BF16", "fp32", "bfloat16", "no", "MULTI_GPU", "fsdp", "FSDP2", "0,1", "LOCAL_MACHINE", "Inductor", -2,
    ],
}  # fmt: skip
"""By section the words of its keys."""
BESIDE: dict[str, dict[str, object]] = {
    "fsdp_config.min_num_params": {"auto_wrap_policy": "SIZE_BASED_WRAP"},
    "fsdp_config.transformer_layer_cls_to_wrap": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
    "fsdp_config.sync_module_states": {"cpu_ram_efficient_loading": False},
    "fsdp_config.activation_checkpointing_offload": {"activation_checkpointing": True},
    "parallelism_config.parallelism_config_cp_comm_strategy": {"parallelism_config_cp_size": 2},
    "parallelism_config.parallelism_config_sp_seq_length": {
        "parallelism_config_sp_size": 2,
        "parallelism_config_sp_seq_length_is_variable": False,
    },
    "parallelism_config.parallelism_config_sp_seq_length_is_variable": {"parallelism_config_sp_size": 2},
    "parallelism_config.parallelism_config_sp_attn_implementation": {"parallelism_config_sp_size": 2},
}
"""What has to stand beside a key so that its value is read, or does not fail for another reason."""


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


def keys_of(section: str) -> list[str]:
    keys = load_keys()["keys"][section]["keys"]
    return [name for name, spec in keys.items() if "alias" not in spec]


def expected_failure(config: Config, path: str) -> str | None:
    """When the key table says that the value of a path fails."""
    item: Written = next(item for item in config.written if item.path == path)
    found = coerce(item.spec or {}, item.section.get("reader", "raw"), item.entry.node.plain())
    return found.fails if isinstance(found, Invalid) else None


TRUE = ("1", "y", "yes", "t", "true", "on")


def difference(settings: Mapping[str, object], path: str, folder: Path, *, worker: bool) -> object:
    """What is wrong with the answer of dsconf to one config, None where it is right."""
    config, real = config_of(settings), launched(settings, folder, worker=worker)
    told = expected_failure(config, path) or fails_otherwise(settings, path)
    if real.fails != told:
        return real.fails, real.error, told
    return differences(config, real, worker=worker)


def wrong_answers(
    base: Mapping[str, Any], path: str, folder: Path, *, worker: bool = True
) -> dict[str, object]:
    section, _, key = path.rpartition(".")
    wrong = {}
    for value in KINDS + WORDS.get(section, []):
        settings = {name: dict(below) if isinstance(below, dict) else below for name, below in base.items()}
        inside = settings.setdefault(section, {}) if section else settings
        inside.update(BESIDE.get(path, {}))
        inside[key] = value
        found = difference(settings, path, folder, worker=worker)
        if found is not None:
            wrong[repr(value)] = found
    return wrong


def fails_otherwise(settings: Mapping[str, Any], path: str) -> str | None:
    """What fails for more than the value: two keys together, each of which is good, or the file that it names."""
    if path == "deepspeed_config.deepspeed_config_file":  # there is no file of any of the names
        return "init" if settings["deepspeed_config"]["deepspeed_config_file"] not in (None, "none") else None
    if path == "num_processes":  # the command line may say it
        return "launch" if settings[path] == -1 else None
    if not path.startswith("fsdp_config."):
        return None
    fsdp = settings["fsdp_config"]
    version = fsdp.get("fsdp_version")
    fails = False
    if path == "fsdp_config.activation_checkpointing_offload":
        fails = version == 1 and str(fsdp["activation_checkpointing_offload"]).lower() in TRUE
    if path == "fsdp_config.state_dict_type":
        fails = version == 2 and str(fsdp["state_dict_type"]).upper() in ("2", "LOCAL_STATE_DICT")
    return "init" if fails else None


@pytest.mark.parametrize("key", keys_of("fsdp_config"))
@pytest.mark.parametrize("version", [1, 2])
def test_fsdp(key: str, version: int, tmp_path: Path) -> None:
    section = {} if key == "version" else {"fsdp_version": version}
    base = {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": section}
    assert wrong_answers(base, f"fsdp_config.{key}", tmp_path) == {}


@pytest.mark.parametrize("key", keys_of("deepspeed_config"))
def test_deepspeed(key: str, tmp_path: Path) -> None:
    base = {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": {}}
    assert wrong_answers(base, f"deepspeed_config.{key}", tmp_path) == {}


@pytest.mark.parametrize("key", keys_of("parallelism_config"))
def test_parallelism(key: str, tmp_path: Path) -> None:
    base = {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"fsdp_version": 2}}
    assert wrong_answers(base, f"parallelism_config.{key}", tmp_path) == {}


MACHINES = {"num_machines": 2, "main_process_ip": "10.0.0.1", "main_process_port": 29500}


@pytest.mark.parametrize(
    "key",
    [name for name in keys_of("deepspeed_config") if name.startswith("deepspeed_") and "_cls_" not in name],
)
def test_deepspeed_on_several_machines(key: str, tmp_path: Path) -> None:
    base = {"distributed_type": "DEEPSPEED", "num_processes": 16, **MACHINES, "deepspeed_config": {}}
    assert wrong_answers(base, f"deepspeed_config.{key}", tmp_path, worker=key.endswith("file")) == {}


TOP = [name for name, spec in load_keys()["keys"].items() if "keys" not in spec and not spec.get("open")]
SECTIONS = [name for name in load_keys()["keys"] if name not in TOP]
OF_SEVERAL = {"num_processes", "num_machines", "main_process_ip", "main_process_port"}
"""Keys whose values dsconf does not look at where one process starts, which has no use for them."""


@pytest.mark.parametrize("key", TOP)
@pytest.mark.parametrize("distributed", ["FSDP", "DEEPSPEED", "NO"])
def test_top_level(distributed: str, key: str, tmp_path: Path) -> None:
    if distributed == "NO" and key in OF_SEVERAL:
        return
    base = {"distributed_type": distributed, "num_processes": 8}
    wrong = wrong_answers(base, key, tmp_path, worker=False)
    # The launcher takes an object for a section, wherever it stands.
    assert {value: found for value, found in wrong.items() if value[0] != "{"} == {}


@pytest.mark.parametrize("key", SECTIONS)
@pytest.mark.parametrize("distributed", ["FSDP", "DEEPSPEED"])
def test_what_stands_for_a_section(distributed: str, key: str, tmp_path: Path) -> None:
    base = {"distributed_type": distributed, "num_processes": 8}
    assert wrong_answers(base, key, tmp_path, worker=False) == {}


@pytest.mark.parametrize("section", ["dynamo_config", "fp8_config"])
def test_other_sections(section: str, tmp_path: Path) -> None:
    base = {"distributed_type": "FSDP", "num_processes": 8, "mixed_precision": "fp8"}
    # fp8_override_linear_precision is three values; the launcher takes the first three letters of a text too.
    for key in sorted({*keys_of(section)} - {"fp8_override_linear_precision", "fp8_backend"}):
        assert wrong_answers(base, f"{section}.{key}", tmp_path, worker=False) == {}, key


@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_fp8_backend(precision: str, tmp_path: Path) -> None:
    base = {"distributed_type": "MULTI_GPU", "num_processes": 8, "mixed_precision": precision}
    assert wrong_answers(base, "fp8_config.fp8_backend", tmp_path) == {}


TWO: dict[str, dict[str, list[object]]] = {
    "fsdp_config": {
        "version": [1, 2],
        "sharding_strategy": ["FULL_SHARD", "NO_SHARD"],
        "offload_params": [True, False],
        "auto_wrap_policy": ["NO_WRAP", "SIZE_BASED_WRAP"],
        "backward_prefetch": ["BACKWARD_PRE", None],
        "state_dict_type": ["FULL_STATE_DICT", "SHARDED_STATE_DICT"],
        "use_orig_params": [True, False],
    },
    "dynamo_config": {"dynamo_mode": ["default", "max-autotune"], "dynamo_backend": ["no", "inductor"]},
    "fp8_config": {"fp8_margin": [0, 1], "fp8_backend": ["TE", "MSAMP"]},
}
"""By section two values for some of its keys."""


@pytest.mark.parametrize("section", TWO)
def test_the_last_of_two_spellings_counts(section: str, tmp_path: Path) -> None:
    for key, values in TWO[section].items():
        alias = next(
            name for name, spec in load_keys()["keys"][section]["keys"].items() if spec.get("alias") == key
        )
        exported = []
        for names in ((key, alias), (alias, key)):
            settings = {
                "distributed_type": "FSDP",
                "num_processes": 8,
                "mixed_precision": "fp8" if section == "fp8_config" else "bf16",
                section: dict(zip(names, values, strict=True)),
            }
            config, real = config_of(settings), launched(settings, tmp_path, worker=section == "fsdp_config")
            assert real.fails is None, real.error
            assert differences(config, real, worker=section == "fsdp_config") is None, key
            exported.append(real.env)
        assert exported[0] == exported[1]
