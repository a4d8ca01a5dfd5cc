"""The real `accelerate launch` on a config, up to the moment when the workers start, and then what one of them sets up.

No process starts and no GPU is asked for. What is replaced: whatever would start the workers (its environment is
taken at that point), whether a port is free, and what the state of a worker finds out about the machine. All else is
the libraries' own code.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from .worker import forget, imitate

_VARIABLES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
"""What is looked at; Megatron-LM has variables of its own, of which dsconf says nothing."""
_OF_A_WORKER = {"RANK": "0", "LOCAL_RANK": "0"}


class Outcome(NamedTuple):
    """How far a config got."""

    fails: str | None
    """The moment, in the words of the key table."""
    error: BaseException | None
    env: dict[str, str]
    """The variables of Accelerate that the workers get."""
    fsdp: Any = None
    deepspeed: Any = None
    layout: Any = None
    local: int | None = None
    """The processes that torchrun starts on this machine."""
    address: object = None
    """Where these look for the first machine."""


class _WorkersStart(BaseException):
    def __init__(self, env: Mapping[str, str], local: int | None = None, address: object = None) -> None:
        super().__init__()
        self.env, self.local, self.address = dict(env), local, address


@contextmanager
def one_machine() -> Iterator[None]:
    """A machine on which everything is installed, and on which no worker starts."""
    launch = importlib.import_module("accelerate.commands.launch")
    launch_utils = importlib.import_module("accelerate.utils.launch")
    state = importlib.import_module("accelerate.state")
    accelerator = importlib.import_module("accelerate.accelerator")

    def agent(spec: Any, **_: object) -> None:
        raise _WorkersStart(os.environ, spec.local_world_size, spec.master_addr)

    def popen(command: list[str], env: Mapping[str, str], **_: object) -> None:
        for text in [*command, *env.values()]:
            os.fsencode(text)
        if command[0] == "deepspeed":
            _ask_runner(command[1:])
        raise _WorkersStart(env)

    with pytest.MonkeyPatch.context() as patch:
        imitate(patch)
        patch.setattr("torch.distributed.launcher.api.LocalElasticAgent", agent)
        patch.setattr(launch, "subprocess", SimpleNamespace(Popen=popen, CalledProcessError=Exception))
        # Each launch builds two large parsers, and looks for a GPU.
        torchrun = importlib.import_module("torch.distributed.run")
        for module, name in ((launch, "launch_command_parser"), (torchrun, "get_args_parser")):
            patch.setattr(module, name, cache(getattr(module, name)))
        patch.setattr(launch, "check_cuda_p2p_ib_support", lambda: True)
        in_use = launch_utils.is_port_in_use
        patch.setattr(launch_utils, "is_port_in_use", lambda port=None: in_use(port) and False)
        for module in (launch_utils, state):
            patch.setattr(module, "is_fp8_available", lambda: True)
        parallel = importlib.import_module("accelerate.parallelism_config")
        patch.setattr(parallel.ParallelismConfig, "build_device_mesh", lambda *_: SimpleNamespace())
        for name in (
            "AORecipeKwargs",
            "TERecipeKwargs",
            "MSAMPRecipeKwargs",
        ):
            patch.setattr(accelerator, name, lambda *_, **__: None)
        patch.setattr(accelerator, "is_torchao_available", lambda: True)
        yield


def _ask_runner(arguments: list[str]) -> None:
    """What DeepSpeed's command refuses: its arguments, and launchers that it does not know."""
    runner = importlib.import_module("deepspeed.launcher.runner")
    asked = runner.parse_args(arguments).launcher.lower()
    if asked != runner.PDSH_LAUNCHER and asked not in runner.LAUNCHER_CLASSES:
        raise NotImplementedError(asked)


def launched(
    config: Mapping[str, object] | str, folder: Path, *, worker: bool = True, whole: bool = False
) -> Outcome:
    """Launch a config, in plain values or as the text of a YAML file, and set up one worker under its environment.

    `whole`: the layout of parallelism_config is judged together with the number of processes and the rest.
    """
    launch = importlib.import_module("accelerate.commands.launch")
    path = folder / ("accelerate.yaml" if isinstance(config, str) else "accelerate.json")
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    before, place = dict(os.environ), Path.cwd()
    os.chdir(folder)  # the launcher leaves the environment of several machines in a file
    env: dict[str, str] = {}
    local, address = None, None
    fails = "parse"
    try:
        launch.load_config_from_file(str(path))
        fails = "launch"
        arguments = launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        try:
            launch.launch_command(arguments)
        except _WorkersStart as start:
            env = {name: text for name, text in start.env.items() if name.startswith(_VARIABLES)}
            local, address = start.local, start.address
        fails = "init"
        outcome = _worker(env, whole=whole) if worker else Outcome(None, None, env)
        return outcome._replace(local=local, address=address)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # argparse raises SystemExit
        return Outcome(fails, error, env)
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(before)
        forget()


def _worker(env: Mapping[str, str], *, whole: bool) -> Outcome:
    accelerator = importlib.import_module("accelerate.accelerator")
    parallelism = importlib.import_module("accelerate.parallelism_config")
    plugins = importlib.import_module("accelerate.utils")
    os.environ.update({**env, **_OF_A_WORKER})
    layout = None
    # The layout by itself: whether its sizes fit the number of processes is another matter.
    if not whole and os.environ.pop("ACCELERATE_USE_PARALLELISM_CONFIG", ""):
        layout = parallelism.ParallelismConfig()
    # Trainer brings its own number of accumulation steps where the file leaves it to the script.
    left_open = env.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS") == "auto"
    steps = plugins.GradientAccumulationPlugin(num_steps=1) if left_open else None
    made = accelerator.Accelerator(gradient_accumulation_plugin=steps)
    shared = made.state._shared_state
    deepspeed = made.deepspeed_plugin if "ACCELERATE_USE_DEEPSPEED" in env else None
    if deepspeed is not None:
        _initialize(deepspeed)
    return Outcome(None, None, dict(env), shared.get("fsdp_plugin"), deepspeed, layout)


def _initialize(plugin: Any) -> None:
    """What prepare() does with a plugin before it builds the engine: fill "auto", and let DeepSpeed read the rest."""
    filled = copy.deepcopy(plugin)
    filled.deepspeed_config.setdefault("train_micro_batch_size_per_gpu", 1)
    batches = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "train_batch_size": 1}
    filled.deepspeed_config.pop("train_batch_size", None)
    filled.deepspeed_config_process(must_match=False, **batches, gradient_clipping=1.0)
    importlib.import_module("deepspeed.runtime.config").DeepSpeedConfig(filled.deepspeed_config)
