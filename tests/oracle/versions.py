"""Other versions of DeepSpeed, each asked in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .grid import READ_AT_ONCE, Config

ROOT = Path(__file__).parents[2]


def look(package: Path, configs: Sequence[tuple[Config, int]] = ()) -> dict[str, Any]:
    """What one version says (see `oracle.observe.everything`); its package `deepspeed` lies in a folder of its name."""
    asked = json.dumps({"paths": READ_AT_ONCE, "configs": configs})
    with tempfile.TemporaryDirectory() as operators:
        return _look(package, asked, operators)


def _look(package: Path, asked: str, operators: str) -> dict[str, Any]:
    """What one version says; it compiles no operators in the folder of the newest one."""
    environment = {
        **os.environ,
        "TORCH_EXTENSIONS_DIR": operators,
        "PYTHONPATH": os.pathsep.join(map(str, (package.resolve(), ROOT, ROOT / "tests"))),
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "oracle.observe"]
    run = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{package}: {run.stderr[-2000:]}")
    said: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    version = said["version"].partition("+")[0].strip()
    if version != package.name:
        raise RuntimeError(f"{package} holds DeepSpeed {version}")
    return said
