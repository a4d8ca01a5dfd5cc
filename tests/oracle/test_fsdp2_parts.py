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


def test_units_of_their_own_share_no_weight() -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts.sharding import find_units

    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.positions = nn.Embedding(4, 2), nn.Embedding(3, 2)
            self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
            self.head, self.scores = nn.Linear(2, 4, bias=False), nn.Linear(2, 1)

    model = Tower()
    apart = [*model.blocks, model.embed, model.positions, model.head, model.scores]
    assert find_units(model) == apart
    model.head.weight = model.embed.weight
    assert find_units(model) == [*model.blocks, model.positions, model.scores]


@pytest.fixture
def alone(tmp_path: Any) -> Any:
    """A process group of this process alone: one that another test has left, or a new one."""
    import torch.distributed as dist

    own = not dist.is_initialized()
    if own:
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    assert dist.get_world_size() == 1
    yield
    if own:
        dist.destroy_process_group()


def test_masters_are_rounded_and_fp32_and_frozen_weights_are_16_bit(alone: None) -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts.sharding import frozen, prepare

    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    prepare(model, torch.device("cpu"))
    assert (model.weight.dtype, model.bias.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(model.weight, weight.bfloat16().float())
    assert torch.equal(model.bias, bias.bfloat16())
    assert frozen(model) == {model.bias}


def test_a_step_counts_and_a_step_that_is_not_finite_does_not(alone: None) -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts.sharding import parallelize
    from dsconf.formats.fsdp2.parts.step import evaluate, train_step

    model = parallelize(nn.Sequential(nn.ModuleList([nn.Linear(2, 2)])[0]), torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1**step)
    batches = [torch.ones(1, 2, dtype=torch.bfloat16)]

    def loss(module: nn.Module, batch: Any) -> Any:
        return module(batch).float().square().mean()

    before = evaluate(model, batches, loss)
    lost = train_step(model, optimizer, scheduler, batches, lambda m, b: loss(m, b) * float("inf"))
    assert (lost["skipped"], lost["lr"], optimizer.param_groups[0]["lr"]) == (True, 0.5, 0.5)
    assert evaluate(model, batches, loss) == before
    done = train_step(model, optimizer, scheduler, batches, loss)
    assert (done["skipped"], done["lr"], optimizer.param_groups[0]["lr"]) == (False, 0.5, 0.05)
    assert done["losses"] == before
    assert done["grad_norm"] > 0
    assert all(param.grad is None for param in model.parameters())
    assert evaluate(model, batches, loss)[0] < before[0]
    assert model.training


def test_a_checkpoint_brings_everything_back(alone: None, tmp_path: Any) -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts.checkpoint import full_state_dict, load_checkpoint, save_checkpoint
    from dsconf.formats.fsdp2.parts.sharding import parallelize

    model = parallelize(nn.Linear(2, 2), torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1**step)
    model(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    scheduler.step()
    saved = {name: weight.clone() for name, weight in full_state_dict(model).items()}
    save_checkpoint(tmp_path / "checkpoint", model, optimizer, scheduler, 7)
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
            optimizer.state[param]["exp_avg"].zero_()
    scheduler.step()
    assert load_checkpoint(tmp_path / "checkpoint", model, optimizer, scheduler) == 7
    assert all(torch.equal(weight, saved[name]) for name, weight in full_state_dict(model).items())
    assert all(state["exp_avg"].any() for state in optimizer.state.values())
    assert scheduler.last_epoch == 1
