"""The section `scheduler`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Fill, Key
from dsconf.formats.section import Reads, Section

Rate = float | list[float]
"""One number, or one per parameter group."""


class SchedulerParams(Section):
    """The keyword arguments of the scheduler's class. Which of them a class knows depends on
    scheduler.type."""

    unknown = "depends"

    # WarmupLR, WarmupDecayLR, WarmupCosineLR.
    warmup_min_lr: Annotated[Rate, Key(auto=Fill("0", "0"), quoted_fails="init")] = 0.0
    """WarmupLR, WarmupDecayLR: the learning rate at the start."""
    warmup_max_lr: Annotated[
        Rate | None, Key(auto=Fill("learning_rate", "the lr of the optimizer"), quoted_fails="init")
    ] = None
    """WarmupLR, WarmupDecayLR: the learning rate after the warmup. Left out it is that of the optimizer in
    WarmupLR, but 0.001 in WarmupDecayLR."""
    warmup_num_steps: Annotated[
        int,
        Key(
            unit="steps",
            auto=Fill("warmup_steps, at least 1", "the warmup_num_steps of DummyScheduler, at least 1"),
            quoted_fails="init",
        ),
        Reads(int_only=True),
    ] = Field(1000, gt=0)
    """The length of the warmup; a whole number, so that 100.0 and 1e2 are refused."""
    warmup_type: Annotated[Literal["log", "linear"], Key()] = "log"
    """The shape of the warmup. Any other value counts as "log", with a warning."""
    total_num_steps: Annotated[
        int | None,
        Key(
            unit="steps",
            auto=Fill("the computed number of steps", "the total_num_steps of DummyScheduler / processes"),
            quoted_fails="init",
        ),
        Reads(null=False),
    ] = None
    """WarmupDecayLR, WarmupCosineLR: the length of the training, warmup included; required there and unknown
    to WarmupLR."""
    warmup_min_ratio: Annotated[float, Key(quoted_fails="step")] = 0.0
    """WarmupCosineLR: where the warmup starts, as a fraction of the optimizer's learning rate."""
    cos_min_ratio: Annotated[float, Key(quoted_fails="step")] = 0.0001
    """WarmupCosineLR: where the cosine ends, as a fraction of the optimizer's learning rate."""

    # OneCycle.
    cycle_min_lr: Annotated[Rate | None, Key(quoted_fails="step"), Reads(null=False)] = None
    """OneCycle: the learning rate at the start and end of the cycle; required."""
    cycle_max_lr: Annotated[Rate | None, Key(quoted_fails="step"), Reads(null=False)] = None
    """OneCycle: the highest learning rate; required."""
    decay_lr_rate: Annotated[float, Key(quoted_fails="init")] = 0.0
    """OneCycle: how fast the learning rate falls after the cycle."""
    # These two pass through float(), which reads a numeric string.
    cycle_first_step_size: Annotated[float, Key(unit="steps"), Reads(fails="init")] = Field(2000, gt=0)
    """OneCycle: the length of the first half of the cycle."""
    cycle_second_step_size: Annotated[float | None, Key(unit="steps"), Reads(fails="init")] = Field(
        None, ge=0
    )
    """OneCycle: the length of the second half; left out, that of the first."""
    cycle_first_stair_count: Annotated[int, Key(quoted_fails="step")] = 0
    """OneCycle: stairs in the first half; 0 makes it smooth."""
    cycle_second_stair_count: Annotated[int | None, Key(quoted_fails="step")] = None
    """OneCycle: stairs in the second half; left out, as in the first."""
    decay_step_size: Annotated[int, Key(unit="steps", quoted_fails="init")] = 0
    """OneCycle: steps per decay after the cycle; 0 for no decay."""
    cycle_momentum: Annotated[bool, Key()] = True
    """OneCycle: move the momentum against the learning rate; needs an optimizer with betas."""
    cycle_min_mom: Annotated[Rate, Key(quoted_fails="step")] = 0.8
    """OneCycle: the lowest momentum."""
    cycle_max_mom: Annotated[Rate, Key(quoted_fails="step")] = 0.9
    """OneCycle: the highest momentum."""
    decay_mom_rate: Annotated[float, Key(quoted_fails="init")] = 0.0
    """OneCycle: how fast the momentum changes after the cycle."""

    # LRRangeTest.
    lr_range_test_min_lr: Annotated[Rate, Key(quoted_fails="step")] = 0.001
    """LRRangeTest: the learning rate at the start."""
    lr_range_test_step_size: Annotated[int, Key(unit="steps", quoted_fails="init"), Reads(int_only=True)] = (
        Field(2000, gt=0)
    )
    """LRRangeTest: steps between two increases."""
    lr_range_test_step_rate: Annotated[float, Key(quoted_fails="step")] = 1.0
    """LRRangeTest: the growth per interval, as a fraction of the first rate."""
    lr_range_test_staircase: Annotated[bool, Key()] = False
    """LRRangeTest: grow in stairs instead of evenly."""

    last_batch_iteration: Annotated[int, Key()] = -1
    """Where the schedule starts; -1 is the beginning."""


class Scheduler(Section):
    """The learning rate schedule that DeepSpeed builds, unless the script passes its own."""

    type: Annotated[str | None, Key(), Reads(fails="init")] = None
    """WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest, in this exact case. Without it the
    section is ignored."""
    params: Annotated[SchedulerParams | None, Key(), Reads(fails="init", null=False)] = None
    """The arguments of the schedule; needed as soon as there is a type."""
