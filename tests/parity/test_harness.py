from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from .compare import EXACT, Crash, Mismatch, Parity, Record, Tolerance, Verdict, compare, judge
from .run import Case, Cell, run_cases, run_cells

RECORD = Record(
    losses=[4.0, 3.5, 3.0, 2.5],
    norms=[1.0, 0.5],
    lrs=[0.0, 1e-3],
    skipped=[False, False],
    start={"a": [0.0, 0.0], "b": [1.0]},
    params={"a": [3.0, 0.0], "b": [5.0]},
)
SKIPPED = replace(RECORD, norms=[1.0, math.inf], skipped=[False, True])


def verdict(tolerance: Tolerance = EXACT, reference: Record = RECORD, **changes: Any) -> Verdict:
    return judge(reference, replace(reference, **changes), tolerance)


def test_equal_records_are_parity() -> None:
    assert isinstance(verdict(), Parity)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"losses": [4.0, 3.5, 3.0, 2.5 + 1e-12]}, "loss differs by"),
        ({"losses": [4.0, 3.5, 3.0, math.inf]}, "loss differs by inf"),
        ({"losses": [4.0, 3.5, 3.0]}, "3 losses, where the reference has 4"),
        ({"losses": [4.0, 3.5, 3.0, math.nan]}, "candidate: a loss is NaN"),
        ({"norms": [1.0, 0.5001]}, "norm differs by 0.0002"),
        ({"norms": [1.0, None]}, "step 1: no grad norm, where the reference has 0.5"),
        ({"norms": [1.0, math.nan]}, "candidate: a norm is NaN on a step that was not skipped"),
        ({"norms": [1.0, math.inf]}, "norm differs by inf"),
        ({"norms": [1.0]}, "1 norms, where the reference has 2"),
        ({"lrs": [0.0, 1e-3 + 1e-14]}, "lr differs by"),
        ({"lrs": [1e-11, 1e-3]}, "lr differs by 1e-11"),
        ({"lrs": [0.0]}, "1 lrs, where the reference has 2"),
        ({"lrs": [0.0, math.nan]}, "candidate: a learning rate is NaN"),
        ({"skipped": [False, True]}, "step 1: skipped, unlike the reference"),
        ({"skipped": [False]}, "1 skipped, where the reference has 2"),
        ({"params": {"a": [3.0, 0.5], "b": [5.0]}}, "update differs by 0.1"),
        ({"params": {"a": [3.0, 0.0], "b": [math.nan]}}, "candidate: b has NaN"),
        ({"params": {"a": [3.0, 0.0], "b": [math.inf]}}, "update differs by inf"),
        ({"params": {"a": [3.0, 0.0]}}, "b is missing"),
        ({"params": {**RECORD.params, "module.b": [5.0]}}, "module.b is not in the reference"),
        ({"params": {"a": [3.0], "b": [5.0]}}, "a has 1 elements, not 2"),
        ({"problems": ["the ranks disagree"]}, "the ranks disagree"),
    ],
)
def test_each_kind_of_mismatch_is_seen(changes: dict[str, Any], reason: str) -> None:
    found = verdict(**changes)
    assert isinstance(found, Mismatch)
    assert any(text.startswith(reason) for text in found.reasons), found.reasons
    # Each is seen for itself, and not for something else that it brings along.
    assert len(found.reasons) == 1 or math.nan in _numbers(changes)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return _numbers(list(value.values()))
    return [leaf for item in value for leaf in _numbers(item)] if isinstance(value, list) else [value]


def test_tolerance_excuses_what_it_names() -> None:
    loose = Tolerance(loss=1e-2, update=0.2, norm=1e-3, lr=1e-2)
    assert isinstance(verdict(loose, losses=[4.0, 3.5, 3.0, 2.501]), Parity)
    assert isinstance(verdict(loose, params={"a": [3.0, 0.5], "b": [5.0]}), Parity)
    assert isinstance(verdict(loose, norms=[1.0, 0.5001]), Parity)
    assert isinstance(verdict(loose, lrs=[0.0, 1.001e-3]), Parity)
    assert isinstance(verdict(Tolerance(math.inf, math.inf, math.inf, math.inf), norms=[1.0, None]), Mismatch)


def test_update_is_measured_in_units_of_the_movement() -> None:
    moved = replace(RECORD, params={"a": [3.0, 0.5], "b": [5.0]})
    assert compare(RECORD, moved).update == pytest.approx(0.5 / 5.0)


def test_a_reference_that_does_not_move_still_shows_a_candidate_that_does() -> None:
    still = replace(RECORD, params=RECORD.start)
    assert compare(still, still).update == 0.0
    assert compare(still, RECORD).update == math.inf


def test_the_value_of_a_norm_that_is_not_finite_is_free_on_a_skipped_step() -> None:
    assert isinstance(verdict(reference=SKIPPED, norms=[1.0, math.nan]), Parity)
    assert isinstance(verdict(reference=SKIPPED, norms=[1.0, 0.5]), Mismatch)
    assert isinstance(verdict(reference=SKIPPED, norms=[1.0, None]), Mismatch)


def test_a_norm_is_free_where_the_reference_has_none() -> None:
    assert isinstance(verdict(reference=replace(RECORD, norms=[None, None]), norms=[1.0, 0.5]), Parity)


def test_equal_infinite_losses_agree() -> None:
    assert isinstance(verdict(reference=replace(RECORD, losses=[4.0, 3.5, math.inf, 3.0])), Parity)


def test_nan_in_both_is_a_mismatch() -> None:
    found = verdict(reference=replace(RECORD, params={"a": [3.0, 0.0], "b": [math.nan]}))
    assert isinstance(found, Mismatch)
    assert found.reasons[:2] == ("reference: b has NaN", "candidate: b has NaN")


