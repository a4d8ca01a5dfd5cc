"""The emitted loss scaler does as DeepSpeed's, overflow by overflow."""

from __future__ import annotations

import importlib
import random
from itertools import product
from typing import Any

import pytest

from dsconf.formats.fsdp2.parts import loss_scale

pytestmark = pytest.mark.oracle

GRID = list(product((1, 2, 3, 7), (0, 1, 2, 3), (False, True), (1.0, 4.0, 0.25)))


def scales(update: Any, scale: Any, overflows: list[bool]) -> list[object]:
    """The scale after each step, up to the overflow that ends the run."""
    found: list[object] = []
    for overflow in overflows:
        try:
            update(overflow)
        except Exception:
            return [*found, "ends"]
        found.append(scale())
    return found


@pytest.mark.parametrize(("window", "hysteresis", "refill", "minimum"), GRID)
def test_the_scale_moves_as_in_deepspeed(
    monkeypatch: pytest.MonkeyPatch, window: int, hysteresis: int, refill: bool, minimum: float
) -> None:
    theirs = pytest.importorskip("deepspeed.runtime.fp16.loss_scaler")
    accelerator = importlib.import_module("deepspeed.comm")
    monkeypatch.setattr(accelerator, "get_rank", lambda *_: 1)  # so that it needs no process group to log
    monkeypatch.setattr(loss_scale, "LOSS_SCALE", 64.0)
    monkeypatch.setattr(loss_scale, "SCALE_WINDOW", window)
    monkeypatch.setattr(loss_scale, "HYSTERESIS", hysteresis)
    monkeypatch.setattr(loss_scale, "REFILLED", refill)
    monkeypatch.setattr(loss_scale, "MIN_LOSS_SCALE", minimum)
    seen = set()
    for seed, rate in product(range(10), (0.2, 0.5, 0.9)):
        draw = random.Random(seed)
        overflows = [draw.random() < rate for _ in range(60)]
        reference = theirs.DynamicLossScaler(
            init_scale=64.0,
            scale_window=window,
            min_scale=minimum,
            delayed_shift=hysteresis,
            consecutive_hysteresis=refill,
        )
        candidate = loss_scale.LossScaler()
        want = scales(reference.update_scale, lambda one=reference: one.cur_scale, overflows)
        assert scales(candidate.update, lambda one=candidate: one.scale, overflows) == want
        seen.update(want)
    assert len(seen) > 2
