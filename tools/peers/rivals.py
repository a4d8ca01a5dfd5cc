"""The other tools: how each one is asked about a config, and what its answer amounts to."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from .faults import Fault

CONVERTED = "fsdp2.yaml"
"""The file that `accelerate to-fsdp2` is told to write."""
ONE_PROCESS = ("--num_machines", "1", "--num_processes", "1")
_WARNS = re.compile(r"warn|deprecat|not supported|ignor|unknown", re.IGNORECASE)
_ERROR = re.compile(r"^(?:\[rank\d+\]: )?(?:[\w.]+\.)?(\w*(?:Error|Exception)\b.*)", re.MULTILINE)
_SHOWN = 200


class Verdict(NamedTuple):
    """What became of a config."""

    word: str
    """One of WORDS."""
    message: str


WORDS = {
    "caught": "refused, with a message that names the fault",
    "cryptic": "refused, with a message that does not",
    "warning": "accepted, with a warning that names the fault",
    "accepted": "accepted without a word about it",
    "-": "not for such a file",
}
"""The words of the table."""


class Run(NamedTuple):
    """One command that was run."""

    status: int
    output: str
    """Of stdout and stderr."""
    seconds: float
    """Wall time."""


class Rival(NamedTuple):
    """Another tool; `{}` in a command is the config."""

    title: str
    json: str = ""
    """How it is asked about a DeepSpeed config; "" if it is not."""
    yaml: str = ""
    """How it is asked about the YAML of Accelerate."""

    def command(self, file: str) -> tuple[str, ...]:
        """The words of the command for a config, none where the tool does not read such files."""
        return tuple(shlex.split((self.json if file.endswith(".json") else self.yaml).format(file)))


RIVALS = (
    Rival("DeepSpeedConfig", json="python deepspeed_config.py {}"),
    Rival("TrainingArguments", json="python trainer.py {}"),
    Rival(
        "accelerate launch",
        json="accelerate launch --num_processes 1 --use_deepspeed --deepspeed_config_file {} accelerator.py",
        yaml="accelerate launch --config_file {} accelerator.py",
    ),
    Rival(
        "accelerate to-fsdp2",
        yaml=f"accelerate to-fsdp2 --config_file {{}} --output_file {CONVERTED} --overwrite",
    ),
    Rival("json.tool", json="python -m json.tool {}"),
)


def run(command: tuple[str, ...], folder: Path) -> Run:
    """Run a command in a folder, with the tools that are installed beside this Python."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environment = {**os.environ, "PATH": path, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return Run(done.returncode, done.stdout, time.perf_counter() - start)


def verdict(status: int, output: str, fault: Fault) -> Verdict:
    """What the answer of a tool amounts to."""
    named = re.compile(fault.named, re.IGNORECASE | re.DOTALL)
    if status:
        message = error_of(output)
        return Verdict("caught" if named.search(message) else "cryptic", shown(message))
    for line in output.splitlines():
        if named.search(line) and _WARNS.search(line):
            return Verdict("warning", shown(line))
    return Verdict("accepted", "")


def error_of(output: str) -> str:
    """The error with which a tool ended: the last exception of its output with all that it says, else all of it."""
    # What launches the process that failed ends with an error of its own, which says that it did.
    found = [match for match in _ERROR.finditer(output) if "ChildFailedError" not in match[1]]
    own = [match for match in found if not match[1].startswith("CalledProcessError")]
    if not own:
        return output.strip()
    text = output[own[-1].start(1) :]
    lines = re.sub(r"^\[rank\d+\]: ?", "", text, flags=re.MULTILINE).splitlines()
    end = next(
        (at for at, line in enumerate(lines) if at and re.match(r"Traceback|E?\d{4} |\[|$", line)), None
    )
    return "\n".join(lines[:end])


def shown(message: str) -> str:
    """A message in one line of limited length, without the time."""
    line = re.sub(r"^\[[-\d :,]+\] ", "", " ".join(message.split()))
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."
