"""Splitting the model: the sections `tensor_parallel` and `pipeline`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import PydanticSection, Reads, Section


class LayerSpec(Section):
    """How some of the weights are split."""

    patterns: Annotated[list[str], Key()] = Field(default=[])
    """Regular expressions for the names of the weights."""
    partition_type: Annotated[Literal["row", "column", "skip"], Key()] = "column"
    """How a weight is split: by its inputs, by its outputs, or not."""
    gather_output: Annotated[bool, Key()] = False
    """Collect the parts of the output on every rank."""
    grad_allreduce: Annotated[bool, Key()] = False
    """Add up the gradient over the ranks, for weights that each of them holds whole."""
    shape: Annotated[list[Any] | None, Key()] = None
    """The shape by which a fused weight is split, for example [3, -1] where three of them lie together."""
    partition_dim: Annotated[int | None, Key()] = None
    """The dimension of `shape` that is split."""
    model_types: Annotated[list[str] | None, Key()] = None
    """The model types that this is for; null means all."""


class PartitionConfig(Section):
    """Which weights are split, and how. Initialization looks at it, not the parser."""

    layer_specs: Annotated[list[LayerSpec], Key(), Reads(fails="init")] = Field(default=[])
    """The weights; the first entry that fits counts."""
    tp_size: Annotated[int, Key(unit="ranks")] = 1
    """Replaced by autotp_size."""
    embedding_partition_dim: Annotated[int, Key(status="inert")] = 1
    """Accepted, but nothing reads it."""
    lm_head_patterns: Annotated[list[str], Key()] = Field(default=["lm_head", "embed_out"])
    """The names of output layers."""
    use_default_specs: Annotated[bool, Key()] = True
    """Add layer_specs to those of preset_model instead of replacing them."""
    strict_mode: Annotated[bool, Key()] = False
    """Stop at a linear layer that no entry fits."""


class TpShape(PydanticSection):
    """Older settings of tensor parallelism."""

    tp_size: Annotated[int, Key(unit="ranks")] = 1
    """Ranks over which the model is split: 1, or the same as autotp_size."""
    tp_grain_size: Annotated[int, Key(unit="elements")] = 1
    """Pieces of this size are not split further."""
    mpu: Annotated[Any, Key()] = None
    """A Python object of the script; JSON has nothing useful for it."""
    tp_group: Annotated[Any, Key()] = None
    """A Python object of the script; JSON has nothing useful for it."""


class TensorParallel(PydanticSection):
    """Automatic tensor parallelism."""

    autotp_size: Annotated[int, Key(unit="ranks")] = 0
    """Ranks over which each layer is split; 0 and 1 split none. It has to divide the number of processes."""
    preset_model: Annotated[str | None, Key()] = None
    """A kind of model whose layers DeepSpeed knows: llama, bloom, chatglm, mixtral, deepseek_v2, qwen2 or
    phi3. Another name is ignored silently."""
    partition_config: Annotated[PartitionConfig | None, Key()] = None
    """Which weights are split, and how; null leaves it to DeepSpeed."""
    tp_overlap_comm: Annotated[bool, Key()] = False
    """Communicate while other computations run."""
    vocab_parallel_lm_head: Annotated[bool | None, Key()] = None
    """Split the output layer by its vocabulary; null does so where the model says that it can be split."""
    vocab_parallel_ce_backend: Annotated[Literal["torch", "liger"], Key()] = "torch"
    """What computes the loss of a split vocabulary."""
    tp: Annotated[TpShape, Key(aliases=("tensor_parallel",))] = Field(default=TpShape())
    """Older settings."""
    kernel_inject: Annotated[bool, Key(aliases=("replace_with_kernel_inject",))] = False
    """Put in the kernels of the inference engine."""
    keep_module_on_host: Annotated[bool, Key()] = False
    """Leave the weights in CPU memory after loading them."""
    injection_policy_tuple: Annotated[list[Any] | None, Key()] = None
    """Python classes of the script; JSON has nothing useful for it."""
    dtype: Annotated[None, Key(), Reads(null=False)] = None
    """A torch.dtype: JSON can't hold one, and every value in a file is refused."""


class Pipeline(Section):
    """Settings of pipeline parallelism; they act on a PipelineModule only."""

    stages: Annotated[int | str, Key(status="inert")] = "auto"
    """Nothing reads it: the arguments of the PipelineModule decide."""
    partition: Annotated[str, Key(status="inert")] = "best"
    """Nothing reads it: the arguments of the PipelineModule decide."""
    seed_layers: Annotated[bool, Key(status="inert")] = False
    """Nothing reads it: the arguments of the PipelineModule decide."""
    activation_checkpoint_interval: Annotated[int, Key(unit="layers")] = 0
    """Layers between two activation checkpoints; 0 leaves it to the PipelineModule."""
    pipe_partitioned: Annotated[bool, Key()] = True
    """Send activations in parts where the model is split within a stage too."""
    grad_partitioned: Annotated[bool, Key()] = True
    """Send gradients in parts where the model is split within a stage too."""
    use_reentrant: Annotated[bool, Key()] = True
    """The argument of the same name of torch.utils.checkpoint."""
