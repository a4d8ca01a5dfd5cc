"""The section `fsdp_config`."""

from __future__ import annotations

from typing import Annotated, Literal

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

Strategy = Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]


def _usual(name: str, unit: str | None = None, mistaken: tuple[str, ...] = ()) -> Key:
    """A key that is usually written with a prefix, and may be written without."""
    return Key(aliases=(f"fsdp_{name}",), shown=f"fsdp_{name}", unit=unit, mistaken=mistaken)


class Fsdp(Section):
    """PyTorch's fully sharded data parallel training. The prefix fsdp_ of a key may be left out; of both spellings the
    last one counts."""

    reader = "environment"
    read_if = "fsdp"
    wins = "last"

    version: Annotated[Literal[1, 2], _usual("version"), Reads(way="integer")] = 1
    """1 (FullyShardedDataParallel, deprecated in PyTorch) or 2 (fully_shard)."""
    sharding_strategy: Annotated[
        Strategy, _usual("sharding_strategy"), Reads(way="member", numbered=5, read_if="fsdp1")
    ] = "FULL_SHARD"
    """FSDP1: what is split over the GPUs. FSDP2 has reshard_after_forward instead."""
    reshard_after_forward: Annotated[
        bool, _usual("reshard_after_forward"), Reads(way="flag", read_if="fsdp2")
    ] = True
    """FSDP2: free the gathered parameters after the forward pass, and gather them again for the backward
    pass. FSDP1 has sharding_strategy instead."""
    offload_params: Annotated[
        bool, _usual("offload_params", mistaken=("fsdp_cpu_offload", "cpu_offload")), Reads(way="flag")
    ] = False
    """Keep the parameters, the gradients and the optimizer's work on the CPU."""
    auto_wrap_policy: Annotated[
        Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"] | None,
        _usual("auto_wrap_policy"),
        Reads(way="member"),
    ] = "NO_WRAP"
    """By what the model is cut into units that are gathered one at a time. NO_WRAP gathers the whole model
    at once."""
    transformer_layer_cls_to_wrap: Annotated[
        str | None, _usual("transformer_layer_cls_to_wrap", mistaken=("fsdp_transformer_cls_names_to_wrap",))
    ] = None
    """TRANSFORMER_BASED_WRAP: the classes that become units, with commas and no spaces between them. Left
    out, the model names them itself."""
    min_num_params: Annotated[
        int, _usual("min_num_params", "parameters"), Reads(way="integer", read_if="size_wrap")
    ] = 100_000_000
    """SIZE_BASED_WRAP: the number of parameters from which on a module becomes a unit. 0 wraps nothing."""
    backward_prefetch: Annotated[
        Literal["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"] | None,
        _usual("backward_prefetch", mistaken=("fsdp_backward_prefetch_policy",)),
        Reads(way="member", numbered=2),
    ] = "NO_PREFETCH"
    """FSDP1: when the next unit is gathered during the backward pass. FSDP2 drops it, but refuses a wrong
    word too."""
    forward_prefetch: Annotated[bool, _usual("forward_prefetch"), Reads(way="flag", read_if="fsdp1")] = False
    """FSDP1: gather the next unit during the forward pass."""
    state_dict_type: Annotated[
        Literal["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"] | None,
        _usual("state_dict_type"),
        Reads(way="member", numbered=3, unset=True),
    ] = None
    """How a checkpoint is written: gathered on one rank (FULL) or in pieces (SHARDED). Left out, it is FULL
    for FSDP1 and SHARDED for FSDP2."""
    use_orig_params: Annotated[bool, _usual("use_orig_params"), Reads(way="flag", read_if="fsdp1")] = True
    """FSDP1: show the optimizer the parameters of the model instead of flat ones. FSDP2 always does."""
    cpu_ram_efficient_loading: Annotated[bool, _usual("cpu_ram_efficient_loading"), Reads(way="flag")] = True
    """Only the first rank loads the weights of a Transformers model; the others get them from it."""
    sync_module_states: Annotated[bool, _usual("sync_module_states"), Reads(way="flag", read_if="fsdp1")] = (
        True
    )
    """FSDP1: send the weights of the first rank to all others. It may not be false together with
    cpu_ram_efficient_loading, in FSDP2 either."""
    activation_checkpointing: Annotated[
        bool, _usual("activation_checkpointing", mistaken=("fsdp_gradient_checkpointing",)), Reads(way="flag")
    ] = False
    """Compute the activations of each unit again in the backward pass instead of keeping them."""
    activation_checkpointing_offload: Annotated[
        bool, _usual("activation_checkpointing_offload"), Reads(way="flag")
    ] = False
    """FSDP2 with activation_checkpointing: keep what remains of the activations on the CPU."""
    ignored_modules: Annotated[str | None, _usual("ignored_modules")] = None
    """A regular expression: modules whose whole name matches are left alone."""
