"""What a file can't hold: who reads it, on how many GPUs, and which DeepSpeed."""

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
    deepspeed_version: str | None = None
    """The DeepSpeed that will run, where it is an older one: one that dsconf has read. None for the newest of them."""


OPTIONS = {
    "consumer": "--consumer",
    "world_size": "--world-size",
    "deepspeed_version": "--deepspeed-version",
}
"""The command line option that provides each field."""
