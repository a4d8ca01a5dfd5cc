"""Emitted FSDP2 modules train as the real DeepSpeed does; broken ones are caught."""

from __future__ import annotations

from typing import Any

import pytest
from configs import ALL_AUTO

from .bench import (
    ACTIVE_CLIP,
    AS_IS,
    CLIPPED,
    EVALUATED,
    LLAMA,
    NEEDS_DEEPSPEED,
    RESUMED,
    TORCH_ADAMW,
    USUAL,
    Bench,
    Config,
    Edits,
    config,
    without,
)
from .compare import Crash, Mismatch, Parity, Verdict
from .run import run_cases

pytestmark = NEEDS_DEEPSPEED

WARMUP = {
    "type": "WarmupLR",
    "params": {"warmup_max_lr": 2e-2, "warmup_num_steps": 5, "warmup_type": "linear"},
}
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


ROUNDLESS: Config = {
    "gradient_clipping": 0.0,
    "optimizer": TORCH_ADAMW,
    "zero_optimization": {"stage": 3, "memory_efficient_linear": False},
}
"""What turns off the roundings of DeepSpeed that torch does not have."""
BF16, FP32 = config("bf16", 3), config("fp32", 3)

EXACT: dict[str, dict[str, Any]] = {
    f"{precision}-gas{steps}-{load}": {"run": config(precision, steps), "load_dtype": load}
    for precision in ("fp32", "bf16")
    for steps in (1, 3)
    for load in ("float32", "bfloat16")
} | {
    "warmup-linear": {"run": config("fp32", 3, scheduler=WARMUP)},
    "warmup-own-peak": {"run": config("bf16", 1, scheduler=OWN_PEAK)},
    "reduce-fp32": {"run": config("bf16", 3, communication_data_type="fp32"), "load_dtype": "bfloat16"},
    "unclipped": {"run": config("bf16", 3, gradient_clipping=0.0)},
    "adam-is-adamw": {"run": config("fp32", 1, optimizer=TORCH_ADAMW | {"type": "Adam"})},
    "total-batch": {"run": config("fp32", 3, train_batch_size=12)},
    "no-accumulation-dtype": {"run": config("bf16", 1, data_types={})},
    "overflow-fp32": {"run": FP32, "inf_at": 3},
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
    "as-is-exact-fp32": {"run": config("fp32", 3, **ROUNDLESS), "exact": False},
    "as-is-exact-bf16": {"run": config("bf16", 3, **ROUNDLESS), "exact": False},
}
"""Runs whose losses and weights have to be equal bit for bit."""

CLOSE: dict[str, dict[str, Any]] = {
    "clipped-gas1": {"run": config("fp32", 1, **CLIPPED), "tolerance": ACTIVE_CLIP},
    "clipped-gas3": {"run": config("fp32", 3, **CLIPPED), "tolerance": ACTIVE_CLIP},
    "clipped-by-default": {"run": without(FP32, "gradient_clipping"), "tolerance": ACTIVE_CLIP},
    "as-is-fp32": {"run": config("fp32", 3, **USUAL), "exact": False, "tolerance": AS_IS["fp32"]},
    "as-is-fp32-clipped": {"run": config("fp32", 1, **CLIPPED), "exact": False, "tolerance": AS_IS["fp32"]},
    "as-is-bf16": {"run": config("bf16", 1, **USUAL), "exact": False, "tolerance": AS_IS["bf16"]},
    "as-is-bf16-sum": {"run": config("bf16", 3, **USUAL), "exact": False, "tolerance": AS_IS["bf16"]},
    "as-is-bf16-clipped": {"run": config("bf16", 3, **CLIPPED), "exact": False, "tolerance": AS_IS["bf16"]},
}
"""Runs that differ by rounding only, with the bounds that the report tells."""

STARTS = "    losses: list[torch.Tensor] = []\n    for batch in micro"

