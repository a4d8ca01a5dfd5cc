"""deepspeed.initialize on any rank of any world, and what the script does next, each case in a process of its own.

`python -m oracle.launch` reads a list of cases as JSON and prints what became of each, as JSON. Ranks other than the
first of one are imagined: torch's fake backend takes part in every collective and moves nothing, so that what
DeepSpeed checks and how it groups the ranks is real, and no number that is trained is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

Config = dict[str, Any]
ROOT = Path(__file__).parents[2]


class Case(NamedTuple):
    """One config on one rank; `then` is what the script does after deepspeed.initialize: "step", "save"."""

    config: Config
    world_size: int = 1
    rank: int = 0
    then: Sequence[str] = ()


class Outcome(NamedTuple):
    """What became of a case: the moment and the exception at which it ended, and what the engine says of itself."""

    failed: str | None
    error: str
    engine: dict[str, Any]


def launch(cases: Sequence[Case]) -> list[Outcome]:
    """Run the cases, all in one other process that imports DeepSpeed once and makes a child for each."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, "-m", "oracle.launch"],
            input=json.dumps(cases), env=environment, capture_output=True, text=True,
            cwd=folder,
        )  # fmt: skip
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    said = [Outcome(*each) for each in json.loads(run.stdout.splitlines()[-1])]
    assert len(said) == len(cases)
    return said


def _in_child(case: Case) -> list[Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        outcome: list[Any] = ["init", "nothing was said", {}]
        try:
            outcome = _run(case)
        except BaseException as error:
            outcome[1] = (
                f"{type(error).__name__}: {error} in {traceback.extract_tb(error.__traceback__)[-1].name}"
            )
        finally:
            os.write(writing, json.dumps(outcome).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    said: list[Any] = json.loads(text)
    return said


def _run(case: Case) -> list[Any]:
    import deepspeed
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    numbers = {
        "RANK": case.rank,
        "LOCAL_RANK": 0,
        "WORLD_SIZE": case.world_size,
        "LOCAL_SIZE": case.world_size,
    }
    os.environ.update({name: str(number) for name, number in numbers.items()})
    group = torch.distributed
    if case.world_size == 1:
        group.init_process_group("gloo", rank=0, world_size=1, store=group.HashStore())
    else:
        group.init_process_group("fake", rank=case.rank, world_size=case.world_size, store=FakeStore())
    # What only makes collectives fast, and would have to be compiled first.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    moment, engine = "init", None
    try:
        deepspeed.init_distributed(auto_mpi_discovery=False)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        engine = deepspeed.initialize(
            model=model, config=case.config, model_parameters=list(model.parameters())
        )[0]
        for moment in case.then:
            if moment == "step":
                engine.backward(engine(torch.ones(1, 8, dtype=next(engine.parameters()).dtype)).sum())
                engine.step()
            elif moment == "save":
                engine.save_checkpoint("saved")
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1].name
        return [moment, f"{type(error).__name__}: {error} in {where}", _seen(engine)]
    return [None, "", _seen(engine)]


def _seen(engine: Any) -> dict[str, Any]:
    if engine is None:
        return {}
    checkpointing = sys.modules["deepspeed.runtime.activation_checkpointing.checkpointing"]
    return {
        "train_batch_size": engine.train_batch_size(),
        "micro": engine.train_micro_batch_size_per_gpu(),
        "accumulation": engine.gradient_accumulation_steps(),
        "data_parallel": engine.dp_world_size,
        "sequence_parallel": engine.sequence_parallel_size,
        "tensor_parallel": engine.mp_world_size,
        "compiled": engine.is_compiled,
        "checkpointing": checkpointing.is_configured(),
        "profiler": engine.flops_profiler_enabled(),
        "breakdown": engine.wall_clock_breakdown(),
    }


def main() -> None:
    """Run the cases of stdin; the last line of stdout is theirs."""
    import deepspeed  # noqa: F401  # once, before the children are made

    cases = [Case(*case) for case in json.load(sys.stdin)]
    print(json.dumps([_in_child(case) for case in cases]))


if __name__ == "__main__":
    main()
