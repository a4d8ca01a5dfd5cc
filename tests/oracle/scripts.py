"""Scripts and commands as a shell would run them, each in a process of its own that has the libraries imported already.

`python -m oracle.scripts` reads a list of commands as JSON and prints what became of each, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that other tests may have left, and that no shell has."""


class Command(NamedTuple):
    """A script of Python, or a command that lies beside Python, and the folder in which it runs."""

    words: Sequence[str]
    """`python SCRIPT ...`, or `COMMAND ...`."""
    folder: str


class Outcome(NamedTuple):
    """How a command ended, and what it said on stdout and stderr."""

    status: int
    output: str


def run(commands: Sequence[Command]) -> list[Outcome]:
    """Run the commands, all in one other process that imports the libraries once and makes a child for each."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in _OF_A_RANK},
        "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS))),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "oracle.scripts"],
        input=json.dumps(commands), env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    said = [Outcome(*each) for each in json.loads(done.stdout.splitlines()[-1])]
    assert len(said) == len(commands)
    return said


def _in_child(command: Command) -> Outcome:
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            status = 1
            try:
                os.chdir(command.folder)
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
                status = _run(command.words)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        return Outcome(status, file.read().decode("utf-8", "replace"))


def _run(words: Sequence[str]) -> int:
    script = words[1] if words[0] == "python" else str(Path(sys.executable).parent / words[0])
    sys.argv = [script, *words[2 if words[0] == "python" else 1 :]]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Run the commands of stdin; the last line of stdout is theirs."""
    for name in ("accelerate.commands.accelerate_cli", "deepspeed", "transformers.training_args"):
        importlib.import_module(name)  # once, before the children are made
    commands = [Command(*each) for each in json.load(sys.stdin)]
    sys.stdout.flush()
    print(json.dumps([_in_child(each) for each in commands]))


if __name__ == "__main__":
    main()
