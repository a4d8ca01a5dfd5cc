"""The parts of emitted modules, called as they stand, against DeepSpeed and torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytestmark = pytest.mark.oracle


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

    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="after the first optimizer step"):
        save_checkpoint(tmp_path, model, torch.optim.AdamW(model.parameters()), None, 0)
