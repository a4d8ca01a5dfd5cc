"""The parts of emitted modules, called as they stand, against DeepSpeed and torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytestmark = pytest.mark.oracle

LRS = (3e-4, 7e-3)
"""Of two parameter groups."""


def optimizer() -> Any:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in LRS]
    return torch.optim.AdamW(groups)


def rates(build: Any, steps: int) -> list[list[float]]:
    """The lr of each group at each step."""
    found, optim = [], optimizer()
    scheduler = build(optim)
    for _ in range(steps):
        found.append([group["lr"] for group in optim.param_groups])
        optim.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("kind", "linear", "low", "peak", "warmup"),
    list(product(("WarmupLR", "WarmupDecayLR"), (False, True), (0.0, 1e-4), (None, 5e-3), (1, 2, 7, 40))),
)
def test_schedules_are_deepspeeds_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch, kind: str, linear: bool, low: float, peak: float | None, warmup: int
) -> None:
    from deepspeed.runtime import lr_schedules

    from dsconf.formats.fsdp2.parts import scheduler as part

    monkeypatch.setattr(part, "DECAYS", kind == "WarmupDecayLR")
    monkeypatch.setattr(part, "LINEAR", linear)
    monkeypatch.setattr(part, "OWN_MAX_LR", peak is not None)
    monkeypatch.setattr(part, "WARMUP_MIN_LR", low)
    monkeypatch.setattr(part, "WARMUP_MAX_LR", peak)
    monkeypatch.setattr(part, "WARMUP_STEPS", warmup)
    monkeypatch.setattr(part, "TOTAL_STEPS", 30)
    params: dict[str, Any] = {
        "warmup_min_lr": low,
        "warmup_max_lr": peak,
        "warmup_num_steps": warmup,
        "warmup_type": "linear" if linear else "log",
    }
    if kind == "WarmupDecayLR":
        params["total_num_steps"] = 30
    reference = rates(lambda optim: getattr(lr_schedules, kind)(optim, **params), 50)
    assert rates(part.build_scheduler, 50) == reference


def test_a_schedule_resumes_where_it_was() -> None:
    from dsconf.formats.fsdp2.parts.scheduler import build_scheduler

    first, second = optimizer(), optimizer()
    ahead, resumed = build_scheduler(first), build_scheduler(second)
    for _ in range(20):
        first.step()
        ahead.step()
    resumed.load_state_dict(ahead.state_dict())
    for optim, scheduler in ((first, ahead), (second, resumed)):
        optim.step()
        scheduler.step()
    assert first.param_groups[1]["lr"] == second.param_groups[1]["lr"] > 0


def test_blocks_are_the_outermost_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts import sharding

    class Expert(nn.Linear):
        pass

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList([Expert(2, 2), Expert(2, 2)])

    encoder, decoder, nested = Block(), Block(), Block()
    stacks = {
        "encoder": nn.ModuleList([encoder]),
        "decoder": nn.ModuleList([decoder]),
        "nested": nn.ModuleList([nn.ModuleList([nested])]),
    }
    model = nn.ModuleDict(stacks | {"head": nn.Linear(2, 2)})
    assert sharding.find_blocks(model) == [encoder, decoder, nested]
    monkeypatch.setattr(sharding, "NAMED_BLOCKS", True)
    monkeypatch.setattr(sharding, "BLOCK_CLASSES", ("Expert",))
    assert len(sharding.find_blocks(model)) == 6
    monkeypatch.setattr(sharding, "BLOCK_CLASSES", ("Absent",))
    with pytest.raises(ValueError, match="no module of class Absent"):
        sharding.find_blocks(model)


def test_a_model_of_two_dtypes_is_refused() -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts.sharding import loaded_dtype

    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).bfloat16())
    with pytest.raises(ValueError, match=r"bfloat16.*float32"):
        loaded_dtype(model)
    model[1].requires_grad_(False)
    assert loaded_dtype(model) == torch.float32


def test_a_checkpoint_without_optimizer_state_is_refused(tmp_path: Any) -> None:
    from dsconf.formats.fsdp2.parts.checkpoint import save_checkpoint

    with pytest.raises(ValueError, match="after the first optimizer step"):
        save_checkpoint(tmp_path, torch.nn.Linear(1, 1), optimizer(), None, 0)
