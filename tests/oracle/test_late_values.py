"""What DeepSpeed looks at late: values of AutoEP, text for torch, sections without a type, elastic checkpoints."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from .engine import TORCH_ADAM, errors, finding, initialize, moment, step
from .judge import Config

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("process_group")]

VALUES: dict[str, list[object]] = {
    "preset_model": [None, "mixtral", "gpt2", 1],
    "score_apply": ["pre", "mid"],
    "score_func": ["sigmoid", "relu"],
    "combine_impl": ["legacy_bmm", "sum"],
    "row_weighting_impl": ["eager", "lazy"],
    "gate_up_impl": ["separate", "both"],
    "comm_backend": ["comm", "nccl", None],
    "expert_activation": [None, "swiglu", "gelu"],
    "comm_num_sm": [1, 0, 1.5, "4", None],
    "comm_qp_margin": [0, -1, 2.0],
    "comm_max_tokens_per_rank": [0, -1, 8, "8"],
}


@pytest.mark.parametrize("key", VALUES)
def test_values_of_autoep(key: str) -> None:
    autoep = importlib.import_module("deepspeed.module_inject.auto_ep_config")
    for value in VALUES[key]:
        section = {"enabled": True, key: value}
        try:
            autoep.validate_autoep_config(autoep.parse_autoep_config(section), 8, 1, 1, 1)
            refused = False
        except ValueError:
            refused = True
        said = finding("autoep-invalid-value", {"expert_parallel": section}, world_size=8)
        assert (said is not None) == refused, value


@pytest.mark.parametrize("key", ["lr", "eps", "weight_decay"])
@pytest.mark.parametrize("kind", ["AdamW", "Adagrad", "RMSprop"])
def test_torch_looks_at_text_at_once(kind: str, key: str) -> None:
    params: Config = {**(TORCH_ADAM["params"] if kind == "AdamW" else {}), key: "0.1"}
    config: Config = {"optimizer": {"type": kind, "params": params}}
    assert {each.fails for each in errors(config)} == {moment(config)[0]} == {"init"}


def test_sections_without_a_type_build_nothing() -> None:
    optimizer: Config = {"optimizer": {"params": {"lr": 0.1}}}
    assert initialize(optimizer).optimizer is None
    assert finding("optimizer-without-type", optimizer)
    schedule: Config = {"optimizer": TORCH_ADAM, "scheduler": {"params": {"warmup_num_steps": 2}}}
    assert initialize(schedule).lr_scheduler is None
    assert finding("scheduler-without-type", schedule)


@pytest.mark.parametrize("elastic", [True, False])
@pytest.mark.parametrize("stage", [1, 2])
def test_elastic_checkpoints_are_not_loaded(stage: int, elastic: bool, tmp_path: Path) -> None:
    config: Config = {
        "optimizer": TORCH_ADAM,
        "zero_optimization": {"stage": stage, "elastic_checkpoint": elastic},
    }
    engine = initialize(config)
    assert step(engine) is None
    engine.save_checkpoint(str(tmp_path))
    said = finding("elastic-checkpoint", config)
    again = initialize(config)
    if said is None:
        again.load_checkpoint(str(tmp_path))
    else:
        with pytest.raises(AssertionError):
            again.load_checkpoint(str(tmp_path))
    assert (said is not None) == elastic
