"""What is this file? A DeepSpeed config is told by its top-level keys, other formats by the end of their name."""

from __future__ import annotations

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

_ACCELERATE = frozenset({"compute_environment", "distributed_type"})
_FSDP = ("fsdp", "xla_fsdp", "transformer_layer_cls_to_wrap")

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

_OTHER_FORMATS = {
    ".yaml": "YAML",
    ".yml": "YAML",
    ".toml": "TOML",
}


def other_format(path: str) -> str | None:
    """Why a file with such a name is not read as JSON; None where it may be JSON."""
    name = path.lower()
    for suffix, language in _OTHER_FORMATS.items():
        if name.endswith(suffix):
            return f"dsconf reads no {language} yet"
    return None


def other_config(document: Document) -> str | None:
    """Why this is the config of something else, whoever reads it; None where it may be DeepSpeed's."""
    keys = {entry.key for entry in document.root.entries}
    if keys & STRONG:
        return None
    if keys & _ACCELERATE:
        return "it is an Accelerate config, and dsconf reads only the DeepSpeed config that it names"
    if any(key.startswith(_FSDP) for key in keys):
        return "it is an FSDP config, which dsconf does not read yet"
    return None


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
    if other_config(document) is not None or not_deepspeed(document, table) is not None:
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


FSDP_SECTION = "fsdp_config"


def other_language(path: str) -> str | None:
    return "dsconf reads no TOML" if path.lower().endswith(".toml") else None


def format_of(document: Document) -> tuple[str | None, str]:
    keys = {entry.key for entry in document.root.entries}
    if keys & {"compute_environment", "distributed_type"}:
        return "accelerate", ""
    if keys & {"output_dir", "fsdp"}:
        return "trainer", ""
    if "base_model" in keys:
        return "axolotl", ""
    return None, "no config"
