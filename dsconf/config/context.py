"""What a file can't hold: who reads it, and on how many GPUs."""

from __future__ import annotations

from typing import Literal, NamedTuple

Consumer = Literal["deepspeed", "trainer", "accelerate", "lightning"]
CONSUMERS: tuple[Consumer, ...] = ("deepspeed", "trainer", "accelerate", "lightning")
CONSUMER_NAMES: dict[Consumer, str] = {
    "deepspeed": "DeepSpeed",
    "trainer": "Trainer",
    "accelerate": "Accelerate",
    "lightning": "Lightning",
}


class Context(NamedTuple):
    """The circumstances of a run, None where they are not known."""

    consumer: Consumer | None = None
    """Who reads the file: DeepSpeed itself, or a library that reads it first and hands DeepSpeed a dict."""
    world_size: int | None = None
    """The number of processes, one per GPU."""


OPTIONS = {"consumer": "--consumer", "world_size": "--world-size"}
"""The command line option that provides each field."""
