"""Mistakes that a translator of DeepSpeed could make: each is caught by the cell meant for it.

A mutant is an edit of an emitted module that applies exactly once.  Every cell passes without the edit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from .bench import (
    ACTIVE_CLIP,
    AS_IS,
    CLIPPED,
    NEEDS_DEEPSPEED,
    RESUMED,
    Bench,
    Config,
    Edits,
    config,
)
from .compare import Crash, Mismatch, Parity, Verdict
from .run import Case, run_cases

pytestmark = NEEDS_DEEPSPEED

Settings = dict[str, Any]


def at(stage: int, precision: str, steps: int, **changes: Any) -> Config:
    """A config of a stage, with all that `config` puts in motion, and gradients summed in the dtype of the model."""
    return config(precision, steps, **{"zero_optimization": {"stage": stage}, "data_types": {}, **changes})


def scaled(power: int = 20, **scaling: Any) -> Config:
    """fp16; with so large a scale the first steps overflow."""
    return at(2, "fp32", 1, fp16={"enabled": True, "initial_scale_power": power, **scaling})


def optimizer(kind: str, **params: Any) -> Config:
    """A section without a weight decay."""
    return {"type": kind, "params": {"lr": 1e-2, **params}}


PREDIVIDED = at(1, "fp32", 3, gradient_predivide_factor=4.0)
SHORT_DECAY = {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 4, "total_num_steps": 12}}
SGD = {"type": "SGD", "params": {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}}
GROUPED = config("fp32", 3, zero_optimization={"stage": 3, "zero_hpz_partition_size": 2})

CELLS: dict[str, Settings] = {
    "bf16": {"run": config("bf16", 3)},
    "fp32": {"run": config("fp32", 3)},
    "bf16 stage 1": {"run": at(1, "bf16", 3)},
    "fp32 stage 0": {"run": at(0, "fp32", 3)},
    "loaded in bf16": {"run": config("bf16", 3), "load_dtype": "bfloat16"},
    "clipped": {"run": config("fp32", 3, **CLIPPED), "tolerance": ACTIVE_CLIP},
    "overflow": {"run": config("fp32", 3), "inf_at": 3},
    "SGD": {"run": config("fp32", 3, optimizer=SGD, zero_allow_untested_optimizer=True)},
    "Adam": {"run": config("fp32", 3, optimizer=optimizer("Adam", weight_decay=0.1))},
    "no weight decay": {"run": config("fp32", 3, optimizer=optimizer("AdamW"))},
    "no peak": {"run": config("fp32", 3, scheduler=SHORT_DECAY)},
    "predivided": {"run": PREDIVIDED},
    "fp16": {"run": scaled(), "steps": 12},
    "fp16 static": {"run": scaled(loss_scale=1000)},
    "fp16 resumed": {
        "run": scaled(18),
        "tail": RESUMED.replace("scheduler.last_epoch = 0", "loss_scaler.scale = 2.0"),
    },
}
"""The cells, by what they are about."""


class Mutant(NamedTuple):
    """An edit, and the cell that catches it."""

    cell: str
    edits: Edits


DIVIDED = "(loss / GRADIENT_ACCUMULATION_STEPS).backward()"
SHARDED = "    return model\n\n\ndef build_optimizer"
LOOP = "    for batch in micro_batches:\n"
BROADCAST = "        dist.broadcast(param.data, src=0)  # every rank starts from rank 0's weights\n"
ROUNDED = "        param.data = param.data.to(PARAM_DTYPE)  # masters start from the 16-bit model\n"
MASTERS = "        if param.requires_grad:\n            param.data = param.data.float()\n"

MUTANTS: dict[str, Mutant] = {
    "Adam for Adam": Mutant("Adam", {"torch.optim.AdamW(": "torch.optim.Adam("}),
    "input casts": Mutant("bf16", {"cast_forward_inputs=False": "cast_forward_inputs=True"}),
    "fp32 reduce where DeepSpeed reduces bf16": Mutant(
        "bf16", {"REDUCE_DTYPE = torch.bfloat16": "REDUCE_DTYPE = torch.float32"}
    ),
    "set_gradient_divide_factor for predivide": Mutant(
        "predivided",
        {
            SHARDED: "    for module in model.modules():\n"
            "        if hasattr(module, 'set_gradient_divide_factor'):\n"
            "            module.set_gradient_divide_factor(4.0)\n"
            "            module.set_force_sum_reduction_for_comms(True)  # gloo can't divide\n" + SHARDED
        },
    ),
    "no overflow skip": Mutant("overflow", {"skipped = not math.isfinite(grad_norm)": "skipped = False"}),
    "scheduler off by one": Mutant("fp32", {"factor(applied - 1)": "factor(applied)"}),
    "weight decay default": Mutant("no weight decay", {", weight_decay=WEIGHT_DECAY": ""}),
    "decay max lr default": Mutant("no peak", {"WARMUP_MAX_LR = 0.001 ": "WARMUP_MAX_LR = LR "}),
    "sync on last only at stage 3": Mutant(
        "bf16",
        {
            LOOP: "    micro_batches = list(micro_batches)\n"
            + LOOP
            + "        model.set_requires_gradient_sync(len(losses) + 1 == len(micro_batches))\n"
        },
    ),
    "missing broadcast": Mutant("bf16", {BROADCAST: ""}),
    "GAS division": Mutant("SGD", {DIVIDED: "loss.backward()"}),
    "missing 1/GAS with Adam": Mutant("fp32", {DIVIDED: "loss.backward()"}),
    "masters not fp32 for a bf16-loaded model": Mutant("loaded in bf16", {MASTERS: ""}),
    "masters not rounded": Mutant("bf16", {ROUNDED: ""}),
    "optimizer before sharding": Mutant(
        "bf16",
        {
            "    mesh = init_device_mesh": "    model.early = list(model.parameters())\n    mesh = init_device_mesh",
            "for param in model.parameters() if param.requires_grad]": "for param in model.early]",
        },
    ),
    "wrong weight decay": Mutant("bf16", {"WEIGHT_DECAY = 0.1 ": "WEIGHT_DECAY = 0.01 "}),
    "no grad_norm": Mutant("bf16", {'"grad_norm": grad_norm': '"grad_norm": None'}),
    "no clipping": Mutant("clipped", {"CLIP_NORM = 0.1": "CLIP_NORM = 1000.0"}),
    "scheduler stepped on a skip": Mutant(
        "overflow",
        {"        if scheduler is not None:\n            sched": "    if scheduler is not None:\n            sched"},
    ),
    "stage 1 reduces each micro batch": Mutant(
        "bf16 stage 1", {"        model.set_requires_gradient_sync(is_last)\n": ""}
    ),
    "stage 0 never reduces": Mutant(
        "fp32 stage 0", {"set_requires_gradient_sync(is_last)": "set_requires_gradient_sync(False)"}
    ),
    "stage 0 divides the optimizer's state": Mutant(
        "fp32 stage 0", {"(dist.get_world_size(), 1), mesh": "(1, dist.get_world_size()), mesh"}
    ),
    "predivision without multiplication": Mutant(
        "predivided", {DIVIDED: "(loss / GRADIENT_ACCUMULATION_STEPS / 4).backward()"}
    ),
    "gradients keep the scale": Mutant("fp16 static", {"param.grad.mul_(1 / scale)": "pass"}),
    "the scale never falls": Mutant("fp16", {"    loss_scaler.update(skipped)\n": ""}),
    "no hysteresis": Mutant(
        "fp16",
        {"= LOSS_SCALE\n        self.overflows_left = HYSTERESIS": "= LOSS_SCALE\n        self.overflows_left = 1"},
    ),
    "the scale is lost with a checkpoint": Mutant(
        "fp16 resumed", {'    vars(loss_scaler).update(state["loss_scaler"])\n': ""}
    ),
}  # fmt: skip

HSDP: Edits = {
    "(dist.get_world_size(),), mesh_dim_names=(": "(dist.get_world_size() // 2, 2), mesh_dim_names=('copies', ",
    "RESHARD_AFTER_FORWARD = 2 ": "RESHARD_AFTER_FORWARD = True ",
}
"""hpZ as HSDP, which needs four ranks: both keep the weights in groups of two, but hpZ divides the state over all."""

STARTS = "    losses: list[torch.Tensor] = []\n    for batch in micro"


def cases(bench: Bench) -> list[Case]:
    """The cells, and the mutants of their modules."""
    found = [bench.case(name, **settings) for name, settings in CELLS.items()]
    found += [
        bench.case(f"mutant {name}", edits=edits, **CELLS[cell]) for name, (cell, edits) in MUTANTS.items()
    ]
    return [*found, bench.case("crash", edits={STARTS: STARTS.replace("[]", "[][0]")}, **CELLS["bf16"])]


@pytest.fixture(scope="module")
def on_four_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdicts of hpZ, and of HSDP in its place."""
    bench = Bench(tmp_path_factory.mktemp("groups"))
    settings: Settings = {"run": GROUPED, "tolerance": ACTIVE_CLIP}
    cases = [bench.case("hpZ", **settings), bench.case("HSDP", edits=HSDP, **settings)]
    assert bench.overall["hpZ"] == "close"
    return run_cases(cases, ranks=4)


