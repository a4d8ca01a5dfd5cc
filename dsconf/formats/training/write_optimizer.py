"""The arguments that an optimizer becomes."""

from __future__ import annotations

from typing import Any

from dsconf.formats.outcome import Landing
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.read_optimizer import PASSED, UNDECAYED
from dsconf.plan import Optimizer, Unresolved

_TORCH: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "SGD": {"lr": 1e-3, "weight_decay": 0.0},
    "Adagrad": {"lr": 1e-2, "weight_decay": 0.0},
    "RMSprop": {"lr": 1e-2, "weight_decay": 0.0},
}
"""Torch's own defaults for what Trainer always says."""
_IDLE = {
    "amsgrad": False,
    "maximize": False,
    "initial_accumulator_value": 0.0,
    "decoupled_weight_decay": False,
}
"""Values of arguments that Trainer can't pass, with which they do nothing."""
_WORDS = {"SGD": "sgd", "Adagrad": "adagrad", "RMSprop": "rmsprop"}


def write_optimizer(draft: Draft) -> None:
    """Settle the arguments and landings of the optimizer; without one, Trainer's own arguments decide."""
    optimizer = draft.plan.optimizer
    if optimizer is None:
        return
    _rate(draft, optimizer)
    word = _word(optimizer)
    why = _why_not(optimizer)
    if word is None or why:
        note = why or f"no argument of Trainer says {optimizer.name}"
        landing = Landing("unsupported", "", note, _action(optimizer))
        draft.landings["optimizer.name"] = landing
        for argument in ("bias_correction", "spares_norms", "own_kernel", *optimizer.arguments):
            draft.landings.setdefault(f"optimizer.{argument}", landing._replace(action=None))
        return
    target = draft.put("optim", word, "optimizer.name")
    note = "without weight decay Adam and AdamW are the same" if optimizer.name == "Adam" else ""
    draft.landings["optimizer.name"] = Landing("exact", target, note)
    draft.landings["optimizer.bias_correction"] = Landing("exact", target)
    kernel = "torch's optimizer rounds differently from DeepSpeed's kernel" if optimizer.own_kernel else ""
    draft.landings["optimizer.own_kernel"] = Landing("close" if kernel else "exact", target, kernel)
    _decay(draft, optimizer)
    if word in PASSED:
        _passed(draft, optimizer, word)
    else:
        _adam(draft, optimizer)
    for argument, value in _IDLE.items():
        if argument in optimizer.arguments and f"optimizer.{argument}" not in draft.landings:
            draft.landings[f"optimizer.{argument}"] = Landing("exact", target, f"it is {str(value).lower()}")
    fused = optimizer.arguments.get("fused") is True and word in PASSED
    note = "Trainer can't pass fused=True: torch's usual kernel rounds differently" if fused else ""
    draft.landings["optimizer.fused"] = Landing("close" if fused else "exact", target, note)


def _rate(draft: Draft, optimizer: Optimizer) -> None:
    """The learning rate: the peak of the schedule."""
    field, own = "optimizer.lr", _of(optimizer, "lr")
    peak = draft.peak
    if peak is None:
        peak = own
    if isinstance(peak, Unresolved):
        draft.leave_open("learning_rate", peak, field)
        return
    target = draft.put("learning_rate", peak, field)
    if own == peak or isinstance(own, Unresolved):
        draft.landings[field] = Landing("exact", target)
    else:
        draft.landings[field] = Landing(
            "no-effect", target, "the schedule sets the rate, from the first step on"
        )


def _of(optimizer: Optimizer, argument: str) -> Any:
    """An argument, or torch's default."""
    return optimizer.arguments.get(argument, _TORCH.get(optimizer.name, {}).get(argument))


def _word(optimizer: Optimizer) -> str | None:
    """The optimizer in Trainer's words."""
    if optimizer.name in ("AdamW", "Adam"):
        return "adamw_torch_fused" if optimizer.arguments.get("fused") is True else "adamw_torch"
    return _WORDS.get(optimizer.name)


def _why_not(optimizer: Optimizer) -> str:
    """Why the arguments of Trainer can't say an optimizer whose class they can say; "" where they can."""
    arguments = optimizer.arguments
    if optimizer.name in ("AdamW", "Adam") and not optimizer.bias_correction:
        return "torch's AdamW always corrects its moments"
    decoupled = arguments.get("decoupled_weight_decay") is True
    if optimizer.name == "Adam" and not decoupled and _of(optimizer, "weight_decay") != 0:
        return "Trainer has AdamW alone, whose weight decay is decoupled from the gradient"
    for argument, value in _IDLE.items():
        given = arguments.get(argument, value)
        if given != value and not (argument == "decoupled_weight_decay" and optimizer.name == "Adam"):
            return f"Trainer can't pass {argument}={given}"
    return ""


def _action(optimizer: Optimizer) -> str:
    """How the script says what the arguments can't."""
    given = ", ".join(
        f'"{name}": {"..." if isinstance(value, Unresolved) else repr(value)}'
        for name, value in optimizer.arguments.items()
    )
    where = "torch.optim." if optimizer.name in _TORCH else ""
    if not where:
        return f"pass optimizer_cls_and_kwargs to Trainer, with a {optimizer.name} that takes DTensors"
    return f"pass optimizer_cls_and_kwargs=({where}{optimizer.name}, {{{given}}}) to Trainer"


def _decay(draft: Draft, optimizer: Optimizer) -> None:
    value, field = _of(optimizer, "weight_decay"), "optimizer.weight_decay"
    if isinstance(value, Unresolved):
        draft.leave_open("weight_decay", value, field)
        return
    target = draft.put("weight_decay", value, field)
    action = "in your script: a class of Trainer's own with get_decay_parameter_names() says what decays"
    same = value == 0 or optimizer.spares_norms
    landing = Landing("exact", target) if same else Landing("approximate", target, UNDECAYED, action)
    draft.landings[field] = draft.landings["optimizer.spares_norms"] = landing


def _adam(draft: Draft, optimizer: Optimizer) -> None:
    betas = _of(optimizer, "betas")
    if isinstance(betas, Unresolved):
        draft.leave_open("adam_beta1", betas, "optimizer.betas")
        draft.leave_open("adam_beta2", betas, "optimizer.betas")
    else:
        one = draft.put("adam_beta1", betas[0], "optimizer.betas")
        other = draft.put("adam_beta2", betas[1], "optimizer.betas")
        draft.landings["optimizer.betas"] = Landing("exact", f"{one}, {other}")
    draft.set("adam_epsilon", _of(optimizer, "eps"), "optimizer.eps")


def _passed(draft: Draft, optimizer: Optimizer, word: str) -> None:
    """What goes into optim_args, a text."""
    known = PASSED[word][1]
    given = {name: value for name, value in optimizer.arguments.items() if name in known}
    open_ = [value for value in given.values() if isinstance(value, Unresolved)]
    if open_:
        for name in given:
            draft.leave_open("optim_args", open_[0], f"optimizer.{name}")
        return
    if given:
        text = ",".join(
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in given.items()
        )
        target = draft.put("optim_args", text, f"optimizer.{next(iter(given))}")
        for name in given:
            draft.landings[f"optimizer.{name}"] = Landing("exact", target)
