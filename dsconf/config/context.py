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


HUGGING_FACE: tuple[Consumer, ...] = ("trainer", "accelerate")
"""Who fills "auto"."""


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
    """What Trainer and Accelerate fill size-dependent "auto" values with: hidden_size, or the largest hidden_sizes."""
    text_hidden_size: int | None = None
    """The same of its text_config, where only Trainer looks."""
    dtype: str | None = None
    """The dtype of the saved weights, in which the model was trained as a rule."""
    tied: bool | None = None
    """Whether input and output embeddings are one parameter (tie_word_embeddings)."""
    heads: tuple[int, ...] = ()
    """The numbers of attention heads, those of keys and values included where they differ."""
    parameters: int | None = None
    """How many parameters it has, where that follows from its config.json."""
    parts: Mapping[str, str] = {}
    """By section, such as text_config, the model_type of that part of the model."""


class Launch(NamedTuple):
    """What an Accelerate YAML says."""

    file: str
    distributed_type: object = None
    mixed_precision: object = None
    num_processes: int | None = None
    deepspeed: Mapping[str, Any] = {}
    """Its section `deepspeed_config`."""
    document: Any = None
    """The file as a Document, with the places of its keys; None where these are not known."""


class Guess(NamedTuple):
    """Who seems to read the file, where nobody says it."""

    consumers: tuple[Consumer, ...]
    reason: str

    @property
    def names(self) -> str:
        """`Trainer or Accelerate`."""
        return " or ".join(CONSUMER_NAMES[consumer] for consumer in self.consumers)


class Context(NamedTuple):
    """The circumstances of a run, None where they are not known."""

    consumer: Consumer | None = None
    """Who reads the file: DeepSpeed itself, or a library that reads it first and hands DeepSpeed a dict."""
    world_size: int | None = None
    """The number of processes, one per GPU."""
    deepspeed_version: str | None = None
    """The DeepSpeed that will run, X.Y.Z, where it is an older one than the newest that dsconf has read."""
    gpus_per_node: int | None = None
    gpu: Gpu | None = None
    """The kind of GPU, all of one kind."""
    host_memory: float | None = None
    """GiB of CPU memory of each machine."""
    resume_world_size: int | None = None
    """The number of processes that wrote the checkpoint from which the run goes on."""
    model: Model | None = None
    training_args: Mapping[str, Any] | None = None
    """The TrainingArguments that are given, by name; what is not among them has Trainer's default."""
    torch_version: str | None = None
    accelerate_version: str | None = None
    transformers_version: str | None = None
    """Versions that will run, X.Y or X.Y.Z. What the rules say of these libraries was measured with `MEASURED`."""
    launch: Launch | None = None
    guess: Guess | None = None
    """Who seems to read the file, where `consumer` is None; no error may follow from it."""

    @property
    def readers(self) -> tuple[Consumer, ...]:
        """Who reads the file: one where it is known, several where that is guessed, none where it is open."""
        if self.consumer is not None:
            return (self.consumer,)
        return self.guess.consumers if self.guess else ()

    def read_by(self, *consumers: Consumer) -> bool:
        """Whether one of these is known or guessed to read the file, and nobody else is."""
        return bool(self.readers) and {*self.readers} <= {*consumers}

    @property
    def guessed(self) -> str:
        """What a message adds that follows from the guess, "" where nothing is guessed."""
        return f", if {self.guess.names} reads this file ({self.guess.reason})" if self.guess else ""

    def known(self, name: str) -> object:
        """A field, or a dotted field of a field (`gpu.memory`); None where it is not known."""
        value: object = self
        for part in name.split("."):
            value = getattr(value, part) if value is not None else None
        return value

    def since(self, release: str) -> bool:
        """Whether the DeepSpeed that will run is a release (X.Y.Z), or newer."""
        return self.deepspeed_version is None or _numbers(self.deepspeed_version) >= _numbers(release)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


OPTIONS = {
    "consumer": "--consumer",
    "world_size": "--world-size",
    "deepspeed_version": "--deepspeed-version",
    "gpus_per_node": "--gpus-per-node",
    "gpu": "--gpu",
    "host_memory": "--host-memory",
    "resume_world_size": "--resume-world-size",
    "model": "--model",
    "training_args": "--training-args",
    "launch": "--launch-config",
    "torch_version": "--torch-version",
    "accelerate_version": "--accelerate-version",
    "transformers_version": "--transformers-version",
}
"""The command line option that provides each field."""
MEASURED = {"torch": "2.13.0", "accelerate": "1.15.0", "transformers": "5.24.0"}
"""The versions of other libraries on which the claims of the rules were measured."""
