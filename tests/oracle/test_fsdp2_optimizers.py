"""The optimizers of emitted modules against DeepSpeed's, in one process."""

from __future__ import annotations

import importlib
import inspect
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from configs import config_of

from dsconf.config.derive import facts_of
from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS
from dsconf.formats.deepspeed.read import read
from dsconf.formats.fsdp2.write import write
from dsconf.formats.writing import Request
from dsconf.plan import OPTIMIZERS

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytestmark = pytest.mark.oracle

Params = dict[str, Any]
TORCH = sorted(name for name in OPTIMIZERS if hasattr(torch.optim, name) and name != "Muon")


def emitted(kind: str, params: Params, **sections: Any) -> dict[str, Any]:
    """The definitions of the module that an optimizer section is translated to."""
    reading = read(config_of({"optimizer": {"type": kind, "params": params}} | sections))
    labels = dict.fromkeys(reading.fields.values(), "a key")
    definitions: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(write(reading.plan, Request("x", labels)).text, "emitted", "exec"), definitions)
    return definitions


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(7, 9)


def train(net: Any, optimizer: Any, steps: int = 20) -> list[Any]:
    """The weights after steps on the same gradients, of which a row is always 0 and another one -0."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for param in net.parameters():
            param.grad = torch.randn(param.shape, generator=generator)
            param.grad[0], param.grad[1] = 0.0, -0.0
        optimizer.step()
    return [param.detach() for param in net.parameters()]


@pytest.mark.parametrize("name", TORCH)
def test_arguments_and_defaults_are_torchs(name: str) -> None:
    signature = inspect.signature(getattr(torch.optim, name)).parameters
    assert set(OPTIMIZERS[name]) <= set(OPTIMIZER_ARGUMENTS[f"torch.optim.{name}"].split()) & set(signature)
    left_out = set(OPTIMIZER_ARGUMENTS[f"torch.optim.{name}"].split()) & set(signature) - set(
        OPTIMIZERS[name]
    )
    assert left_out <= {"foreach", "capturable", "differentiable"}
    facts = facts_of(
        config_of({"optimizer": {"type": name, "params": {"torch_adam": True, "adam_w_mode": False}}})
    )
    assert facts.value("learning_rate") == signature["lr"].default
    assert facts.value("weight_decay") == signature["weight_decay"].default


@pytest.mark.parametrize("name", TORCH)
def test_an_optimizer_without_arguments_is_torchs(name: str) -> None:
    params: Params = {"torch_adam": True, "adam_w_mode": False} if name in ("Adam", "AdamW") else {}
    ours, theirs = model(), model()
    built = emitted(name, params)["build_optimizer"](ours)
    assert type(built) is getattr(torch.optim, name)
    found = train(ours, built)
    for want, got in zip(train(theirs, getattr(torch.optim, name)(theirs.parameters())), found, strict=True):
        assert torch.equal(want, got)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lion_is_deepspeeds_cpu_kernel(decay: float) -> None:
    """Also where the gradient is 0: the kernel takes the sign bit, and moves the weight."""
    params: Params = {"lr": 1e-2, "betas": [0.9, 0.95], "weight_decay": decay}
    ours, theirs = model(), model()
    offload = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    optimizer = emitted("Lion", params, **offload)["build_optimizer"](ours)
    lion = importlib.import_module("deepspeed.ops.lion").DeepSpeedCPULion
    start = [param.detach().clone() for param in theirs.parameters()]
    want = train(theirs, lion(theirs.parameters(), **params))
    for begin, reference, found in zip(start, want, train(ours, optimizer), strict=True):
        assert torch.allclose(reference, found, rtol=0, atol=1e-6)
        assert ((reference - begin).abs()[:2] > 0.05).all()


def test_lion_is_deepspeeds_gpu_kernel() -> None:
    """The kernel itself needs a GPU: this is its loop, with the lines that decide taken from its source."""
    deepspeed = Path(importlib.import_module("deepspeed").__file__ or "").parent
    source = (deepspeed / "ops/csrc/lion/multi_tensor_lion.cu").read_text(encoding="utf-8")
    for line in (
        "MATH_T after_decay = 1.0f - lr * decay;",
        "MATH_T c = beta1 * r_m[ii] + (1 - beta1) * r_g[ii];",
        "MATH_T update = c > 0 ? (-lr) : lr;",
        "r_p[ii] = r_p[ii] * after_decay + update;",
        "r_m[ii] = beta2 * r_m[ii] + (1 - beta2) * r_g[ii];",
    ):
        assert line in source
    lr, beta1, beta2, decay = 1e-2, 0.9, 0.95, 0.1
    params = {"lr": lr, "betas": [beta1, beta2], "weight_decay": decay}
    net = torch.nn.Linear(1, 1, bias=False)
    optimizer = emitted("Lion", params)["build_optimizer"](net)
    weight, momentum = net.weight.item(), 0.0
    for grad in (0.0, 1.0, -3.0, 0.0, 0.1, -0.0, -1e-3, 5.0):
        net.weight.grad = torch.full((1, 1), grad)
        optimizer.step()
        average = beta1 * momentum + (1 - beta1) * grad
        weight = weight * (1 - lr * decay) + (-lr if average > 0 else lr)
        momentum = beta2 * momentum + (1 - beta2) * grad
        assert math.isclose(net.weight.item(), weight, abs_tol=1e-6)


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_is_deepspeeds_kernel(kind: str, corrected: bool, decoupled: bool) -> None:
    params: Params = {"lr": 1e-2, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}
    ours, theirs = model(), model()
    written = params | {"bias_correction": corrected, "adam_w_mode": decoupled}
    optimizer = emitted(kind, written)["build_optimizer"](ours)
    kernel = importlib.import_module("deepspeed.ops.adam").FusedAdam
    effective = decoupled or kind == "AdamW"
    built = kernel(theirs.parameters(), **params, bias_correction=corrected, adam_w_mode=effective)
    for want, got in zip(train(theirs, built), train(ours, optimizer), strict=True):
        assert torch.allclose(want, got, rtol=0, atol=1e-6)
    assert type(optimizer).__name__ == (
        "UncorrectedAdam" if not corrected else "AdamW" if effective else "Adam"
    )


def small() -> Any:
    """One hidden matrix, and three parameters that are none."""
    torch.manual_seed(0)
    head = torch.nn.Linear(12, 5, bias=False)
    return torch.nn.ModuleDict(
        {"embed": torch.nn.Embedding(5, 8), "hidden": torch.nn.Linear(8, 12), "lm_head": head}
    )


MUON: Params = {"lr": 1e-2, "adam_lr": 1e-3, "weight_decay": 0.1}


@pytest.mark.parametrize("method", ["standard", "gram"])
def test_muon_is_deepspeeds_without_zero(method: str) -> None:
    """Without ZeRO, and so without its order of clipping, only the rounding of the iteration differs."""
    muon = importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer").MuonWithAuxAdam
    ours, theirs = small(), small()
    optimizer = emitted("Muon", MUON | {"ns_method": method})["build_optimizer"](ours)
    hidden = {"params": [theirs["hidden"].weight], "use_muon": True, "lr": 1e-2, "ns_method": method}
    others = [param for name, param in theirs.named_parameters() if name != "hidden.weight"]
    groups = [
        hidden | {"weight_decay": 0.1},
        {"params": others, "use_muon": False, "lr": 1e-3, "weight_decay": 0.1},
    ]
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 3]
    start = [param.detach().clone() for param in theirs.parameters()]
    with torch.compiler.set_stance("force_eager"):
        want, found = train(theirs, muon(groups)), train(ours, optimizer)
    for begin, reference, got in zip(start, want, found, strict=True):
        assert (reference - got).norm() <= 0.02 * (reference - begin).norm()


def test_muon_resumes_where_it_was() -> None:
    build = emitted("Muon", MUON)["build_optimizer"]
    first, second = small(), small()
    ahead, resumed = build(first), build(second)
    train(first, ahead)
    second.load_state_dict(first.state_dict())
    resumed.load_state_dict(deepcopy(ahead.state_dict()))
    for want, got in zip(train(first, ahead), train(second, resumed), strict=True):
        assert torch.equal(want, got)
