"""Writes the optimizer: its class, whose kernel computes it, and its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS
from dsconf.formats.deepspeed.write_draft import Draft
from dsconf.formats.outcome import Outcome
from dsconf.plan import Optimizer, Unresolved, Warmup

_PREFIX = "optimizer.params."
_ADAM: Mapping[str, object] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
"""torch's defaults; that of weight_decay is 0 in Adam."""
_ONE_GROUP = "in the config weight decay has one value for all weights, biases and norms too"
_GROUPS = "give deepspeed.initialize two groups as model_parameters, one of them with weight_decay 0"
_KERNEL = "DeepSpeed's own kernel rounds differently from torch.optim.{}"
_SLOW = "torch_adam: false takes DeepSpeed's own Adam, which is faster and rounds differently"


def write_optimizer(draft: Draft) -> None:
    """Write the section; nothing where the Plan has no optimizer, which the script then builds."""
    optimizer = draft.plan.optimizer
    if optimizer is None:
        return
    _build(draft, optimizer)
    field = "optimizer.spares_norms"
    if not optimizer.spares_norms or optimizer.arguments.get("weight_decay") == 0:
        draft.land(field, "exact")
        return
    draft.land(field, "approximate", "", _ONE_GROUP, _GROUPS)
    decay = draft.landings.get("optimizer.weight_decay")
    if decay is not None and decay.outcome == "exact":
        decay = decay._replace(outcome="approximate", note=_ONE_GROUP, action=_GROUPS)
        draft.landings["optimizer.weight_decay"] = decay


def _build(draft: Draft, optimizer: Optimizer) -> None:
    if optimizer.name in ("AdamW", "Adam"):
        _adam(draft, optimizer)
    elif optimizer.name == "Lion":
        _lion(draft, optimizer)
    elif optimizer.name == "Muon":
        _muon(draft, optimizer)
    elif optimizer.name == "Adagrad" and draft.offloads_optimizer:
        outcome: Outcome = "exact" if optimizer.own_kernel else "close"
        draft.set("optimizer.type", "optimizer.name", "Adagrad", _KERNEL.format("Adagrad"), outcome)
        _arguments(draft, optimizer.arguments, "DeepSpeedCPUAdagrad")
    else:
        draft.set("optimizer.type", "optimizer.name", optimizer.name, f"torch.optim.{optimizer.name}")
        _arguments(draft, optimizer.arguments, f"torch.optim.{optimizer.name}")
        if draft.stage > 0 and optimizer.name != "Adagrad":
            draft.put("zero_allow_untested_optimizer", True)


def _adam(draft: Draft, optimizer: Optimizer) -> None:
    name = optimizer.name
    own = optimizer.own_kernel or not optimizer.bias_correction or _needs_cpu_adam(draft)
    outcome: Outcome = "close" if own and not optimizer.own_kernel else "exact"
    note = _KERNEL.format(name) if own else _SLOW
    draft.set("optimizer.type", "optimizer.name", name, note, outcome)
    defaults = dict(_ADAM) if name == "AdamW" else {**_ADAM, "weight_decay": 0.0}
    arguments = {**defaults, **optimizer.arguments}
    kernel = "DeepSpeedCPUAdam" if draft.offloads_optimizer else "FusedAdam"
    _arguments(draft, arguments, kernel if own else f"torch.optim.{name}")
    if name == "Adam":
        draft.put(f"{_PREFIX}adam_w_mode", False)
    if not own:
        draft.put(f"{_PREFIX}torch_adam", True)
    if not optimizer.bias_correction:
        draft.set(f"{_PREFIX}bias_correction", "optimizer.bias_correction", False)


def _needs_cpu_adam(draft: Draft) -> bool:
    """Whether no other class may update weights in 16 bits: DeepSpeed asks for its own once they are offloaded."""
    return draft.plan.precision.masters != "fp32" and draft.offloads_optimizer


def _lion(draft: Draft, optimizer: Optimizer) -> None:
    kernel = "DeepSpeedCPULion" if draft.offloads_optimizer else "FusedLion"
    sign = "bit" if draft.offloads_optimizer else "negative"
    notes = []
    outcome: Outcome = "exact"
    if not optimizer.own_kernel:
        outcome = "close" if draft.offloads_optimizer else "approximate"
        unmeasured = "" if draft.offloads_optimizer else "; no run was compared with it, since it needs a GPU"
        notes.append(f"DeepSpeed's {kernel} rounds differently{unmeasured}")
    if optimizer.sign_of_zero != sign:
        outcome = "approximate"
        notes.append(f"a weight without gradient moves by lr: {kernel} takes 0 for {sign}")
    draft.set("optimizer.type", "optimizer.name", "Lion", "; ".join(notes), outcome)
    _arguments(draft, optimizer.arguments, kernel)


def _muon(draft: Draft, optimizer: Optimizer) -> None:
    note = (
        ""
        if optimizer.own_kernel
        else (
            "DeepSpeed's ZeRO orthogonalizes before it takes the norm and clips, so that clipping acts on the update; "
            "it has another iteration than torch's Muon, and chooses the matrices itself"
        )
    )
    draft.set(
        "optimizer.type", "optimizer.name", "Muon", note, "exact" if optimizer.own_kernel else "approximate"
    )
    _arguments(draft, optimizer.arguments, "MuonWithAuxAdam")
    if not optimizer.decoupled:
        draft.put(f"{_PREFIX}adam_w_mode", False)
    if draft.stage == 3:
        draft.put("zero_optimization.reduce_scatter", False)


def _arguments(draft: Draft, arguments: Mapping[str, Unresolved | object], kind: str) -> None:
    """Write those that a class takes; a switch that is off, and how torch loops over the parameters, need no key."""
    taken = OPTIMIZER_ARGUMENTS[kind].split()
    for argument, value in arguments.items():
        field = f"optimizer.{argument}"
        if argument == "lr" and _is_replaced(draft):
            _replaced_lr(draft)
        elif argument == "fused" and argument not in taken:
            draft.land(field, "exact", "", "DeepSpeed's own kernel takes one pass over the weights")
        elif value is False and argument not in taken:
            draft.land(field, "exact", "", "it is off")
        elif argument not in taken or (argument == "amsgrad" and not kind.startswith("torch.")):
            draft.land(field, "unsupported", "", f"DeepSpeed's {kind} has no {argument}")
        else:
            draft.set(f"{_PREFIX}{argument}", field, value)


def _is_replaced(draft: Draft) -> bool:
    """Whether the schedule of the config has rates of its own, and another peak than the optimizer's lr."""
    schedule, optimizer = draft.plan.schedule, draft.plan.optimizer
    if optimizer is None or not isinstance(schedule, Warmup):
        return False
    own, peak = optimizer.arguments.get("lr", _ADAM["lr"]), schedule.max_lr
    return isinstance(own, int | float) and isinstance(peak, int | float) and own != peak


def _replaced_lr(draft: Draft) -> None:
    schedule = draft.plan.schedule
    assert isinstance(schedule, Warmup)
    note = f"{schedule.name} warms up to its own warmup_max_lr, which stands here, too"
    draft.put(f"{_PREFIX}lr", schedule.max_lr)
    draft.land("optimizer.lr", "no-effect", f"{_PREFIX}lr: {schedule.max_lr}", note)