EDITS: dict[str, tuple[str, Edits]] = {
    "no division by GAS": ("bf16", {"(loss / GRADIENT_ACCUMULATION_STEPS).backward()": "loss.backward()"}),
    "optimizer before sharding": (
        "bf16",
        {
            "    mesh = init_device_mesh": "    model.early = list(model.parameters())\n    mesh = init_device_mesh",
            "for param in model.parameters() if param.requires_grad]": "for param in model.early]",
        },
    ),
    "missing broadcast": (
        "bf16",
        {"        dist.broadcast(param.data, src=0)  # DeepSpeed starts every rank from rank 0's weights\n": ""},
    ),
    "wrong weight decay": ("bf16", {"WEIGHT_DECAY = 0.1 ": "WEIGHT_DECAY = 0.01 "}),
    "no grad_norm": ("bf16", {'"grad_norm": grad_norm': '"grad_norm": None'}),
    "Adam for AdamW": ("fp32", {"torch.optim.AdamW(": "torch.optim.Adam("}),
    "fp32 reduction": ("bf16", {"REDUCE_DTYPE = torch.bfloat16": "REDUCE_DTYPE = torch.float32"}),
    "input casts": ("bf16", {"cast_forward_inputs=False": "cast_forward_inputs=True"}),
    "masters not rounded": (
        "bf16",
        {"        param.data = param.data.to(PARAM_DTYPE)  # DeepSpeed makes its masters from the 16-bit model\n": ""},
    ),
    "schedule off by one": ("fp32", {"factor(applied - 1)": "factor(applied)"}),
    "no clipping": ("clipped", {"CLIP_NORM = 0.1": "CLIP_NORM = 1000.0"}),
    "no overflow skip": ("overflow", {"skipped = not math.isfinite(grad_norm)": "skipped = False"}),
    "scheduler stepped on a skip": (
        "overflow",
        {"        if scheduler is not None:\n            sched": "    if scheduler is not None:\n            sched"},
    ),
    "masters not fp32": (
        "loaded",
        {"        if param.requires_grad:\n            param.data = param.data.float()\n": ""},
    ),
}  # fmt: skip


MUTATED: dict[str, dict[str, Any]] = {
    "bf16": {"run": BF16},
    "fp32": {"run": FP32},
    "clipped": {"run": config("fp32", 3, **CLIPPED), "tolerance": ACTIVE_CLIP},
    "overflow": {"run": FP32, "inf_at": 3},
    "loaded": {"run": BF16, "load_dtype": "bfloat16"},
}
"""The runs that mutants change; all of them pass above without the change."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("fsdp2"))


@pytest.fixture(scope="module")
def verdicts(bench: Bench) -> dict[str, Verdict]:
    """The verdicts of all cases, run in one launch a side."""
    cases = [bench.case(name, **settings) for name, settings in (EXACT | CLOSE).items()]
    cases += [bench.case(name, edits=edits, **MUTATED[run]) for name, (run, edits) in EDITS.items()]
    cases.append(bench.case("crash", BF16, edits={STARTS: STARTS.replace("[]", "[][0]")}))
    return run_cases(cases)


@pytest.mark.parametrize("name", EXACT)
def test_trains_bit_for_bit(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Parity), verdict
    assert verdict.differences.loss == verdict.differences.update == 0


@pytest.mark.parametrize("name", CLOSE)
def test_trains_within_rounding(verdicts: dict[str, Verdict], name: str) -> None:
    assert isinstance(verdicts[name], Parity), verdicts[name]


@pytest.mark.parametrize("name", EDITS)
def test_mutants_are_caught(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert isinstance(verdict, Mismatch), verdict


@pytest.mark.parametrize("name", EXACT | CLOSE)
def test_the_report_promises_no_more_than_was_measured(
    bench: Bench, verdicts: dict[str, Verdict], name: str
) -> None:
    """A config that runs as it is written is called exact where it was bit for bit equal, and close elsewhere."""
    as_is = not (EXACT | CLOSE)[name].get("exact", True)
    assert bench.overall[name] == ("exact" if as_is and name in EXACT else "close")


def test_a_missing_division_shows_in_the_norm(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["no division by GAS"]
    assert isinstance(verdict, Mismatch)
    assert verdict.differences.norm > 1  # three times the norm: Adam hides it from the weights


def test_a_crash_is_no_mismatch(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["crash"]
    assert isinstance(verdict, Crash)
    assert "IndexError" in verdict.text
