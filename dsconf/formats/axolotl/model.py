"""The keys of an Axolotl config that matter to sharding: the one place where they are declared.

There are hundreds of others, so that nothing is known of a key that is not declared here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

StateDict = Literal["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]


def _usual(name: str, unit: str | None = None, mistaken: tuple[str, ...] = ()) -> Key:
    """A key that may be written with a prefix, which is deprecated."""
    return Key(aliases=(f"fsdp_{name}",), unit=unit, mistaken=mistaken)


class Fsdp(Section):
    """How FSDP works. The prefix fsdp_ of a key is deprecated."""

    reader = "lax"

    version: Annotated[int | None, _usual("version")] = None
    """The top-level key fsdp_version says this: 2 (fully_shard) or 1 (FullyShardedDataParallel), 1 where
    neither says it."""
    reshard_after_forward: Annotated[bool | None, _usual("reshard_after_forward")] = True
    """FSDP2: free the gathered parameters after the forward pass, and gather them again for the backward
    pass."""
    offload_params: Annotated[
        bool | None, _usual("offload_params", mistaken=("cpu_offload", "fsdp_cpu_offload"))
    ] = False
    """Keep the parameters, the gradients and the optimizer's work on the CPU."""
    cpu_offload_pin_memory: Annotated[bool | None, _usual("cpu_offload_pin_memory")] = True
    """FSDP2 with offload_params: false lets the parameters be swapped out."""
    auto_wrap_policy: Annotated[
        Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"] | None, _usual("auto_wrap_policy")
    ] = "TRANSFORMER_BASED_WRAP"
    """By what the model is cut into units that are gathered one at a time."""
    transformer_layer_cls_to_wrap: Annotated[
        str | None,
        _usual(
            "transformer_layer_cls_to_wrap",
            mistaken=("transformer_cls_names_to_wrap", "fsdp_transformer_cls_names_to_wrap"),
        ),
    ] = None
    """TRANSFORMER_BASED_WRAP: the classes that become units, with commas and no spaces between them. Left
    out, the model names them itself."""
    min_num_params: Annotated[int | None, _usual("min_num_params", "parameters")] = Field(None, ge=1)
    """SIZE_BASED_WRAP, which needs it: the number of parameters from which on a module becomes a unit."""
    state_dict_type: Annotated[StateDict | None, _usual("state_dict_type")] = "FULL_STATE_DICT"
    """How a checkpoint is written: gathered on one rank (FULL) or in pieces (SHARDED)."""
    final_state_dict_type: Annotated[StateDict | None, _usual("final_state_dict_type")] = None
    """How the model is written at the end, where that differs."""
    cpu_ram_efficient_loading: Annotated[bool | None, _usual("cpu_ram_efficient_loading")] = False
    """Only the first rank loads the weights; the others get them from it."""
    activation_checkpointing: Annotated[
        bool | None,
        _usual(
            "activation_checkpointing", mistaken=("gradient_checkpointing", "fsdp_gradient_checkpointing")
        ),
    ] = False
    """Compute the activations of each unit again in the backward pass instead of keeping them."""
    use_orig_params: Annotated[bool | None, _usual("use_orig_params")] = True
    """FSDP1: show the optimizer the parameters of the model instead of flat ones. FSDP2 always does."""
    sync_module_states: Annotated[bool | None, _usual("sync_module_states")] = True
    """FSDP1: send the weights of the first rank to all others."""
    mixed_precision_policy: Annotated[str | None, _usual("mixed_precision_policy")] = None
    """The number format of FSDP."""


