"""What a file can't hold: who reads it, on how many GPUs, and which DeepSpeed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Consumer = Literal["deepspeed", "trainer", "accelerate", "lightning"]
CONSUMERS: tuple[Consumer, ...] = ("deepspeed", "trainer", "accelerate", "lightning")
CONSUMER_NAMES: dict[Consumer, str] = {
    "deepspeed": "DeepSpeed",
    "trainer": "Trainer",
    "accelerate": "Accelerate",
    "lightning": "Lightning",
}


class Gpu(NamedTuple):
    """One kind of GPU."""

    name: str
    memory: float
    """GiB that a process can use at most, as the driver reports it (a little less than the name says)."""
    bf16: bool | None
    """Whether it computes in bf16: NVIDIA since compute capability 8.0, AMD since the MI100; None where only
    the memory is known."""


class Model(NamedTuple):
    """What a rule may want to know of the model, None where its config.json does not say it."""

    architecture: str | None = None
    """The class, such as LlamaForCausalLM."""
    model_type: str | None = None
    hidden_size: int | None = None
    """What Trainer and Accelerate fill size-dependent "auto" values with; None where they find none."""
    dtype: str | None = None
    """The dtype of the saved weights, in which the model was trained as a rule."""


class Context(NamedTuple):
    """The circumstances of a run, None where they are not known."""

    consumer: Consumer | None = None
    """Who reads the file: DeepSpeed itself, or a library that reads it first and hands DeepSpeed a dict."""
    world_size: int | None = None
    """The number of processes, one per GPU."""
    deepspeed_version: str | None = None
    """The DeepSpeed that will run, where it is an older one: one that dsconf has read. None for the newest of them."""
    gpus_per_node: int | None = None
    gpu: Gpu | None = None
    """The kind of GPU, all of one kind."""
    resume_world_size: int | None = None
    """The number of processes that wrote the checkpoint from which the run goes on."""
    model: Model | None = None
    training_args: Mapping[str, Any] | None = None
    """The TrainingArguments that are given, by name; what is not among them has Trainer's default."""

    def known(self, name: str) -> object:
        """A field, or a dotted field of a field (`gpu.memory`); None where it is not known."""
        value: object = self
        for part in name.split("."):
            value = getattr(value, part) if value is not None else None
        return value


OPTIONS = {
    "consumer": "--consumer",
    "world_size": "--world-size",
    "deepspeed_version": "--deepspeed-version",
    "gpus_per_node": "--gpus-per-node",
    "gpu": "--gpu",
    "resume_world_size": "--resume-world-size",
    "model": "--model",
    "training_args": "--training-args",
}
"""The command line option that provides each field."""
