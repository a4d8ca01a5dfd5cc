"""What is this file? A config is told by its top-level keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dsconf.config.coerce import types_of
from dsconf.config.tables import Spec
from dsconf.document.node import Document, Kind

STRONG = frozenset(
    {
        "zero_optimization",
        "train_micro_batch_size_per_gpu",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
    }
)
"""Keys that nothing but DeepSpeed has."""

_KINDS: dict[str, tuple[Kind, ...]] = {
    "object": ("object",),
    "int": ("number",),
    "float": ("number",),
    "bool": ("boolean",),
    "str": ("string",),
    "list": ("array",),
}

_MOST_MISTAKES = 10
"""Nobody misspells more keys than that."""

_OTHER_LANGUAGES = {".toml": "TOML"}
FSDP_SECTION = "fsdp_config"
"""What stands for a file that is nothing but that section of TrainingArguments."""
NO_KEYS = "it has no keys of DeepSpeed, Accelerate, Trainer or Axolotl that dsconf knows"
"""Why most files are passed over."""
_ARGUMENTS = frozenset(
    {"output_dir", "per_device_train_batch_size", "num_train_epochs", "learning_rate", "max_steps"}
)
_FSDP_KEYS = frozenset(
    {
        "transformer_layer_cls_to_wrap", "min_num_params", "backward_prefetch", "forward_prefetch", "use_orig_params",
        "sync_module_states", "cpu_ram_efficient_loading", "auto_wrap_policy", "state_dict_type", "offload_params",
        "reshard_after_forward", "activation_checkpointing", "sharding_strategy", "limit_all_gathers", "cpu_offload",
        "version", "xla", "xla_fsdp_v2", "xla_fsdp_settings", "xla_fsdp_grad_ckpt", "gradient_checkpointing",
        "activation_checkpointing_offload", "ignored_modules",
    }
)  # fmt: skip
"""Keys of a section for FSDP, which may have the prefix fsdp_."""


_TOLD_BY = frozenset(
    {
        "distributed_type", "compute_environment", "dist_config", "base_model", "dp_shard_size",
        "transformer_layer_cls_to_wrap", "cpu_ram_efficient_loading",
    }
)  # fmt: skip
"""Keys that tell a format, but for those with fsdp or deepspeed in their names."""


def mentions_config(text: str) -> bool:
    """Whether a YAML text may be or hold a config, by what looks like a key: much cheaper than to read it.

    Only a text of something else may be taken for one.
    """
    names = "|".join(sorted(_TOLD_BY | STRONG | _ARGUMENTS))
    key = rf"(?:[\w@.-]*(?:fsdp|deepspeed)[\w@.-]*|ds|ds_[\w@.-]*|{names})"
    return re.search(rf"""(?<![^\s{{,"'\ufeff]){key}["']?\s*:""", text, re.IGNORECASE) is not None


def other_language(path: str) -> str | None:
    """Why a file with such a name is not read; None where it may be a config."""
    for suffix, language in _OTHER_LANGUAGES.items():
        if path.lower().endswith(suffix):
            return f"dsconf reads no {language} yet"
    return None


def format_of(document: Document) -> tuple[str | None, str]:
    """The format of a config, told by its keys and what kind of values they have; None with the reason for none.

    `FSDP_SECTION` is a file that holds nothing but such a section.
    """
    members = document.root.members()
    kinds: dict[str, Kind] = {key: entry.node.kind for key, entry in members.items()}
    if kinds.keys() & STRONG:
        return "deepspeed", ""
    if _is_accelerate(kinds):
        return "accelerate", ""
    if kinds.get("dist_config") == "object":
        return "llamafactory", ""
    sharded = (
        kinds.get("fsdp") in ("boolean", "string", "array")
        or kinds.get("fsdp_config") in ("object", "string")
        or kinds.get("deepspeed") in ("object", "string", "unknown")
    )
    if "base_model" in kinds:
        if sharded or {"fsdp_version", "dp_shard_size"} & kinds.keys():
            return "axolotl", ""
        return None, "an Axolotl config without settings for FSDP or DeepSpeed"
    if {"fsdp", "fsdp_config"} <= kinds.keys() and kinds["fsdp"] != "object":
        return "trainer", ""
    if _ARGUMENTS & kinds.keys():
        if sharded:
            return "trainer", ""
        return None, "it has no settings for FSDP or DeepSpeed"
    if kinds and all(_is_fsdp_key(key) for key in kinds) and any(_is_telling(key) for key in kinds):
        return FSDP_SECTION, ""
    return None, NO_KEYS


def _is_accelerate(kinds: Mapping[str, Kind]) -> bool:
    """Whether `accelerate launch` is to read the file: it says what is launched, or for whom."""
    return "distributed_type" in kinds or "compute_environment" in kinds


def _is_fsdp_key(key: str) -> bool:
    return key.startswith("fsdp_") or key in _FSDP_KEYS


def _is_telling(key: str) -> bool:
    """Whether hardly anything but FSDP has such a key."""
    return key.startswith(("fsdp_", "xla_fsdp")) or key in (
        "transformer_layer_cls_to_wrap",
        "cpu_ram_efficient_loading",
    )


def not_deepspeed(document: Document, table: Spec) -> str | None:
    """Why this is no DeepSpeed config; None where it is one.

    One has a key that only DeepSpeed has at its top level, two that DeepSpeed has too, or nothing else. A file most
    of whose keys are foreign is that of a trainer which takes DeepSpeed's keys among its own.
    """
    keys = {entry.key for entry in document.root.entries}
    known = keys & set(table["keys"])
    if not (keys & STRONG or len(known) >= 2 or (known and known == keys)):
        return "no DeepSpeed config: it has none of DeepSpeed's keys (--consumer says who reads it)"
    if len(keys - known) > max(_MOST_MISTAKES, 2 * len(known)):
        return "another trainer's config: most of its keys are not DeepSpeed's (--consumer says who reads it)"
    return None


def shaped_like_deepspeed(document: Document, table: Spec) -> bool:
    """Whether an object that nobody named is a DeepSpeed config.

    It has a key that only DeepSpeed has, or two of DeepSpeed's with such values as they have there: a trainer's
    `"fp16": true` is not DeepSpeed's section.
    """
    if format_of(document)[0] not in (None, "deepspeed") or not_deepspeed(document, table) is not None:
        return False
    fitting = 0
    for entry in document.root.entries:
        if entry.key in STRONG:
            return True
        spec = table["keys"].get(entry.key)
        if spec is not None:
            kinds = {kind for name in types_of(spec) for kind in _KINDS.get(name, ())}
            fitting += entry.node.kind in kinds or entry.node.kind == "unknown"
    return fitting >= 2