class AxolotlConfig(Section):
    """An Axolotl config: the YAML file that `axolotl train` reads."""

    reader = "lax"
    shared = True

    base_model: Annotated[str | None, Key()] = None
    """The model to train."""
    deepspeed: Annotated[dict[str, Any] | str | None, Key(), Reads(unset=True)] = None
    """A DeepSpeed config, or the name of its JSON file: turns DeepSpeed on."""
    fsdp: Annotated[list[str] | None, Key(status="deprecated", replacement="fsdp_config")] = None
    """The old way to turn FSDP on: full_shard, auto_wrap, offload."""
    fsdp_config: Annotated[Fsdp | None, Key()] = Fsdp()
    """How FSDP works; a section with content turns it on. Keys that are not declared are dropped."""
    fsdp_version: Annotated[int | None, Key()] = None
    """2 (fully_shard) or 1 (FullyShardedDataParallel, deprecated), which it is where nothing says it."""
    fsdp_final_state_dict_type: Annotated[
        StateDict | None, Key(status="deprecated", replacement="fsdp_config.final_state_dict_type")
    ] = None
    """Now a key of fsdp_config."""

    dp_shard_size: Annotated[int | None, Key(unit="ranks")] = None
    """Ranks over which FSDP2 splits a model; left out, all that are there."""
    dp_replicate_size: Annotated[int | None, Key(unit="ranks")] = None
    """Groups of ranks that each hold the whole model, and average their gradients."""
    tensor_parallel_size: Annotated[int | None, Key(unit="ranks")] = None
    """Ranks that compute each layer together."""
    context_parallel_size: Annotated[int | None, Key(aliases=("sequence_parallel_degree",), unit="ranks")] = (
        None
    )
    """Ranks that share each sequence."""

    micro_batch_size: Annotated[int | None, Key(unit="samples")] = 1
    """Samples per GPU and forward pass."""
    gradient_accumulation_steps: Annotated[int | None, Key()] = 1
    """Forward passes per step of the optimizer."""
    optimizer: Annotated[str | None, Key()] = "adamw_torch_fused"
    """The optimizer."""
    optim_args: Annotated[dict[str, Any] | str | None, Key()] = None
    """More arguments of the optimizer."""
    learning_rate: Annotated[str | float | None, Key()] = None
    """The highest learning rate."""
    weight_decay: Annotated[Any, Key()] = 0.0
    """Weight decay."""
    adam_beta1: Annotated[Any, Key()] = None
    """Adam's decay of the first moment."""
    adam_beta2: Annotated[Any, Key()] = None
    """Adam's decay of the second moment."""
    adam_epsilon: Annotated[Any, Key()] = None
    """What Adam adds to the root."""
    lr_scheduler: Annotated[Any, Key()] = "cosine"
    """The course of the learning rate: a schedule of transformers, one_cycle or rex."""
    lr_scheduler_kwargs: Annotated[Any, Key()] = None
    """More arguments of the schedule."""
    cosine_min_lr_ratio: Annotated[Any, Key()] = None
    """The part of the highest rate that cosine ends with."""
    warmup_steps: Annotated[Any, Key(unit="steps")] = None
    """Steps of warm-up; left out, 3% of all steps, and 100 at most."""
    warmup_ratio: Annotated[Any, Key()] = None
    """The part of all steps that are warm-up, where warmup_steps does not say it."""
    num_epochs: Annotated[Any, Key()] = 1.0
    """Rounds through the data."""
    max_steps: Annotated[Any, Key(unit="steps")] = None
    """Steps of the optimizer at most."""
    accelerator_config: Annotated[dict[str, Any] | None, Key()] = None
    """Settings of Accelerate that no other key has."""
    max_grad_norm: Annotated[float | None, Key()] = None
    """The norm that gradients are clipped to."""
    bf16: Annotated[Literal["auto"] | bool | str | None, Key(), Reads(unset=True)] = "auto"
    """Compute in bfloat16; "auto" where the GPU can."""
    fp16: Annotated[bool | None, Key()] = None
    """Compute in float16, with loss scaling."""
    gradient_checkpointing: Annotated[bool | str | None, Key()] = False
    """Compute activations again in the backward pass: true, false, offload or offload_disk."""
    adapter: Annotated[str | None, Key()] = None
    """lora or qlora for training of adapters only."""
    load_in_8bit: Annotated[bool | None, Key()] = False
    """Load the weights in 8 bits."""
    load_in_4bit: Annotated[bool | None, Key()] = False
    """Load the weights in 4 bits."""
