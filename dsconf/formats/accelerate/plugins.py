"""What the plugins in the workers end up with: the arguments of their classes, each with where its value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsconf.config.effective import Config, Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.accelerate.facts import FACTS, SIZES
from dsconf.formats.row import Row

_LAYOUT = "parallelism_config.parallelism_config_"
_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}
_FSDP1_ONLY = ("use_orig_params", "forward_prefetch")
_FLAGS = {
    "cpu_offload": "offload_params",
    "activation_checkpointing": "activation_checkpointing",
    "activation_checkpointing_offload": "activation_checkpointing_offload",
    "cpu_ram_efficient_loading": "cpu_ram_efficient_loading",
    "ignored_modules": "ignored_modules",
}
_DEEPSPEED = (
    "zero_stage",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "offload_optimizer_device",
    "offload_param_device",
    "zero3_save_16bit_model",
)


def plugin(config: Config) -> list[Row]:
    """The fields of the plugin of the section that counts, for a file that gets as far as that; UNKNOWN what isn't
    known. Empty where nothing is in use."""
    facts = Facts(config, FACTS)
    section = facts.value("live_section")
    if section == "fsdp_config":
        return list(_fsdp(config, facts))
    return list(_deepspeed(config, facts)) if section == "deepspeed_config" else []


def parallelism(config: Config) -> list[Row]:
    """The fields of the ParallelismConfig, empty without one."""
    facts = Facts(config, FACTS)
    if facts.value("parallelism_on") is not True:
        return []
    rows = [_row(config, path.removeprefix(_LAYOUT), path) for path in SIZES]
    sizes = {row.name: row.value for row in rows}
    names = ["cp_backend", "sp_backend"]
    names += ["cp_comm_strategy"] if _above_one(sizes["cp_size"]) else []
    names += ["sp_seq_length_is_variable", "sp_attn_implementation"] if _above_one(sizes["sp_size"]) else []
    rows += [_row(config, name, f"{_LAYOUT}{name}") for name in names]
    return [*rows, Row("total_size", facts.value("mesh_product"), "the product of all sizes")]


def _above_one(size: object) -> bool:
    return isinstance(size, int) and size > 1


def _row(config: Config, name: str, path: str) -> Row:
    return Row(name, config.value(path), _source(config, path))


def _source(config: Config, path: str) -> str:
    return path if config.present(path) else "default"


def _fsdp(config: Config, facts: Facts) -> Iterator[Row]:
    version = facts.value("fsdp_version")

    def row(name: str, key: str | None = None) -> Row:
        return _row(config, name, f"fsdp_config.{key or name}")

    yield row("fsdp_version", "version")
    if version not in (1, 2):
        return
    if version == 1:
        yield row("sharding_strategy")
        yield Row("reshard_after_forward", None, "FSDP1 goes by sharding_strategy")
    else:
        yield Row("sharding_strategy", None, "FSDP2 goes by reshard_after_forward")
        yield row("reshard_after_forward")
    for name, key in _FLAGS.items():
        yield row(name, key)
    yield from _wrapping(row)
    state = facts.value("state_dict_type")
    yield row("state_dict_type")._replace(value=state)
    prefetch = row("backward_prefetch")
    if version == 2:
        for name in (*_FSDP1_ONLY, "backward_prefetch", "sync_module_states"):
            yield Row(name, None, "FSDP2 has no such setting")
    else:
        yield from (row(name) for name in _FSDP1_ONLY)
        yield prefetch._replace(value=None) if prefetch.value == "NO_PREFETCH" else prefetch
        forced = facts.value("ram_efficient") is True
        sync = row("sync_module_states")
        yield sync._replace(value=True, source="cpu_ram_efficient_loading") if forced else sync
    yield _precision(config, facts)


def _wrapping(row: Callable[..., Row]) -> Iterator[Row]:
    policy = row("auto_wrap_policy")
    yield policy._replace(value=None) if policy.value == "NO_WRAP" else policy
    if policy.value == "TRANSFORMER_BASED_WRAP":
        names = row("transformer_cls_names_to_wrap", "transformer_layer_cls_to_wrap")
        yield names._replace(value=names.value.split(",")) if isinstance(names.value, str) else names
    elif policy.value == "SIZE_BASED_WRAP":
        yield row("min_num_params")


def _precision(config: Config, facts: Facts) -> Row:
    precision = facts.value("mixed_precision")
    dtype = _DTYPES.get(precision) if isinstance(precision, str) else UNKNOWN
    return Row("mixed_precision_policy", dtype, _source(config, "mixed_precision"))


def _deepspeed(config: Config, facts: Facts) -> Iterator[Row]:
    path = facts.value("ds_file")
    if path is not None:
        yield Row("hf_ds_config", path, "deepspeed_config.deepspeed_config_file")
        return
    for name in _DEEPSPEED:
        yield _row(config, name, f"deepspeed_config.{name}")
    for name in ("offload_optimizer_nvme_path", "offload_param_nvme_path"):
        yield Row(name, "none", "the launcher does not hand it on")
    stage = config.value("deepspeed_config.zero_stage")
    flag = "deepspeed_config.zero3_init_flag"
    if stage is UNKNOWN:
        yield Row("zero3_init_flag", UNKNOWN, "deepspeed_config.zero_stage")
    elif stage != 3 or config.raw(flag) is None:
        yield Row("zero3_init_flag", stage == 3, "deepspeed_config.zero_stage")
    else:
        yield _row(config, "zero3_init_flag", flag)