def test_a_crash_is_not_a_mismatch() -> None:
    crash = Crash("module", "boom")
    assert judge(RECORD, crash, EXACT) is crash
    assert judge(crash, RECORD, EXACT) is crash


def test_ids_are_unique() -> None:
    cell = Cell(id="twice", role="deepspeed", config={})
    with pytest.raises(ValueError, match="same id"):
        run_cells([cell, cell])


MODULE = """
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def parallelize(model, device):
    for param in model.parameters():
        dist.broadcast(param.detach(), src=0)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def build_scheduler(optimizer):
    return None


def train_step(model, optimizer, scheduler, micro_batches, loss_fn):
    losses = []
    for batch in micro_batches:
        loss = loss_fn(model, batch)
        (loss / len(micro_batches)).backward()
        losses.append(loss.detach())
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1000.0).full_tensor()
    skipped = not bool(torch.isfinite(norm))
    if not skipped:
        optimizer.step()
    optimizer.zero_grad()
    return {"losses": losses, "grad_norm": norm, "lr": 1e-2, "skipped": skipped}


def full_state_dict(model):
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
"""
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1000.0,
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1, "bias_correction": True}},
}
MUTANTS = {
    "good": ("", ""),
    "raises": ("    losses = []\n", "    raise RuntimeError('no such luck')\n"),
    "raises on one rank": ("    losses = []\n", "    losses = [] if dist.get_rank() else 1 / 0\n"),
    "dies": ("    losses = []\n", "    losses = [] if dist.get_rank() else os._exit(3)\n"),
    "ends": ("    losses = []\n", "    os._exit(0)\n"),
    "no import": ("import os\n", "import no_such_module\n"),
    "no norm": ('"grad_norm": norm', '"grad_norm": None'),
    "local norm": ('"grad_norm": norm', '"grad_norm": norm + dist.get_rank()'),
    "no broadcast": ("        dist.broadcast(param.detach(), src=0)\n", "        pass\n"),
    "no decay": ("weight_decay=0.1", "weight_decay=0.0"),
    "lr": ("lr=1e-2, weight", "lr=1.001e-2, weight"),
    "16 bit": ("cpu_offload=True))", "cpu_offload=True)) | {'head.weight': torch.zeros(67 * 32).half()}"),
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    for name in ("torch", "deepspeed"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    folder = tmp_path_factory.mktemp("modules")
    cases = [
        Case(id=name, config=CONFIG, module=folder / f"{name}.py", steps=3, exact=True) for name in MUTANTS
    ]
    cases.append(
        Case(
            id="inf",
            config=CONFIG,
            module=folder / "good.py",
            steps=3,
            exact=True,
            inf_at=1,
            freeze=["embed"],
        )
    )
    for name, (old, new) in MUTANTS.items():
        assert old in MODULE
        (folder / f"{name}.py").write_text(MODULE.replace(old, new), encoding="utf-8")
    return run_cases(cases, timeout=240)


def crash(verdict: Verdict) -> str:
    assert isinstance(verdict, Crash)
    assert verdict.side == "module"
    return verdict.text


@pytest.mark.parity
def test_a_good_module_is_parity(verdicts: dict[str, Verdict]) -> None:
    assert isinstance(verdicts["good"], Parity)
    assert verdicts["good"].differences.loss == verdicts["good"].differences.update == 0.0


@pytest.mark.parity
def test_a_step_with_an_infinite_loss_is_skipped_by_both(verdicts: dict[str, Verdict]) -> None:
    assert isinstance(verdicts["inf"], Parity)


@pytest.mark.parity
def test_a_module_that_raises_is_a_crash(verdicts: dict[str, Verdict]) -> None:
    assert "RuntimeError: no such luck" in crash(verdicts["raises"])
    assert "ZeroDivisionError" in crash(verdicts["raises on one rank"])
    assert "No module named 'no_such_module'" in crash(verdicts["no import"])


@pytest.mark.parity
def test_a_process_that_dies_is_a_crash_with_its_exit_status(verdicts: dict[str, Verdict]) -> None:
    assert crash(verdicts["dies"]).startswith("rank 0 ended with exit status 3")
    assert "a rank ended early with exit status 0" in crash(verdicts["ends"])


@pytest.mark.parity
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no norm", "step 0: no grad norm"),
        ("local norm", "the ranks report different norms"),
        ("no broadcast", "loss differs by"),
        ("no decay", "update differs by"),
        ("lr", "update differs by"),
        ("16 bit", "full_state_dict has head.weight in torch.float16"),
    ],
)
def test_a_module_that_trains_otherwise_is_a_mismatch(
    verdicts: dict[str, Verdict], name: str, reason: str
) -> None:
    found = verdicts[name]
    assert isinstance(found, Mismatch)
    assert any(text.startswith(reason) for text in found.reasons), found.reasons


@pytest.mark.parity
def test_equal_references_run_once(verdicts: dict[str, Verdict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", None)  # nothing may be launched
    cell = Case(id="again", config=CONFIG, module=Path("unused"), steps=3, exact=True).cell("deepspeed")
    assert isinstance(run_cells([cell])[cell.id], Record)


@pytest.mark.parity
def test_an_asynchronous_all_gather_is_waited_for() -> None:
    """Else the weights that an older DeepSpeed goes on with are now and then not there yet."""
    worker: Any = pytest.importorskip("tests.parity.worker", reason="needs torch")
    work = Mock()
    gather = Mock(return_value=work)
    assert worker.finished(gather)("output", "input", async_op=True) is work
    gather.assert_called_once_with("output", "input", async_op=True)
    work.wait.assert_called_once_with()
    assert worker.finished(Mock(return_value=None))("output", "input") is None
