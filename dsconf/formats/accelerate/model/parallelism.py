"""The section `parallelism_config`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

_Size = Annotated[int, Key(unit="ranks"), Reads(way="integer")]


class Parallelism(Section):
    """How the processes are laid out: the product of all sizes is their number. No prefix may be left out."""

    reader = "environment"
    read_if = "parallelism"

    parallelism_config_dp_replicate_size: _Size = Field(1, ge=1)
    """Groups of ranks that each hold the whole model, and average their gradients."""
    parallelism_config_dp_shard_size: _Size = Field(1, ge=1)
    """Ranks over which FSDP2 splits a model."""
    parallelism_config_tp_size: _Size = Field(1, ge=1)
    """Ranks that compute each layer together (tensor parallelism)."""
    parallelism_config_cp_size: Annotated[int, Key(unit="ranks"), Reads(way="size")] = Field(1, ge=1)
    """Ranks that share each sequence with FSDP2 (context parallelism)."""
    parallelism_config_cp_backend: Annotated[Literal["torch"], Key(), Reads(way="word")] = "torch"
    """The library of context parallelism."""
    parallelism_config_cp_comm_strategy: Annotated[
        Literal["allgather", "alltoall"], Key(), Reads(way="word", read_if="cp")
    ] = "allgather"
    """Context parallelism: how keys and values travel."""
    parallelism_config_sp_size: Annotated[int, Key(unit="ranks"), Reads(way="size")] = Field(1, ge=1)
    """Ranks that share each sequence with DeepSpeed (sequence parallelism)."""
    parallelism_config_sp_backend: Annotated[Literal["deepspeed"], Key(), Reads(way="word")] = "deepspeed"
    """The library of sequence parallelism."""
    parallelism_config_sp_seq_length: Annotated[
        int | None, Key(unit="tokens"), Reads(way="length", read_if="sp_fixed")
    ] = None
    """Sequence parallelism with sequences of one length: that length."""
    parallelism_config_sp_seq_length_is_variable: Annotated[
        bool, Key(), Reads(way="true-word", read_if="sp")
    ] = True
    """Sequence parallelism: whether the length of the sequences differs between batches."""
    parallelism_config_sp_attn_implementation: Annotated[
        Literal["sdpa", "flash_attention_2", "flash_attention_3"], Key(), Reads(way="kernel", read_if="sp")
    ] = "sdpa"
    """Sequence parallelism: the attention, one of these or a flash-attn kernel of the Hugging Face hub such
    as kernels-community/flash-attn2."""
