"""The keys of TrainingArguments (transformers 5.24) that matter to sharding: the one place where they are declared.

Arguments of other dataclasses stand in the same file, so that nothing is known of a key that is not declared here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section


def _usual(name: str, unit: str | None = None, mistaken: tuple[str, ...] = ()) -> Key:
    """A key that may be written with a prefix."""
    return Key(aliases=(f"fsdp_{name}",), unit=unit, mistaken=mistaken)


class Fsdp(Section):
    """What `fsdp: true` turns on, in detail. Each key may have the prefix fsdp_, and then wins over one without."""

    reader = "trainer"
    read_if = "fsdp"
    wins = "alias"

    version: Annotated[Literal[1, 2], _usual("version"), Reads(way="version")] = 2
    """2 (fully_shard) or 1 (FullyShardedDataParallel, deprecated)."""
    reshard_after_forward: Annotated[
        bool, _usual("reshard_after_forward"), Reads(way="flag", read_if="fsdp2")
    ] = True
    """FSDP2: free the gathered parameters after the forward pass, and gather them again for the backward
    pass. FSDP1 does not read it."""
    cpu_offload: Annotated[
        bool,
        _usual("cpu_offload", mistaken=("offload_params", "fsdp_offload_params")),
        Reads(way="truth"),
    ] = False
    """Keep the parameters, the gradients and the optimizer's work on the CPU. Any text counts as true."""
    auto_wrap_policy: Annotated[
        Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"],
        _usual("auto_wrap_policy"),
        Reads(way="word"),
    ] = "TRANSFORMER_BASED_WRAP"
    """By what the model is cut into units that are gathered one at a time, in capitals. NO_WRAP gathers the
    whole model at once."""
    transformer_layer_cls_to_wrap: Annotated[
        list[str] | str | None,
        _usual(
            "transformer_layer_cls_to_wrap",
            mistaken=("transformer_cls_names_to_wrap", "fsdp_transformer_cls_names_to_wrap"),
        ),
        Reads(way="names", read_if="layer_wrap"),
    ] = None
    """TRANSFORMER_BASED_WRAP: the classes that become units. Left out, the model names them itself."""
    min_num_params: Annotated[
        int, _usual("min_num_params", "parameters"), Reads(way="count", read_if="size_wrap")
    ] = 0
    """SIZE_BASED_WRAP: the number of parameters from which on a module becomes a unit. 0 wraps nothing."""
    state_dict_type: Annotated[
        Literal["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"] | None,
        _usual("state_dict_type"),
        Reads(way="shards", numbered=3),
    ] = "FULL_STATE_DICT"
    """How a checkpoint is written: gathered on one rank (FULL) or in pieces (SHARDED)."""
    cpu_ram_efficient_loading: Annotated[bool, _usual("cpu_ram_efficient_loading"), Reads(way="flag")] = False
    """Only the first rank loads the weights; the others get them from it."""
    activation_checkpointing: Annotated[
        bool,
        _usual(
            "activation_checkpointing", mistaken=("gradient_checkpointing", "fsdp_gradient_checkpointing")
        ),
        Reads(way="flag"),
    ] = False
    """Compute the activations of each unit again in the backward pass instead of keeping them."""
    backward_prefetch: Annotated[
        Literal["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"],
        _usual("backward_prefetch", mistaken=("backward_prefetch_policy", "fsdp_backward_prefetch_policy")),
        Reads(way="prefetch", numbered=2, read_if="fsdp1"),
    ] = "NO_PREFETCH"
    """FSDP1: when the next unit is gathered during the backward pass."""
    forward_prefetch: Annotated[bool, _usual("forward_prefetch"), Reads(way="flag", read_if="fsdp1")] = False
    """FSDP1: gather the next unit during the forward pass."""
    use_orig_params: Annotated[bool, _usual("use_orig_params"), Reads(way="flag", read_if="fsdp1")] = True
    """FSDP1: show the optimizer the parameters of the model instead of flat ones. FSDP2 always does."""
    sync_module_states: Annotated[bool, _usual("sync_module_states"), Reads(way="flag", read_if="fsdp1")] = (
        True
    )
    """FSDP1: send the weights of the first rank to all others."""
    limit_all_gathers: Annotated[bool, _usual("limit_all_gathers"), Reads(way="flag", read_if="fsdp1")] = True
    """FSDP1: wait with gathering while the memory of earlier units is not free."""
    xla: Annotated[bool, _usual("xla"), Reads(way="truth")] = False
    """Use FSDP of PyTorch/XLA instead; no other key but the three below is read then."""
    xla_fsdp_settings: Annotated[dict[str, Any] | None, _usual("xla_fsdp_settings")] = Field({})
    """The settings of FSDP of PyTorch/XLA."""
    xla_fsdp_grad_ckpt: Annotated[bool, _usual("xla_fsdp_grad_ckpt"), Reads(way="truth")] = False
    """XLA: compute the activations of each unit again in the backward pass."""
    xla_fsdp_v2: Annotated[bool, _usual("xla_fsdp_v2"), Reads(way="truth")] = False
    """XLA: use its newer implementation, through SPMD."""


