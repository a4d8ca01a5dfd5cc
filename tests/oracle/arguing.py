"""The real TrainingArguments, the FSDP plugin that comes of them, and the Trainer, on a machine that is made up.

No group of processes is opened and no GPU is asked for: what the state finds out about the machine is replaced, and
that of a torchrun with eight workers stands in the environment. All else is the libraries' own code.
"""

from __future__ import annotations

import copy
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from .worker import forget, imitate

_OF_TORCHRUN = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}  # fmt: skip


class Outcome(NamedTuple):
    """What came of some arguments."""

    error: BaseException | None
    plugin: Any = None
    """The FSDP plugin, None where FSDP is off."""
    arguments: Any = None
    trainer: Any = None
    """The Trainer, where one was asked for."""


@contextmanager
def one_machine() -> Iterator[None]:
    """A worker of torchrun with a GPU that can do everything."""
    training = importlib.import_module("transformers.training_args")
    trainer = importlib.import_module("transformers.trainer")

    with pytest.MonkeyPatch.context() as patch:
        imitate(patch)
        for name, text in _OF_TORCHRUN.items():
            patch.setenv(name, text)
        patch.setattr(training, "is_torch_bf16_gpu_available", lambda: True)
        patch.setattr(training, "is_torch_tf32_available", lambda: False)
        patch.setattr(trainer.Trainer, "_move_model_to_device", lambda *_: None)
        yield


def outcome(values: Mapping[str, Any], folder: str, *, trainer: bool = False) -> Outcome:
    """Build TrainingArguments of keyword values, and then the plugin alone, or a whole Trainer with a small model.

    It writes into `folder`, whatever they say.
    """
    transformers = importlib.import_module("transformers")
    utils = importlib.import_module("accelerate.utils")
    before = dict(os.environ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = transformers.TrainingArguments(
                **{"report_to": "none", **copy.deepcopy(dict(values)), "output_dir": folder}
            )
            plugin = built = None
            if trainer:
                data = [{"input_ids": [0.0], "labels": [0.0]}]
                built = transformers.Trainer(
                    model=_model(), args=arguments, train_dataset=data, eval_dataset=data
                )
                plugin = getattr(built.accelerator.state, "fsdp_plugin", None)
            elif arguments.fsdp_plugin_args is not None:
                plugin = utils.FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
        return Outcome(None, plugin, arguments, built)
    except Exception as error:
        return Outcome(error)
    finally:
        os.environ.clear()
        os.environ.update(before)
        forget()


def _model() -> Any:
    transformers = importlib.import_module("transformers")
    torch = importlib.import_module("torch")

    class Small(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, 1)
            self.post_init()

        def forward(self, input_ids: Any = None, labels: Any = None) -> Any:
            return self.layer(input_ids)

    return Small(transformers.PretrainedConfig(hidden_size=64))
