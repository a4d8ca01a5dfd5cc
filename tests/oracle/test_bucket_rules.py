"""The memory of ZeRO's reduce buffers: what lint reckons, against what the real DeepSpeed allocates."""

from __future__ import annotations

import importlib
import itertools
import json
from unittest import mock

import pytest
from configs import config_of

from dsconf.config.context import Context, Gpu
from dsconf.config.derive import facts_of

from .engine import BASE, findings, initialize, train_step
from .judge import Config, torch

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("process_group")]

ELEMENTS = 12_345
"""No size of anything else."""
SETTINGS: list[Config] = [
    {"stage": stage, **overlap, **contiguous}
    for stage in (0, 1, 2, 3)
    for overlap in ({}, {"overlap_comm": True}, {"overlap_comm": False})
    for contiguous in ({}, {"contiguous_gradients": False})
]
PRECISIONS: list[Config] = [
    {},
    {"bf16": {"enabled": True}},
    {"bf16": {"enabled": True}, "communication_data_type": "fp32"},
    {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
]


def allocated(config: Config) -> int:
    """Bytes of all buffers of ELEMENTS elements that are made before the first step is done."""
    sizes = []
    empty = torch.empty

    def watch(*size: object, **options: object) -> object:
        made = empty(*size, **options)
        if size == (ELEMENTS,):
            sizes.append(made.numel() * made.element_size())
        return made

    with mock.patch.object(torch, "empty", watch):
        engine = initialize(config)
        train_step(engine)
    return sum(sizes)


@pytest.mark.parametrize("precision", PRECISIONS, ids=json.dumps)
@pytest.mark.parametrize("zero", SETTINGS, ids=json.dumps)
def test_reduce_buffers(zero: Config, precision: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = importlib.import_module("deepspeed.accelerator").get_accelerator()
    monkeypatch.setattr(type(accelerator), "is_fp16_supported", lambda _: True)
    optimizer = {"type": "AdamW", "params": {"torch_adam": True}}
    config = {
        **precision, "optimizer": optimizer, "zero_optimization": {**zero, "reduce_bucket_size": ELEMENTS},
    }  # fmt: skip
    if zero["stage"] == 0 and "data_types" in precision:
        pytest.skip("DeepSpeed refuses it")
    facts = facts_of(config_of({**BASE, **config}))
    number, size = facts.value("reduce_buffers"), facts.value("reduce_buffer_bytes")
    assert isinstance(number, int)
    assert number * (size if isinstance(size, int) else 0) * ELEMENTS == allocated(config)


@pytest.mark.parametrize(
    ("elements", "memory"), itertools.product([5e8, 1e9, 2e9, 4e9, 1e10], [15, 40, 80, None])
)
def test_the_limits(elements: float, memory: float | None) -> None:
    config = {
        **BASE, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": elements},
    }  # fmt: skip
    context = Context(gpu=Gpu("some", memory, True) if memory else None)
    said = [each.severity for each in findings(config, context) if each.rule == "bucket-memory"]
    share = elements * 4 / 2**30 / memory if memory else 0
    wanted = "error" if share >= 1 else "warning" if share >= 0.25 else "info" if elements >= 4.4e9 else None
    assert said == ([wanted] if wanted else [])
