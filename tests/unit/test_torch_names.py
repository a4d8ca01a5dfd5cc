"""Emitted modules use only names that the torch they are for has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dsconf.cli import main
from dsconf.formats.fsdp2.torch_names import DATA, OLDEST, exists, numbers, since, used_names

PARTS = sorted((DATA.parent / "parts").glob("*.py"))
BASE: dict[str, Any] = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
BF16: dict[str, Any] = BASE | {"bf16": {"enabled": True}}
SOURCES: dict[str, dict[str, Any]] = {
    **{f"zero{stage}": BF16 | {"zero_optimization": {"stage": stage}} for stage in range(4)},
    "offload": BF16 | {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}},
    "fp16": BASE | {"fp16": {"enabled": True}, "zero_optimization": {"stage": 2}},
    "muon": BF16 | {"zero_optimization": {"stage": 2}, "optimizer": {"type": "Muon", "params": {"lr": 0.1}}},
    "nadam": BF16
    | {"zero_optimization": {"stage": 3}, "zero_allow_untested_optimizer": True}
    | {"optimizer": {"type": "NAdam", "params": {"lr": 0.1, "decoupled_weight_decay": True}}},
    "sum": BF16 | {"zero_optimization": {"stage": 0}, "gradient_allreduce_op": "sum"},
    "cycle": BF16
    | {"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}
    | {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}}},
}
NEWER = {
    "muon": "torch.optim.Muon",
    "sum": "torch.distributed.fsdp.FSDPModule.set_force_sum_reduction_for_comms",
}
"""What torch 2.6 lacks for a source."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def translate(source: dict[str, Any], *args: str) -> Result:
    Path("ds_config.json").write_text(json.dumps(source), encoding="utf-8")
    return CliRunner().invoke(main, ["translate", "ds_config.json", "--to", "fsdp2", *args])


def test_names_are_found_however_they_are_written() -> None:
    code = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard as shard
def f(model):
    dist.broadcast(model.weight, src=0)
    shard(model, mesh=None)
    model.set_requires_gradient_sync(True)
    return nn.Linear(1, 2, bias=False)
"""
    assert used_names(code) == {
        "torch",
        "torch.distributed",
        "torch.distributed.broadcast",
        "torch.distributed.broadcast(src)",
        "torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync",
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed.fsdp.fully_shard(mesh)",
        "torch.nn",
        "torch.nn.Linear",
        "torch.nn.Linear(bias)",
    }


@pytest.mark.parametrize("part", PARTS, ids=lambda path: path.stem)
def test_every_name_of_a_part_was_looked_up(part: Path) -> None:
    """A part that uses a new one needs `python -m tools.torch_names`."""
    known = set(json.loads(DATA.read_text(encoding="utf-8"))["names"])
    assert used_names(part.read_text(encoding="utf-8")) <= known


def test_versions_are_compared_as_numbers() -> None:
    name = "torch.distributed.fsdp.fully_shard(ignored_params)"
    assert since(name) == "2.9"
    assert [exists(name, version) for version in ("2.6", "2.8.1", "2.9", "2.10.0", None)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert exists("torch.distributed.fsdp.fully_shard", OLDEST)


@pytest.mark.parametrize("version", ["2.6", "2.9", "2.13", None])
@pytest.mark.parametrize("name", SOURCES)
def test_modules_use_only_what_exists(name: str, version: str | None) -> None:
    done = translate(SOURCES[name], *(["--torch-version", version] if version else []))
    if version == "2.6" and name in NEWER:
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"{NEWER[name]} exists since torch 2.9" in done.stderr
        forced = translate(SOURCES[name], "--torch-version", version, "--force").stdout
        assert "not as DeepSpeed trains with it. Left out by dsconf" in forced
        return
    assert done.exit_code == 0, done.stderr
    newest = max((since(used) for used in used_names(done.stdout)), key=numbers)
    needed = done.stdout.partition("For torch >= ")[2].partition(",")[0]
    assert numbers(newest) <= numbers(needed) <= numbers(version or "2.13")


def test_on_torch_2_6_frozen_parameters_are_gathered_and_the_cpu_is_left_out() -> None:
    old, new = (translate(SOURCES["zero2"], "--torch-version", v).stdout for v in ("2.6.1", "2.9.0"))
    assert "For torch >= 2.6, on CUDA (nccl); on CPU (gloo) from 2.9." in old
    assert "For torch >= 2.9, on CUDA (nccl) and CPU (gloo)." in new
    assert ("ignored_params=" in old, "ignored_params=" in new) == (False, True)
    report = translate(SOURCES["zero2"], "--torch-version", "2.6.1").stderr
    assert "parameters that don't train are gathered as well: ignored_params exists since torch 2.9" in report


def test_torch_without_fsdp2() -> None:
    done = translate(SOURCES["zero3"], "--torch-version", "2.4.0")
    assert done.exit_code == 2
    assert "torch 2.4.0 has no public FSDP2: it needs 2.6 or newer" in done.stderr
