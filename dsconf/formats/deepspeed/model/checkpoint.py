"""The section `checkpoint`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section


class ParallelWrite(Section):
    """Who writes a checkpoint."""

    pipeline_stage: Annotated[Literal[True, False], Key(), Reads(fails="parse")] = False
    """Of a PipelineModule: deal the layers of a stage out to its data-parallel ranks, instead of letting the first
    one write all of them."""


class Writer(Section):
    """The fast checkpoint engine. It needs variables that only the deepspeed launcher sets: under torchrun
    initialization fails."""

    type: Annotated[
        Literal["MOCK", "PYTHON", "FAST"] | None, Key(), Reads(fails="parse", ignore_case=True)
    ] = "FAST"
    """How files are written: FAST by asynchronous I/O, PYTHON by plain writes, MOCK not at all."""
    io_buffer_size: Annotated[int, Key(unit="bytes")] = 67_108_864
    """The size of the pinned buffer that data passes through."""
    io_buffer_double: Annotated[bool, Key()] = True
    """Use two such buffers, so that one is filled while the other is written."""
    io_multiplier: Annotated[int, Key()] = 1
    """Writers per rank where data_parallel spreads the writing."""
    show_statistics: Annotated[bool, Key()] = False
    """Print how fast the writer was."""
    data_parallel: Annotated[
        Literal["REPLICA", "SOCKET", "MACHINE"] | None, Key(), Reads(fails="parse", ignore_case=True)
    ] = None
    """Spread the writing over data-parallel ranks: all of them, one per CPU socket, or one per machine. null
    does not."""
    decoupled: Annotated[bool, Key()] = False
    """Write in a process of its own while training goes on."""


class Checkpoint(Section):
    """How checkpoints are written and loaded."""

    tag_validation: Annotated[
        Literal["WARN", "IGNORE", "FAIL"], Key(), Reads(fails="parse", ignore_case=True)
    ] = "WARN"
    """What happens when ranks save under different tags."""
    load_universal: Annotated[bool, Key()] = False
    """Load a universal checkpoint, which ds_to_universal.py has to make first."""
    use_node_local_storage: Annotated[bool, Key()] = False
    """Write to a drive of each node instead of a shared one: every node then saves the whole model."""
    checkpoint_serialization: Annotated[bool, Key()] = True
    """With writer: use the format of torch.save, which loads everywhere."""
    parallel_write: Annotated[ParallelWrite, Key()] = Field(default=ParallelWrite())
    """Who writes."""
    writer: Annotated[Writer | None, Key()] = None
    """Present, even empty, it switches the fast checkpoint engine on."""
