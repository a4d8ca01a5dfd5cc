"""The sections `activation_checkpointing`, `aio` and `weight_quantization`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import PydanticSection, Section


class ActivationCheckpointing(Section):
    """DeepSpeed's own activation checkpointing. It only acts where the script hands the config to
    deepspeed.checkpointing.configure() and the model calls deepspeed.checkpointing.checkpoint()."""

    partition_activations: Annotated[bool, Key()] = False
    """Split the kept activations over the ranks of a model-parallel group."""
    cpu_checkpointing: Annotated[bool, Key()] = False
    """Keep the activations in CPU memory."""
    contiguous_memory_optimization: Annotated[bool, Key()] = False
    """Keep the activations in one buffer, which avoids fragmented memory. Needs partition_activations and
    number_checkpoints."""
    number_checkpoints: Annotated[int | None, Key(unit="checkpoints")] = None
    """How many checkpoints a forward pass makes; it sizes the buffer of contiguous_memory_optimization."""
    synchronize_checkpoint_boundary: Annotated[bool, Key()] = False
    """Wait for the GPU at every checkpoint; for measuring."""
    profile: Annotated[bool, Key()] = False
    """Time the forward and backward pass of every checkpoint."""


class Aio(Section):
    """Asynchronous reads and writes of an NVMe drive, for offloading to it."""

    block_size: Annotated[int, Key(unit="bytes")] = 1_048_576
    """The size of one request to the drive."""
    queue_depth: Annotated[int, Key(unit="requests")] = 8
    """Requests that each thread keeps in flight."""
    intra_op_parallelism: Annotated[int, Key(unit="threads")] = 1
    """Threads that share one read or write."""
    single_submit: Annotated[bool, Key()] = False
    """Hand requests to the drive one by one instead of a queue at a time."""
    overlap_events: Annotated[bool, Key()] = True
    """Hand in new requests while others are still under way."""
    use_gds: Annotated[bool, Key()] = False
    """Move data between drive and GPU by NVIDIA GPUDirect Storage; refused without CUDA."""


class WeightQuantization(PydanticSection):
    """Quantized weights for models that are only run: under zero.Init at stage 3, or after loading."""

    enabled: Annotated[bool, Key(status="inert")] = True
    """Nothing reads it: what counts stands in quantized_initialization and post_init_quant."""
    num_bits: Annotated[int, Key(status="inert", unit="bits")] = 8
    """Nothing reads it here: the number stands in quantized_initialization and post_init_quant."""
    q_type: Annotated[Literal["asymmetric", "symmetric"], Key(status="inert")] = "symmetric"
    """Nothing reads it."""
    q_groups: Annotated[int, Key(status="inert", unit="groups")] = 1
    """Nothing reads it."""
    quantized_initialization: Annotated[dict[str, Any], Key()] = Field(default={})
    """Quantize weights as zero.Init creates them: an object with num_bits (4 or 8), group_size, group_dim and
    symmetric (false)."""
    post_init_quant: Annotated[dict[str, Any], Key()] = Field(default={})
    """Quantize weights after loading: for each part of a module's name an object with num_bits, group_size,
    group_dim and symmetric."""
