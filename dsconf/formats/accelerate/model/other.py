"""The sections `dynamo_config` and `fp8_config`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

Backend = Literal[
    "no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt",
    "onnxrt", "tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once", "tvm", "hpu_backend", "neuron",
]  # fmt: skip


def _usual(name: str) -> Key:
    """A key with a prefix that may be left out."""
    return Key(aliases=(name.partition("_")[2],))


class Dynamo(Section):
    """torch.compile. The prefix dynamo_ of a key may be left out."""

    reader = "environment"
    read_if = "dynamo"
    wins = "last"

    dynamo_backend: Annotated[Backend | None, _usual("dynamo_backend"), Reads(way="backend")] = "no"
    """What compiles the model; no leaves it as it is."""
    dynamo_mode: Annotated[Any, _usual("dynamo_mode")] = "default"
    """What is optimized for: default, reduce-overhead or max-autotune."""
    dynamo_use_fullgraph: Annotated[Any, _usual("dynamo_use_fullgraph")] = False
    """Fail where the model can't be compiled as one graph."""
    dynamo_use_dynamic: Annotated[Any, _usual("dynamo_use_dynamic")] = False
    """Compile for inputs of changing shapes."""
    dynamo_use_regional_compilation: Annotated[Any, _usual("dynamo_use_regional_compilation")] = False
    """Compile one block of a model, and use it for all blocks that are alike."""


class Fp8(Section):
    """mixed_precision fp8: which library computes, and how. The prefix fp8_ of a key may be left out."""

    reader = "environment"
    read_if = "fp8"
    wins = "last"

    fp8_backend: Annotated[
        Literal["TE", "AO", "MSAMP", "NO"] | None, _usual("fp8_backend"), Reads(way="word")
    ] = None
    """The library: TE, AO or MSAMP. Left out or NO, the first one that is installed."""
    fp8_use_autocast_during_eval: Annotated[Any, _usual("fp8_use_autocast_during_eval")] = False
    """TE: compute in 8 bits in evaluation too."""
    fp8_margin: Annotated[Any, _usual("fp8_margin")] = 0
    """TE: the margin of the scaling factors."""
    fp8_interval: Annotated[Any, _usual("fp8_interval")] = 1
    """TE: steps between two computations of the scaling factors."""
    fp8_format: Annotated[Any, _usual("fp8_format")] = "HYBRID"
    """TE: E4M3, E5M2, or HYBRID for the former in the forward pass and the latter in the backward pass."""
    fp8_amax_history_len: Annotated[Any, _usual("fp8_amax_history_len")] = 1024
    """TE: steps that the scaling factors look back."""
    fp8_amax_compute_algo: Annotated[Any, _usual("fp8_amax_compute_algo")] = "most_recent"
    """TE: max or most_recent of these steps."""
    fp8_override_linear_precision: Annotated[Any, _usual("fp8_override_linear_precision")] = Field(
        [False, False, False]
    )
    """TE: three times true or false, for what of a linear layer is computed in higher precision."""
    fp8_opt_level: Annotated[Any, _usual("fp8_opt_level")] = "O2"
    """MSAMP: O1 or O2."""
    fp8_enable_fsdp_float8_all_gather: Annotated[Any, _usual("fp8_enable_fsdp_float8_all_gather")] = 1
    """AO: FSDP2 gathers parameters in 8 bits."""
    fp8_pad_inner_dim: Annotated[Any, _usual("fp8_pad_inner_dim")] = 1
    """AO: pad matrices to sizes that 8-bit kernels take."""
