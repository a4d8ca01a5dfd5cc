"""What `accelerate launch` hands on to the workers: environment variables, each with the key that it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.effective import Config
from dsconf.config.tables import spec_at
from dsconf.formats.accelerate.live import has_layout, launcher
from dsconf.formats.row import Row

_FSDP = {
    "version": "VERSION",
    "sharding_strategy": "SHARDING_STRATEGY",
    "reshard_after_forward": "RESHARD_AFTER_FORWARD",
    "offload_params": "OFFLOAD_PARAMS",
    "min_num_params": "MIN_NUM_PARAMS",
    "auto_wrap_policy": "AUTO_WRAP_POLICY",
    "transformer_layer_cls_to_wrap": "TRANSFORMER_CLS_TO_WRAP",
    "backward_prefetch": "BACKWARD_PREFETCH",
    "state_dict_type": "STATE_DICT_TYPE",
    "forward_prefetch": "FORWARD_PREFETCH",
    "use_orig_params": "USE_ORIG_PARAMS",
    "cpu_ram_efficient_loading": "CPU_RAM_EFFICIENT_LOADING",
    "sync_module_states": "SYNC_MODULE_STATES",
    "activation_checkpointing": "ACTIVATION_CHECKPOINTING",
    "activation_checkpointing_offload": "ACTIVATION_CHECKPOINTING_OFFLOAD",
    "ignored_modules": "IGNORED_MODULES",
}
_FSDP_IN_LOWER_CASE = {
    "reshard_after_forward",
    "offload_params",
    "forward_prefetch",
    "use_orig_params",
    "cpu_ram_efficient_loading",
    "sync_module_states",
    "activation_checkpointing",
    "activation_checkpointing_offload",
}
_FSDP_IF_GIVEN = {
    "auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "backward_prefetch",
    "state_dict_type",
    "ignored_modules",
}
_DEEPSPEED = {
    "zero_stage": "DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "GRADIENT_CLIPPING",
    "offload_optimizer_device": "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "DEEPSPEED_MOE_LAYER_CLS_NAMES",
}
_DEEPSPEED_IN_LOWER_CASE = {
    "gradient_clipping",
    "offload_optimizer_device",
    "offload_param_device",
    "zero3_init_flag",
    "zero3_save_16bit_model",
}
_LAYOUT = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "cp_backend", "sp_size", "sp_backend")
_LAYOUT_CP = ("cp_comm_strategy",)
_LAYOUT_SP = ("sp_seq_length", "sp_seq_length_is_variable", "sp_attn_implementation")
_DYNAMO = ("dynamo_mode", "dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation")
_FP8_OVERRIDES = ("FPROP", "DGRAD", "WGRAD")


def environment(config: Config) -> dict[str, str]:
    """The variables that the launcher sets, for a file that gets as far as that."""
    return {row.name: str(row.value) for row in exported(config)}


def exported(config: Config) -> Iterator[Row]:
    """The variables that the launcher sets, each with the key that it comes from."""
    distributed = config.raw("distributed_type")
    starter = launcher(distributed)
    if starter == "tpu":
        return
    if starter == "simple":
        yield _row(config, "ACCELERATE_USE_CPU", "use_cpu")
    yield from _general(config, dynamo=starter != "deepspeed")
    if distributed == "FSDP":
        yield Row("ACCELERATE_USE_FSDP", "true", "distributed_type")
        yield from _fsdp(config)
    elif distributed == "MEGATRON_LM":
        yield Row("ACCELERATE_USE_MEGATRON_LM", "true", "distributed_type")
    elif distributed == "DEEPSPEED":
        yield from _deepspeed(config)
    if starter != "simple" and has_layout(config.raw("parallelism_config")):
        yield Row("ACCELERATE_USE_PARALLELISM_CONFIG", "true", "parallelism_config")
        yield from _layout(config)


def _row(config: Config, variable: str, path: str, *, lower: bool = False) -> Row:
    """A variable with the text of a key, or of what the launcher has without it."""
    given = config.present(path)
    text = str(config.shown(path) if given else _default(config, path))
    return Row(variable, text.lower() if lower else text, path if given else "default")


def _given(config: Config, path: str) -> bool:
    return config.shown(path) is not None


def _general(config: Config, *, dynamo: bool) -> Iterator[Row]:
    if config.raw("debug"):
        yield Row("ACCELERATE_DEBUG_MODE", "true", "debug")
    yield _precision(config)
    if str(config.raw("mixed_precision")).lower() == "fp8":
        yield from _fp8(config)
    if not dynamo:
        return
    old = config.raw("dynamo_backend")
    if config.present("dynamo_backend"):  # the loader makes a section of it, in place of what is written
        yield Row("ACCELERATE_DYNAMO_BACKEND", str(old or "no").upper(), "dynamo_backend")
        for name in _DYNAMO:
            yield Row(f"ACCELERATE_{name.upper()}", str(_default(config, f"dynamo_config.{name}")), "default")
        return
    backend = "dynamo_config.dynamo_backend"
    row = _row(config, "ACCELERATE_DYNAMO_BACKEND", backend) if _given(config, backend) else None
    yield (
        row._replace(value=str(row.value).upper())
        if row
        else Row("ACCELERATE_DYNAMO_BACKEND", "NO", "default")
    )
    for name in _DYNAMO:
        yield _row(config, f"ACCELERATE_{name.upper()}", f"dynamo_config.{name}")


def _default(config: Config, path: str) -> object:
    return spec_at(config.table, path)[1].get("default")


def _precision(config: Config) -> Row:
    name = "ACCELERATE_MIXED_PRECISION"
    if _given(config, "mixed_precision"):
        return _row(config, name, "mixed_precision", lower=True)
    if not config.present("mixed_precision") and config.raw("fp16"):
        return Row(name, "fp16", "fp16")
    return Row(name, "no", "default")


def _fp8(config: Config) -> Iterator[Row]:
    for name in config.table["keys"]["fp8_config"]["keys"]:
        path = f"fp8_config.{name}"
        if not name.startswith("fp8") or (config.raw(path) is None and _default(config, path) is None):
            continue
        row = _row(config, f"ACCELERATE_{name.upper()}", path)
        if name == "fp8_override_linear_precision":
            values = config.raw(path) if config.present(path) else _default(config, path)
            if isinstance(values, list):
                for part, value in zip(_FP8_OVERRIDES, values, strict=False):
                    yield Row(f"ACCELERATE_FP8_OVERRIDE_{part}", str(value), row.source)
        elif row.source == "default" or _given(config, path):
            yield row


def _fsdp(config: Config) -> Iterator[Row]:
    for name, variable in _FSDP.items():
        path = f"fsdp_config.{name}"
        if name not in _FSDP_IF_GIVEN or _given(config, path):
            yield _row(config, f"FSDP_{variable}", path, lower=name in _FSDP_IN_LOWER_CASE)


def _deepspeed(config: Config) -> Iterator[Row]:
    section = config.raw("deepspeed_config")
    fields = list(section) if isinstance(section, dict) else []
    if _given(config, "mixed_precision") or (not config.present("mixed_precision") and config.raw("fp16")):
        fields.append("mixed_precision")
    yield Row("ACCELERATE_CONFIG_DS_FIELDS", ",".join(fields).lower(), "deepspeed_config")
    yield Row("ACCELERATE_USE_DEEPSPEED", "true", "distributed_type")
    for name, variable in _DEEPSPEED.items():
        path = f"deepspeed_config.{name}"
        if _given(config, path):
            yield _row(config, f"ACCELERATE_{variable}", path, lower=name in _DEEPSPEED_IN_LOWER_CASE)


def _layout(config: Config) -> Iterator[Row]:
    names = list(_LAYOUT)
    for size, more in (("cp_size", _LAYOUT_CP), ("sp_size", _LAYOUT_SP)):
        value = config.raw(f"parallelism_config.parallelism_config_{size}")
        if isinstance(value, int | float) and value > 1:
            names += more
    for name in names:
        path = f"parallelism_config.parallelism_config_{name}"
        yield _row(config, f"PARALLELISM_CONFIG_{name.upper()}", path)
