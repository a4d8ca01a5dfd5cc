"""What the FSDP plugin ends up with that Trainer (transformers 5.24) builds of its arguments."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.effective import Config, Facts
from dsconf.document.node import UNKNOWN
from dsconf.formats.row import Row
from dsconf.formats.trainer.facts import FACTS

_FLAGS = ("cpu_ram_efficient_loading", "activation_checkpointing")
_FSDP1_FLAGS = ("forward_prefetch", "use_orig_params", "sync_module_states")


def plugin(config: Config) -> list[Row]:
    """The fields of the plugin, for arguments that get as far as that; empty where FSDP is not known to be on."""
    facts = Facts(config, FACTS)
    return list(_fields(config, facts)) if facts.value("fsdp_on") is True else []


def _fields(config: Config, facts: Facts) -> Iterator[Row]:
    version = facts.value("fsdp_version")
    yield Row("fsdp_version", version, _source(config, "version"))
    if version == 1:
        why = "FSDP_SHARDING_STRATEGY of the environment, else this"
        yield Row("sharding_strategy", "FULL_SHARD", why)
    elif version == 2:
        yield _reshard(config, facts)
    yield Row("cpu_offload", facts.value("fsdp_offload"), _source(config, "cpu_offload", facts, "offload"))
    policy = facts.value("wrap_policy")
    yield Row("auto_wrap_policy", policy, _source(config, "auto_wrap_policy"))
    if policy == "TRANSFORMER_BASED_WRAP":
        name = "transformer_layer_cls_to_wrap"
        names = config.value(f"fsdp_config.{name}")
        yield Row(
            "transformer_cls_names_to_wrap",
            [names] if isinstance(names, str) else names,
            _source(config, name),
        )
    elif policy == "SIZE_BASED_WRAP":
        yield Row("min_num_params", facts.value("min_num_params"), _source(config, "min_num_params"))
    yield Row("state_dict_type", facts.value("state_dict_type"), _source(config, "state_dict_type"))
    for name in (*_FLAGS, *(_FSDP1_FLAGS if version == 1 else ())):
        yield Row(name, config.value(f"fsdp_config.{name}"), _source(config, name))


def _reshard(config: Config, facts: Facts) -> Row:
    """`reshard_after_forward` of FSDP2: as written, else by a strategy among the words of `fsdp`."""
    name = "reshard_after_forward"
    value = config.value(f"fsdp_config.{name}")
    words = facts.value("fsdp_words")
    written = config.present(f"fsdp_config.{name}")
    if not written and isinstance(words, list) and "shard_grad_op" in words:
        value = False
    elif not written and words is UNKNOWN:
        value = UNKNOWN
    return Row(name, value, _source(config, name, facts, "shard_grad_op", "full_shard"))


def _source(config: Config, name: str, facts: Facts | None = None, *words: str) -> str:
    """The key that a field comes from: its own, or `fsdp` where that has one of the words."""
    if config.present(f"fsdp_config.{name}"):
        return f"fsdp_config.{name}"
    given = facts.value("fsdp_words") if facts else ()
    return "fsdp" if isinstance(given, list) and {*words} & {*given} else "default"