@pytest.mark.parametrize("cell", CELLS)
def test_the_cells_pass(verdicts: dict[str, Verdict], cell: str) -> None:
    assert isinstance(verdicts[cell], Parity), verdicts[cell]


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[f"mutant {name}"]
    assert isinstance(verdict, Mismatch), verdict


def test_a_missing_division_shows_in_the_norm_only(verdicts: dict[str, Verdict]) -> None:
    """Adam hides a factor of 3 in every gradient from the losses and from the weights."""
    verdict = verdicts["mutant missing 1/GAS with Adam"]
    assert isinstance(verdict, Mismatch)
    assert verdict.differences.norm > 1
    assert verdict.differences.loss < AS_IS["bf16"].loss
    assert verdict.differences.update < AS_IS["bf16"].update


def test_groups_that_keep_the_weights(on_four_ranks: dict[str, Verdict]) -> None:
    assert isinstance(on_four_ranks["hpZ"], Parity), on_four_ranks["hpZ"]


def test_hpz_as_hsdp_is_caught(on_four_ranks: dict[str, Verdict]) -> None:
    """The numbers are the same; what differs is how many copies of the optimizer's state there are."""
    verdict = on_four_ranks["HSDP"]
    assert isinstance(verdict, Mismatch), verdict
    assert len(verdict.reasons) == 1
    assert "elements of moments" in verdict.reasons[0]


def test_a_crash_is_no_mismatch(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["crash"]
    assert isinstance(verdict, Crash)
    assert "IndexError" in verdict.text
