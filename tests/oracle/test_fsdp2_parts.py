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


def test_units_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Accelerate's policy by size: whatever has more parameters, parts before what they are part of."""
    from accelerate.utils import FullyShardedDataParallelPlugin  # type: ignore[import-untyped]
    from accelerate.utils.fsdp_utils import (  # type: ignore[import-untyped]
        fsdp2_prepare_auto_wrap_policy,
    )
    from torch import nn

    from dsconf.formats.fsdp2.parts import sharding

    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(8, 8))
    model = nn.ModuleDict({"body": nn.Sequential(inner, nn.Linear(2, 2)), "head": nn.Linear(8, 9)})
    monkeypatch.setattr(sharding, "SIZED_BLOCKS", True)
    monkeypatch.setattr(sharding, "MIN_PARAMS", 72)
    found = sharding.find_blocks(model)
    assert found == [model["head"], inner, model["body"]]
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=72
    )
    policy = fsdp2_prepare_auto_wrap_policy(plugin, model)
    assert [module for module in reversed(list(model.modules())) if policy(module)][:-1] == found


@pytest.mark.parametrize("name", ["constant", "constant_with_warmup", "linear", "cosine"])
def test_schedules_of_transformers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import get_scheduler

    from dsconf.formats.fsdp2.parts import trainer_schedule

    for flag, on in {
        "WARMED_UP": name != "constant",
        "FALLS": name in ("linear", "cosine"),
        "COSINE": name == "cosine",
    }.items():
        monkeypatch.setattr(trainer_schedule, flag, on)
    monkeypatch.setattr(trainer_schedule, "WARMUP_STEPS", 5)
    monkeypatch.setattr(trainer_schedule, "TOTAL_STEPS", 20)

    def rates(build: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        scheduler, found = build(optimizer), []
        for _ in range(25):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return found

    theirs = rates(lambda optimizer: get_scheduler(name, optimizer, 5, 20))
    assert rates(trainer_schedule.build_scheduler) == theirs
    assert name == "constant" or len(set(theirs)) > 3


def test_recomputed_blocks_give_the_same_gradients() -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts.sharding import recomputed

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return torch.tanh(self.layer(x))

    torch.manual_seed(0)
    first, layers = nn.Linear(4, 4), nn.ModuleList([Block(), Block()])
    model = nn.ModuleDict({"first": first, "layers": layers})

    def gradients() -> list[Any]:
        x = first(torch.ones(2, 4))
        for block in layers:
            x = block(x)
        model.zero_grad()
        x.sum().backward()
        return [param.grad.clone() for param in model.parameters() if param.grad is not None]

    plain, blocks = gradients(), [*layers]
    assert [block.calls for block in blocks] == [1, 1]
    wrapped = recomputed(model)
    assert [*layers] == wrapped
    assert wrapped != blocks
    assert all(torch.equal(one, other) for one, other in zip(plain, gradients(), strict=True))
    assert [block.calls for block in blocks] == [3, 3], "once more in the backward pass"


def test_recomputed_blocks_are_divided_by_tensor_parallelism_too(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import nn
    from torch.distributed.tensor.parallel import ColwiseParallel

    from dsconf.formats.fsdp2.parts import sharding, tensor_parallel

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    monkeypatch.setattr(tensor_parallel, "TENSOR_SIZE", 1)
    monkeypatch.setattr(sharding, "TENSOR_PARALLEL", True)
    monkeypatch.setattr(sharding, "BLOCK_STYLES", {"layer": ColwiseParallel()})
    monkeypatch.setattr(sharding, "ROOT_STYLES", {})
    for flag in (False, True):
        monkeypatch.setattr(sharding, "RECOMPUTED", flag)
        model = sharding.parallelize(nn.Sequential(nn.ModuleList([Block()])), torch.device("cpu"))
        params: dict[str, Any] = dict(model.named_parameters())
        meshes = {name.split(".")[-2]: param.device_mesh.mesh_dim_names for name, param in params.items()}
        assert meshes == {"layer": ("dp", "tp"), "other": ("dp",)}


@pytest.mark.parametrize(
    ("flag", "casts"), [(None, (False, False)), ("ROOT_CASTS", (False, True)), ("UNITS_CAST", (True, True))]
)
def test_which_units_cast_their_inputs(
    alone: None, monkeypatch: pytest.MonkeyPatch, flag: str | None, casts: tuple[bool, bool]
) -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts import sharding

    if flag is not None:
        monkeypatch.setattr(sharding, flag, True)
    seen: list[Any] = []

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            seen.append(x.dtype)
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Block()])

        def forward(self, x: Any) -> Any:
            seen.append(x.dtype)
            return self.layers[0](x.float())

    sharding.parallelize(Model(), torch.device("cpu"))(torch.ones(2))
    block, root = ({True: torch.bfloat16, False: torch.float32}[cast] for cast in casts)
    assert seen == [root, block]


@pytest.mark.parametrize("skips", [True, False])
def test_a_step_that_is_not_finite_is_taken_only_where_nothing_is_left_out(
    alone: None, monkeypatch: pytest.MonkeyPatch, skips: bool
) -> None:
    from torch import nn

    from dsconf.formats.fsdp2.parts import step
    from dsconf.formats.fsdp2.parts.sharding import parallelize

    monkeypatch.setattr(step, "SKIPS", skips)
    model = parallelize(nn.Linear(2, 2), torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: 0.1**count)

    def lost(module: nn.Module, batch: Any) -> Any:
        return module(batch).float().square().mean() * float("inf")

    done = step.train_step(model, optimizer, scheduler, [torch.ones(1, 2, dtype=torch.bfloat16)], lost)
    assert done["skipped"] is skips
    assert optimizer.param_groups[0]["lr"] == (0.5 if skips else 0.05)
    weights = [param.full_tensor() for param in model.parameters()]  # type: ignore[attr-defined]
    assert all(bool(weight.isfinite().all()) is skips for weight in weights)
