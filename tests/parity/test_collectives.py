"""What emitted modules send between ranks in one optimizer step: how often, and how many bytes.

The norm, one number that DTensor sums up by itself, is not counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .bench import NEEDS_DEEPSPEED, Bench, Config, config
from .compare import Record
from .run import Cell, run_cells

pytestmark = NEEDS_DEEPSPEED

GROUPS = 3
"""What the test model is sharded into: two blocks, and the rest."""

BF16, FP32 = 2, 4
"""Bytes of an element."""

LOGGED = """

from torch.utils._python_dispatch import TorchDispatchMode


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            name = str(func).split(".")[1].strip("_")
            tensors = args[0] if isinstance(args[0], list) else [arg for arg in args[:2] if torch.is_tensor(arg)]
            sizes = [tensor.nbytes for tensor in tensors]
            self.calls.append([name, max(sizes) // min(sizes), max(sizes)])
        return func(*args, **(kwargs or {}))


_train_step, _steps = train_step, []


def train_step(*args):
    import json

    with Log() as log:
        result = _train_step(*args)
    _steps.append(log.calls)
    if dist.get_rank() == 0:
        Path("FOLDER/NAME.log").write_text(json.dumps(_steps))
    return result
"""
"""Writes down each collective of each step: its name, how many ranks share a tensor, the bytes of the whole of it."""


class Traffic(NamedTuple):
    """The collectives of one step."""

    gathers: int = 0
    scatters: int = 0
    sums: int = 0
    gathered: int = 0
    """Bytes of the weights on each rank, once they are gathered."""
    reduced: int = 0
    """Bytes of the gradients on each rank, before they are reduced."""


def traffic(calls: list[list[Any]]) -> Traffic:
    """What is between ranks; a group of one rank sends nothing."""
    sent = [(name, size) for name, ranks, size in calls if ranks > 1 or name == "allreduce"]
    counts = Counter(name for name, _ in sent)
    gather, scatter, total = "allgather_base", "reduce_scatter_base", "allreduce"
    assert set(counts) <= {gather, scatter, total}
    gathered = sum(size for name, size in sent if name == gather)
    reduced = sum(size for name, size in sent if name != gather)
    return Traffic(counts[gather], counts[scatter], counts[total], gathered, reduced)


def elements(ranks: int) -> int:
    """Those of all weights of the test model, each padded with rows until they divide among the ranks."""
    from .workload import build_model

    shapes = [tuple(param.shape) for param in build_model().parameters()]
    return sum(-(-rows // ranks) * ranks * prod(others) for rows, *others in shapes)


def counted(folder: Path, runs: Mapping[str, Config], ranks: int) -> dict[str, Traffic]:
    """The traffic of the second step of each config."""
    bench = Bench(folder)
    cells = [
        Cell(
            id=name,
            role="module",
            config=run,
            module=bench.emit(name, run, {}, LOGGED.replace("NAME", name)),
            steps=2,
        )
        for name, run in runs.items()
    ]
    results = run_cells(cells, ranks=ranks)
    assert [name for name, result in results.items() if not isinstance(result, Record)] == []
    steps = {name: json.loads((folder / f"{name}.log").read_text(encoding="utf-8")) for name in runs}
    return {name: traffic(calls) for name, (_, calls) in steps.items()}


RUNS: dict[str, Config] = {
    f"{precision}-stage{stage}-gas{steps}": config(
        precision, steps, zero_optimization={"stage": stage}, data_types={}
    )
    for precision in ("bf16", "fp32")
    for stage in (0, 1, 2, 3)
    for steps in (1, 2)
} | {"wide-stage2-gas2": config("bf16", 2, zero_optimization={"stage": 2}, communication_data_type="fp32")}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Traffic]:
    return counted(tmp_path_factory.mktemp("collectives"), RUNS, 2)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(("precision", "size"), [("bf16", BF16), ("fp32", FP32)])
def test_each_stage_sends_what_it_has_to(
    sent: dict[str, Traffic], precision: str, size: int, steps: int
) -> None:
    """With one micro batch stages 1 and 2 are the same; with more, stage 2 reduces each of them."""
    whole, padded = elements(1) * size, elements(2) * size
    once, each = GROUPS, GROUPS * steps
    expected = {
        0: Traffic(sums=once, reduced=whole),
        1: Traffic(once, once, gathered=padded, reduced=padded),
        2: Traffic(once, each, gathered=padded, reduced=padded * steps),
        3: Traffic(2 * each, each, gathered=2 * padded * steps, reduced=padded * steps),
    }
    found = {stage: sent[f"{precision}-stage{stage}-gas{steps}"] for stage in expected}
    assert found == expected


def test_gradients_travel_in_the_dtype_of_the_reduction(sent: dict[str, Traffic]) -> None:
    gathered, reduced = elements(2) * BF16, elements(2) * FP32 * 2
    assert sent["wide-stage2-gas2"] == Traffic(GROUPS, 2 * GROUPS, gathered=gathered, reduced=reduced)


def test_hpz_gathers_for_the_backward_pass_within_its_groups(tmp_path: Path) -> None:
    """Four ranks in groups of two: as many bytes on each rank as without hpZ, half of them from one other rank."""
    zero = {"stage": 3, "zero_hpz_partition_size": 2}
    runs = {"hpz": config("bf16", 1, zero_optimization=zero, data_types={})}
    sent = counted(tmp_path, runs, 4)["hpz"]
    padded = elements(4) * BF16
    assert sent == Traffic(2 * GROUPS, GROUPS, gathered=2 * padded, reduced=padded)
    steps = json.loads((tmp_path / "hpz.log").read_text(encoding="utf-8"))
    ranks = Counter(ranks for name, ranks, _ in steps[1] if name == "allgather_base")
    assert ranks == {4: GROUPS, 2: GROUPS}
