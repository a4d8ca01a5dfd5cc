"""The optimizer that Trainer builds."""

from __future__ import annotations

from typing import Any

from dsconf.formats.outcome import Item
from dsconf.formats.reading import Remark
from dsconf.formats.training.arguments import Given
from dsconf.plan import Optimizer, Unresolved

_ADAM = ("adam_beta1", "adam_beta2", "adam_epsilon")
_ADAMW = {"adamw_torch": {}, "adamw_torch_fused": {"fused": True}}
_TRUE = ("true", "1", "yes")

PASSED: dict[str, tuple[str, dict[str, str]]] = {
    "sgd": ("SGD", {"momentum": "float", "dampening": "float", "nesterov": "flag"}),
    "adagrad": ("Adagrad", {"lr_decay": "float", "eps": "float"}),
    "rmsprop": ("RMSprop", {"momentum": "float", "alpha": "float", "eps": "float", "centered": "flag"}),
}
"""By `optim` other classes of torch, and what of optim_args they get."""

UNDECAYED = "Trainer leaves biases and norms out of weight decay"


def read_optimizer(given: Given) -> Optimizer | None:
    """The optimizer with its arguments; None where it is none that a Plan can hold."""
    name = given.text("optim")
    if isinstance(name, Unresolved):
        given.unsupported("optim", "the optimizer is left open", f"--set {name.key}=adamw_torch")
        return None
    arguments: dict[str, Any] = {"lr": given.number("learning_rate")}
    if name in _ADAMW:
        found = "AdamW"
        betas = given.number("adam_beta1"), given.number("adam_beta2")
        open_ = [beta for beta in betas if isinstance(beta, Unresolved)]
        arguments |= {"betas": open_[0] if open_ else betas, "eps": given.number("adam_epsilon")}
        given.place("adam_beta1", "optimizer.betas")
        given.place("adam_beta2", "optimizer.betas")
        given.place("adam_epsilon", "optimizer.eps")
        given.idle(f"{name} does not read it", "optim_args")
    elif name in PASSED:
        found = PASSED[name][0]
        given.idle(f"{name} does not read it", *_ADAM)
        arguments |= _passed(given, name)
    else:
        note = "torch has no such optimizer" if name == "adafactor" else f"torch has no {name}"
        action = "choose adamw_torch, sgd, adagrad or rmsprop, or build this one in your script"
        given.unsupported("optim", note, action)
        given.idle(
            "it belongs to the optimizer, which is not translated", "optim_args", "weight_decay", *_ADAM
        )
        given.idle("it belongs to the optimizer, which is not translated", "learning_rate")
        return None
    arguments["weight_decay"] = given.number("weight_decay")
    arguments |= _ADAMW.get(name, {})
    given.place("optim", "optimizer.name", in_force=True)
    given.place("learning_rate", "optimizer.lr", in_force=True)
    given.place("weight_decay", "optimizer.weight_decay")
    return Optimizer(name=found, arguments=arguments, spares_norms=True)


def _passed(given: Given, name: str) -> dict[str, Any]:
    """What of optim_args goes to the optimizer."""
    raw, known = given.raw("optim_args"), PASSED[name][1]
    pairs = _pairs(raw)
    if pairs is None:
        given.unsupported("optim_args", "it is not of the form name=value,name=value")
        return {}
    try:
        found = {
            key: value.lower() in _TRUE if known[key] == "flag" else float(value)
            for key, value in pairs.items()
            if key in known
        }
    except ValueError:
        given.unsupported("optim_args", "a value in it is no number")
        return {}
    if found:
        given.place("optim_args", f"optimizer.{next(iter(found))}")
        others = pairs.keys() - known.keys()
        if others:
            note = f"{name} does not read {', '.join(sorted(others))}"
            given.remark("optim_args", Remark("exact", note))
    else:
        given.item(Item("optim_args", None, "no-effect", note=f"{name} does not read it"))
    return found


def _pairs(raw: object) -> dict[str, str] | None:
    """The names and values of optim_args; None where it holds something else."""
    if raw is None or raw == "":
        return {}
    if isinstance(raw, dict):
        return {str(key): str(value) for key, value in raw.items()}
    if not isinstance(raw, str):
        return None
    parts = [part.split("=") for part in raw.replace(" ", "").split(",")]
    if any(len(part) != 2 for part in parts):
        return None
    return {part[0]: part[1] for part in parts}
