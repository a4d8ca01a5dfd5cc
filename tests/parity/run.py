"""Run cells on both sides, many to a launch, and judge pairs of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from .compare import EXACT, Crash, Record, Tolerance, Verdict, judge

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
WORKLOAD = HERE / "workload.py"
CRASH_STATUS = 70  # as in worker.py, which has to be a file of its own
TAIL = 4000

Side = Literal["deepspeed", "module"]
Result = Record | Crash

# What DeepSpeed did with a cell does not depend on the module it is compared with.
_references: dict[str, Record] = {}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the two sides of a comparison have in common.

    `load_dtype` is the dtype of the model before either side gets it.  `freeze` holds prefixes of
    the names of parameters that do not train.  `exact` makes DeepSpeed run torch's own AdamW and
    F.linear, so that differences of 0 can be asked for; the module side ignores it.
    """

    config: Mapping[str, Any]
    workload: Path = WORKLOAD
    steps: int = 10
    load_dtype: Literal["float32", "bfloat16"] = "float32"
    inf_at: int | None = None
    exact: bool = False
    freeze: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Cell(Setting):
    """One training run of one side."""

    id: str
    role: Side
    module: Path | None = None

    def job(self) -> dict[str, Any]:
        """Return what the worker needs, as JSON can hold it."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "id"}
        module = None if self.module is None else str(self.module.resolve())
        return values | {"module": module, "workload": str(self.workload.resolve())}


@dataclass(frozen=True, kw_only=True)
class Case(Setting):
    """A config, the module that was emitted for it, and how close they have to be."""

    id: str
    module: Path
    tolerance: Tolerance = EXACT

    def cell(self, role: Side) -> Cell:
        """Return one side of this case."""
        shared = {field.name: getattr(self, field.name) for field in fields(Setting)}
        module = self.module if role == "module" else None
        return Cell(id=f"{self.id} [{role}]", role=role, module=module, **shared)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a launch runs: how many ranks, for how many seconds at most, and with which DeepSpeed.

    `deepspeed` is a folder that holds another version of the package than the installed one.
    """

    ranks: int = 2
    timeout: float = 900.0
    deepspeed: Path | None = None

    def environment(self) -> dict[str, str]:
        """The variables of a launch; another version keeps the operators that it builds beside itself."""
        base = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        if self.deepspeed is None:
            return base
        path = os.pathsep.join([str(self.deepspeed.resolve()), os.environ.get("PYTHONPATH", "")])
        return base | {
            "PYTHONPATH": path.rstrip(os.pathsep),
            "TORCH_EXTENSIONS_DIR": str(self.deepspeed.resolve() / "operators"),
        }


def _launch(numbered: Sequence[tuple[int, dict[str, Any]]], output: Path, machine: Machine) -> str:
    """Run the worker once, and return how it ended, for those cells that have no record."""
    job = output / "job.json"
    job.write_text(json.dumps(numbered), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command += [str(machine.ranks), str(WORKER), str(job), str(output)]
    env = machine.environment()
    log = output / "log.txt"
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(command, env=env, stdout=stream, stderr=stream)
        try:
            status = process.wait(machine.timeout)
        except subprocess.TimeoutExpired:
            process.terminate()  # not kill, which would leave the ranks behind
            process.wait()
            status = None
        except BaseException:
            process.terminate()
            process.wait()
            raise
    tail = log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
    if status is None:
        return f"no end after {machine.timeout:g} s\n{tail}"
    if status:
        return "\n".join([*_rank_statuses(tail), tail])
    return "a rank ended early with exit status 0"


def _rank_statuses(report: str) -> list[str]:
    """Read the exit statuses that are not the worker's own from the report of torch's launcher."""
    found = re.findall(r"^\s*rank\s*:\s*(\d+).*\n\s*exitcode\s*:\s*(-?\d+)", report, re.MULTILINE)
    ended = sorted({(int(rank), int(status)) for rank, status in found})
    own = (CRASH_STATUS, -signal.SIGTERM)
    return [f"rank {rank} ended with exit status {status}" for rank, status in ended if status not in own]


def _read(path: Path, side: Side, report: str) -> Result:
    data = json.loads(path.read_text(encoding="utf-8"))
    if "crash" in data:
        return Crash(side, "\n".join([*_rank_statuses(report), data["crash"]]))
    return Record(**data)


def _run_side(side: Side, cells: Sequence[Cell], machine: Machine) -> dict[str, Result]:
    results: dict[str, Result] = {}
    waiting = list(enumerate(cells))
    while waiting:
        with tempfile.TemporaryDirectory(prefix="parity-") as folder:
            output = Path(folder)
            jobs = [(number, cell.job()) for number, cell in waiting]
            report = _launch(jobs, output, machine)
            for number, cell in waiting:
                path = output / f"{number}.json"
                if path.exists():
                    results[cell.id] = _read(path, side, report)
                elif path.with_suffix(".started").exists():
                    results[cell.id] = Crash(side, report)
            left = [(number, cell) for number, cell in waiting if cell.id not in results]
            if len(left) == len(waiting):  # the worker did not reach its first cell: it never will
                results.update({cell.id: Crash(side, report) for _, cell in left})
                left = []
            waiting = left
    return results


def run_cells(
    cells: Iterable[Cell], *, ranks: int = 2, timeout: float = 900.0, deepspeed: Path | None = None
) -> dict[str, Result]:
    """Run `cells`, one launch a side (and one more after each crash), and return a record for each id.

    Equal DeepSpeed cells run once in the life of this process.  `timeout` is for one launch, and `deepspeed` a folder
    with another version of the package.
    """
    todo = list(cells)
    if len({cell.id for cell in todo}) != len(todo):
        raise ValueError("two cells have the same id")
    machine = Machine(ranks=ranks, timeout=timeout, deepspeed=deepspeed)
    key = {cell.id: json.dumps([ranks, str(deepspeed), cell.job()], sort_keys=True) for cell in todo}
    fresh = {key[c.id]: c for c in todo if c.role == "deepspeed" and key[c.id] not in _references}
    found = _run_side("deepspeed", list(fresh.values()), machine)
    known: dict[str, Result] = {**_references, **{key[name]: result for name, result in found.items()}}
    _references.update({name: result for name, result in known.items() if isinstance(result, Record)})
    results = {c.id: known[key[c.id]] for c in todo if c.role == "deepspeed"}
    return results | _run_side("module", [c for c in todo if c.role == "module"], machine)


def run_cases(
    cases: Iterable[Case], *, ranks: int = 2, timeout: float = 900.0, deepspeed: Path | None = None
) -> dict[str, Verdict]:
    """Run both sides of each case and judge them; see `run_cells` for the arguments."""
    todo = list(cases)
    pairs = {case.id: (case.cell("deepspeed"), case.cell("module")) for case in todo}
    cells = [cell for pair in pairs.values() for cell in pair]
    records = run_cells(cells, ranks=ranks, timeout=timeout, deepspeed=deepspeed)
    verdicts = {}
    for case in todo:
        reference, candidate = (records[cell.id] for cell in pairs[case.id])
        verdicts[case.id] = judge(reference, candidate, case.tolerance)
    return verdicts
