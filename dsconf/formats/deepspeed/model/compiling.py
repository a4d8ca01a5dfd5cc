"""Other ways to run the model: the sections `compile` and `hybrid_engine`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import PydanticSection


class Compile(PydanticSection):
    """DeepCompile: ZeRO built into the graph that torch.compile makes. It only acts where the script calls
    engine.compile()."""

    deepcompile: Annotated[bool, Key()] = False
    """Use DeepCompile; at stage 0 engine.compile() remains plain torch.compile."""
    passes: Annotated[list[Literal["z1", "z3", "autosp", "autotp"]] | None, Key()] = None
    """Changes of the graph to combine; null chooses by the ZeRO stage. autotp stands alone."""
    autoep_non_moe: Annotated[bool, Key()] = False
    """Compile what surrounds the MoE layers of expert_parallel and leave those as they are. Not with
    deepcompile."""
    free_activation: Annotated[bool, Key()] = False
    """Free activations as soon as the graph no longer needs them."""
    free_activation_threshold: Annotated[int, Key(unit="bytes")] = 10_485_760
    """The size from which free_activation looks at an activation."""
    offload_activation: Annotated[bool, Key()] = False
    """Move saved activations to CPU memory until the backward pass needs them. Not with offload_parameters or
    offload_opt_states."""
    offload_activation_pin_memory: Annotated[bool, Key()] = True
    """Use page-locked CPU memory for that."""
    offload_opt_states: Annotated[bool, Key()] = False
    """Keep the optimizer states in CPU memory between steps, as far as needed. Not with an offloaded
    optimizer, offload_activation or offload_parameters."""
    offload_parameters: Annotated[bool, Key()] = False
    """Keep the parameters in CPU memory; on by itself where ZeRO offloads both parameters and optimizer to
    the CPU."""
    double_buffer: Annotated[bool, Key()] = True
    """Fill a second buffer with gradients while the first one is being averaged."""
    symmetric_memory: Annotated[bool, Key()] = False
    """Gather parameters through PyTorch's symmetric memory."""
    sync_before_reduce: Annotated[bool, Key()] = False
    """Wait for the GPU before gradients are averaged; for finding faults."""
    sync_after_reduce: Annotated[bool, Key()] = False
    """Wait for the GPU after gradients are averaged; for finding faults."""
    sync_before_allgather: Annotated[bool, Key()] = False
    """Wait for the GPU before parameters are gathered; for finding faults."""
    sync_after_allgather: Annotated[bool, Key()] = False
    """Wait for the GPU after parameters are gathered; for finding faults."""
    keep_int_input_tensors: Annotated[bool, Key()] = True
    """Keep the real integer inputs for measuring the graph; otherwise stand-ins take their place."""
    keep_all_input_tensors: Annotated[bool, Key()] = False
    """Keep all real inputs for measuring the graph."""
    debug_log: Annotated[bool, Key()] = False
    """Write the graphs out."""


class HybridEngine(PydanticSection):
    """Switching one model between training and fast generation, for RLHF."""

    enabled: Annotated[bool, Key()] = False
    """Use it; a PipelineModule ignores it."""
    max_out_tokens: Annotated[int, Key(unit="tokens")] = Field(512, gt=0)
    """The longest sequence, prompt included, that can be generated."""
    inference_tp_size: Annotated[int, Key(unit="ranks")] = 1
    """Ranks over which the model is split for generation."""
    release_inference_cache: Annotated[bool, Key()] = False
    """Free the memory of generation before training goes on."""
    pin_parameters: Annotated[bool, Key()] = True
    """Stage 3: gather all parameters at once for generating instead of layer by layer."""
    tp_gather_partition_size: Annotated[int, Key(unit="layers")] = 8
    """Layers that are gathered together where both stage 3 and inference_tp_size split the model."""
    enable_cuda_graph: Annotated[bool, Key()] = False
    """Generate through CUDA graphs."""
