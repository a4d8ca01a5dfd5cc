"""The keys of a config of LLaMA-Factory 1 that matter to sharding: the one place where they are declared."""

from __future__ import annotations

from typing import Annotated

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section


class Distribution(Section):
    """Who shards the model, and how. Only the keys of the one that is named are read."""

    name: Annotated[str | None, Key(), Reads(unset=True)] = None
    """fsdp2, fsdpturbo or deepspeed."""
    config_file: Annotated[str | None, Key()] = None
    """deepspeed: its JSON file."""
    reshard_after_forward: Annotated[bool, Key()] = True
    """fsdp2: free the gathered parameters after the forward pass, and gather them again for the backward
    pass."""
    offload_params: Annotated[bool, Key()] = False
    """fsdp2: keep the parameters, the gradients and the optimizer's work on the CPU."""
    pin_memory: Annotated[bool, Key()] = True
    """fsdp2 with offload_params: false lets the parameters be swapped out."""
    dcp_path: Annotated[str | None, Key()] = None
    """fsdp2: a distributed checkpoint to take the weights from."""
    ep_size: Annotated[int, Key(unit="ranks")] = 1
    """fsdpturbo: ranks that share the experts."""
    ep_dispatcher: Annotated[str, Key()] = "eager"
    """fsdpturbo: how tokens get to the experts."""
    hook_modules: Annotated[list[str] | None, Key()] = None
    """fsdpturbo: modules that are hooked."""
    fsdp_implementation: Annotated[str, Key()] = "native"
    """fsdpturbo: whose FSDP."""
    fsdp_ignored_modules: Annotated[list[str] | None, Key()] = None
    """fsdpturbo: modules that are not split."""


class LlamaFactoryConfig(Section):
    """A config of LLaMA-Factory 1: the YAML file that `llamafactory-cli` reads."""

    shared = True

    model: Annotated[str | None, Key()] = None
    """The model to train."""
    output_dir: Annotated[str | None, Key()] = None
    """Where checkpoints go."""
    dist_config: Annotated[Distribution | None, Key()] = Distribution()
    """How the model is sharded."""
    micro_batch_size: Annotated[int, Key(unit="samples")] = 1
    """Samples per GPU and forward pass."""
    global_batch_size: Annotated[int | None, Key(unit="samples")] = None
    """Samples of all GPUs per step of the optimizer."""
    learning_rate: Annotated[float, Key(), Reads(unset=True)] = 1e-4
    """The highest learning rate."""
    bf16: Annotated[bool, Key()] = True
    """Compute in bfloat16."""
    enable_activation_checkpointing: Annotated[bool, Key()] = True
    """Compute activations again in the backward pass."""
    dp_size: Annotated[int | None, Key(unit="ranks")] = None
    """Ranks with different data."""
    cp_size: Annotated[int, Key(unit="ranks")] = 1
    """Ranks that share each sequence."""
    mp_replicate_size: Annotated[int, Key(unit="ranks")] = 1
    """Groups of ranks that each hold the whole model."""
    mp_shard_size: Annotated[int | None, Key(unit="ranks")] = None
    """Ranks over which a model is split; left out, all that there are in a group."""
