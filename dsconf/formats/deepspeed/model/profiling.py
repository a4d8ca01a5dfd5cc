"""Measurements: the sections `flops_profiler`, `comms_logger` and `timers`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import PydanticSection, Reads, Section


class FlopsProfiler(Section):
    """Counting the floating-point operations of one training step, module by module."""

    enabled: Annotated[bool, Key(), Reads(fails="parse")] = False
    """Profile one step. It also turns wall_clock_breakdown on."""
    profile_step: Annotated[int, Key(unit="steps")] = 1
    """The step to profile; not the first one, which is slower than the others."""
    module_depth: Annotated[int, Key(unit="levels")] = -1
    """Down to which level of the model the totals are printed; -1 means the innermost modules."""
    top_modules: Annotated[int, Key(unit="modules")] = 1
    """How many of the heaviest modules are named per level."""
    detailed: Annotated[bool, Key()] = True
    """Print the whole model with the numbers of each module."""
    output_file: Annotated[str | None, Key()] = None
    """The file for the report; null prints it."""
    recompute_fwd_factor: Annotated[float, Key()] = 0.0
    """How much of the forward pass activation checkpointing repeats: 1.0 where it repeats all, so that the
    backward pass is not counted too low."""


class CommsLogger(PydanticSection):
    """Logging of the communication between ranks. The section alone, even empty, switches it on."""

    enabled: Annotated[bool, Key(status="inert")] = False
    """Accepted, but nothing reads it: false does not switch the logging off."""
    prof_all: Annotated[bool, Key()] = True
    """Record all kinds of calls; false records those of prof_ops only."""
    prof_ops: Annotated[list[Any], Key()] = Field(default=[])
    """The names of the calls to record, such as "all_reduce", where prof_all is false."""
    verbose: Annotated[bool, Key()] = False
    """Print each call as it ends; otherwise the script asks for a summary by log_summary()."""
    debug: Annotated[bool, Key()] = False
    """Add the calling function to the name of each call."""


class Throughput(PydanticSection):
    """The timer that counts samples per second."""

    enabled: Annotated[bool, Key()] = True
    """Count samples per second."""
    synchronized: Annotated[bool, Key()] = True
    """Wait for the GPU before the clock is read: exact, but it costs time."""


class Timers(Section):
    """DeepSpeed's timers."""

    throughput: Annotated[Throughput, Key()] = Field(default=Throughput())
    """The timer that counts samples per second."""