class TrainerConfig(Section):
    """Training arguments of transformers: a file for HfArgumentParser, or the keywords of TrainingArguments."""

    reader = "trainer"
    shared = True

    output_dir: Annotated[str | None, Key()] = None
    """Where checkpoints go."""
    fsdp: Annotated[bool | str | list[str] | None, Key()] = None
    """true turns FSDP on. Words such as full_shard, as text or in a list, are deprecated."""
    fsdp_config: Annotated[Fsdp | str | None, Key()] = Fsdp()
    """How FSDP works, here or in a JSON file of this name. Without `fsdp` nothing reads it."""
    deepspeed: Annotated[dict[str, Any] | str | None, Key(), Reads(unset=True)] = None
    """A DeepSpeed config, or the name of its JSON file: turns DeepSpeed on."""

    per_device_train_batch_size: Annotated[int, Key(unit="samples")] = 8
    """Samples per GPU and forward pass."""
    gradient_accumulation_steps: Annotated[int, Key()] = 1
    """Forward passes per step of the optimizer."""
    auto_find_batch_size: Annotated[bool, Key()] = False
    """Halve the batch size until it fits."""
    num_train_epochs: Annotated[float, Key()] = 3.0
    """Rounds through the data."""
    max_steps: Annotated[int, Key(unit="steps")] = -1
    """Steps of the optimizer, instead of num_train_epochs; -1 for none."""

    learning_rate: Annotated[float, Key()] = 5e-5
    """The highest learning rate."""
    optim: Annotated[str, Key()] = "adamw_torch_fused"
    """The optimizer."""
    optim_args: Annotated[str | None, Key()] = None
    """More arguments of the optimizer: name=value,name=value."""
    lr_scheduler_type: Annotated[str, Key()] = "linear"
    """The course of the learning rate."""
    lr_scheduler_kwargs: Annotated[dict[str, Any] | str | None, Key()] = None
    """More arguments of the schedule."""
    warmup_steps: Annotated[float, Key(unit="steps")] = 0
    """Steps of warm-up; below 1 a part of all steps."""
    weight_decay: Annotated[float, Key()] = 0.0
    """Weight decay."""
    adam_beta1: Annotated[float, Key()] = 0.9
    """Adam's decay of the first moment."""
    adam_beta2: Annotated[float, Key()] = 0.999
    """Adam's decay of the second moment."""
    adam_epsilon: Annotated[float, Key()] = 1e-8
    """What Adam adds to the root."""
    max_grad_norm: Annotated[float, Key()] = 1.0
    """The norm that gradients are clipped to."""

    bf16: Annotated[bool, Key()] = False
    """Compute in bfloat16."""
    fp16: Annotated[bool, Key()] = False
    """Compute in float16, with loss scaling."""
    bf16_full_eval: Annotated[bool, Key()] = False
    """Evaluate with weights in bfloat16."""
    fp16_full_eval: Annotated[bool, Key()] = False
    """Evaluate with weights in float16."""
    activation_checkpointing: Annotated[bool | None, Key(aliases=("gradient_checkpointing",))] = None
    """Compute activations again in the backward pass; with FSDP better by the key of that name in
    fsdp_config. Its old name is gradient_checkpointing."""
    torch_compile: Annotated[bool, Key()] = False
    """Compile the model."""

    save_strategy: Annotated[str, Key()] = "steps"
    """When checkpoints are written: no, steps, epoch or best."""
    save_only_model: Annotated[bool, Key()] = False
    """Write no state of the optimizer, so that no checkpoint can be resumed."""
    save_on_each_node: Annotated[bool, Key()] = False
    """Write on each machine, not only on the first one."""
    load_best_model_at_end: Annotated[bool, Key()] = False
    """Load the best checkpoint when the training is over."""
    resume_from_checkpoint: Annotated[bool | str | None, Key()] = None
    """A checkpoint to go on from."""
    accelerator_config: Annotated[dict[str, Any] | str | None, Key()] = None
    """Settings of Accelerate that no other argument has, or a JSON file of them."""
    ddp_backend: Annotated[str | None, Key()] = None
    """The backend of torch.distributed."""

    fsdp_min_num_params: Annotated[
        int | None,
        Key(status="removed", replacement="fsdp_config.min_num_params"),
        Reads(fails="init"),
    ] = None
    """Now a key of fsdp_config."""
    fsdp_transformer_layer_cls_to_wrap: Annotated[
        str | None,
        Key(status="removed", replacement="fsdp_config.transformer_layer_cls_to_wrap"),
        Reads(fails="init"),
    ] = None
    """Now a key of fsdp_config."""
    sharded_ddp: Annotated[str | None, Key(status="removed", replacement="fsdp"), Reads(fails="init")] = None
    """FairScale's sharding, which fsdp stands for now."""
