"""Emitted FSDP2 modules train as the real DeepSpeed does, whatever is around the settings of the matrix."""

from __future__ import annotations

from typing import Any

import pytest
from configs import ALL_AUTO

from .bench import EVALUATED, LLAMA, NEEDS_DEEPSPEED, RESUMED, Bench, Config, config, without
from .compare import Parity, Verdict
from .run import Case

pytestmark = NEEDS_DEEPSPEED

OWN_PEAK = {"type": "WarmupLR", "params": {"warmup_num_steps": 6}}
GIVEN = """
_parallelize, _build_optimizer = parallelize, build_optimizer
_build_scheduler, _train_step = build_scheduler, train_step


def parallelize(model, device):
    return _parallelize(model, device, param_dtype=torch.bfloat16)


def build_optimizer(model):
    return _build_optimizer(model, lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8)


def build_scheduler(optimizer):
    return _build_scheduler(
        optimizer, warmup_min_lr=1e-3, warmup_max_lr=1e-2, warmup_steps=4, total_steps=12
    )


def train_step(*args):
    return _train_step(*args, gradient_accumulation_steps=3, clip_norm=1000.0)
"""

OWN_OPTIMIZER = """


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
"""

LEFT_TO_TRAINER: Config = ALL_AUTO | {
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
    "data_types": {"grad_accum_dtype": "fp32"},
}


BF16, FP32 = config("bf16", 3), config("fp32", 3)

EXACT: dict[str, dict[str, Any]] = {
    "warmup-own-peak": {"run": config("bf16", 1, scheduler=OWN_PEAK)},
    "total-batch": {"run": config("fp32", 3, train_batch_size=12)},
    "overflow-bf16": {"run": config("bf16", 3, gradient_clipping=0.0), "inf_at": 0},
    "overflow-unchecked": {
        "run": config("bf16", 1, bf16={"enabled": True, "check_grad_overflow": False}),
        "inf_at": 3,
    },
    "frozen-fp32": {"run": FP32, "freeze": ["embed", "blocks.0"]},
    "frozen-bf16": {"run": BF16, "freeze": ["embed"], "load_dtype": "bfloat16"},
    "left-to-trainer": {"run": BF16, "source": LEFT_TO_TRAINER, "tail": GIVEN},
    "own-optimizer": {"run": BF16, "source": without(BF16, "optimizer"), "tail": OWN_OPTIMIZER},
    "resumed": {"run": BF16, "tail": RESUMED},
    "evaluated": {"run": BF16, "tail": EVALUATED},
    "llama": {"run": BF16, "workload": LLAMA, "load_dtype": "bfloat16"},
}
"""Runs whose losses and weights have to be equal bit for bit."""


def cases(bench: Bench) -> list[Case]:
    """What this file wants to be run."""
    return [bench.case(name, **settings) for name, settings in EXACT.items()]


@pytest.mark.parametrize("name", EXACT)
def test_trains_bit_for_bit(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.loss == verdict.differences.update == 0
