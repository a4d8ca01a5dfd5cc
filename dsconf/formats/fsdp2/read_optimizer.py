"""The optimizer that a file builds."""

from __future__ import annotations

from typing import Any

from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_scopes import Event
from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Attr,
    Instance,
    Made,
    Ref,
    Seq,
    Table,
    Value,
    called,
    is_parameters,
    plain,
)
from dsconf.plan import OPTIMIZERS, Optimizer

TORCH = [name for name in OPTIMIZERS if name not in ("Lion", "Muon")]
FIRST = {
    "AdamW": 5, "Adam": 5, "Adadelta": 4, "Adagrad": 5, "Adamax": 4, "ASGD": 5, "NAdam": 6, "RAdam": 5, "RMSprop": 6,
    "SGD": 5,
}  # fmt: skip
"""How many arguments each class takes by position, after the parameters: the first ones of OPTIMIZERS."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "Adadelta": {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0},
    "Adagrad": {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0.0},
    "Adamax": {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "ASGD": {"lr": 1e-2, "weight_decay": 0.0},
    "NAdam": {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "RAdam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "RMSprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0},
    "SGD": {"lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0},
}
"""torch's own defaults of what other frameworks have other defaults of."""
IDLE = ("foreach", "capturable", "differentiable")
"""Arguments of how a step is computed, and not what."""


def made_optimizers(notes: Notes) -> list[Made]:
    """Everything that a file builds of the parameters of a model, and steps or names as an optimizer."""
    stepped = [
        event.made.function.base
        for event in notes.methods("step", "zero_grad")
        if isinstance(event.made.function, Attr)
    ]
    found = []
    for event in notes.run.events:
        made = event.made
        if _torch_class(made) or any(made is base for base in stepped if _takes_parameters(made)):
            found.append(made)
    instances = [base.made for base in stepped if isinstance(base, Instance) and base.made is not None]
    own = [made for made in instances if _takes_parameters(made) and not any(made is each for each in found)]
    return [*found, *dict.fromkeys(own)]


def _torch_class(made: Made) -> str:
    """The class of torch.optim that is called."""
    function = made.function
    if isinstance(function, Ref) and function.name.startswith("torch.optim."):
        name = function.name.rpartition(".")[2]
        return name if ".lr_scheduler" not in function.name and name[:1].isupper() else ""
    return ""


def _takes_parameters(made: Made) -> bool:
    return any(is_parameters(value) is not None for value in (*made.args, *made.keywords.values()))


def read_optimizer(notes: Notes, found: list[Made], steps: list[Event]) -> Optimizer | None:
    """The optimizer; None where there is none, or where it is not known. `steps` are the calls of its step."""
    if not found:
        return None
    first, *others = found
    name = _torch_class(first)
    if others and any(not _alike(first, other) for other in others):
        places = ", ".join(f"{notes.text(each.function)} at {notes.place(each.node)}" for each in found)
        note = f"several are built, where what is written has one: {places}"
        notes.say("optimizer", first, "needs-value", note, action="leave one of them")
        return None
    if name not in TORCH:
        note = f"`{notes.text(first)}` is no class of torch.optim that is translated"
        outcome: Any = "unsupported" if name or isinstance(first.function, Ref) else "needs-value"
        action = "name the class in the code" if outcome == "needs-value" else None
        notes.say("optimizer", notes.text(first.function), outcome, note, action=action, node=first.node)
        return None
    notes.take(name, "optimizer.name", f"torch.optim.{name}")
    for event in notes.run.events:
        if event.made is first and not others:
            notes.conditional(name, event, "it is built", steps)
    return Optimizer(name=name, arguments=_arguments(notes, first, name))


def _alike(first: Made, second: Made) -> bool:
    if called(first) != called(second) or not called(first):
        return False
    names = OPTIMIZERS.get(called(first), ())
    return all(
        plain(_argument(first, called(first), name)) == plain(_argument(second, called(second), name))
        for name in names
    )


def _argument(made: Made, name: str, argument: str) -> Value | None:
    place = OPTIMIZERS[name].index(argument)
    return made.argument(argument, place + 1 if place < FIRST.get(name, 0) else None)


def _arguments(notes: Notes, made: Made, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    params = made.argument("params", 0)
    groups = _groups(params)
    if groups is not None:
        given = sorted({str(key) for group in groups for key in group.items if key != "params"})
        note = f"parameter groups with their own {', '.join(given) or 'arguments'}: what is written has one group"
        action = "keep the groups in your script: they are given with the parameters"
        notes.say(f"{name}.params", notes.text(params), "approximate", note, node=made.node, action=action)
    elif params is None or is_parameters(params) is None:
        note = f"`{notes.text(params)}` is known in a run only: it may be parameter groups"
        action = "where it is, keep the groups in your script"
        notes.say(f"{name}.params", notes.text(params), "needs-value", note, node=made.node, action=action)
    for argument in OPTIMIZERS[name]:
        value = _argument(made, name, argument)
        key, field = f"{name}.{argument}", f"optimizer.{argument}"
        given = notes.instead(key, field)
        if given is not UNKNOWN:
            found[argument] = given
        elif value is not None and not (plain(value) is None and argument == "fused"):
            found[argument] = _value(notes, key, field, value, made)
        elif argument in DEFAULTS[name] and made.open is None:
            found[argument] = DEFAULTS[name][argument]
            notes.default(key, field, found[argument], "PyTorch's default")
        elif argument in DEFAULTS[name] and made.open is not None:
            found[argument] = notes.open(key, field, made.open, made.node)
    for argument in IDLE:
        value = made.keywords.get(argument)
        if value is not None:
            notes.say(f"{name}.{argument}", value, "no-effect", "how the step is computed, and not what")
    return found


def _value(notes: Notes, key: str, field: str, value: Value, made: Made) -> Any:
    found = plain(value)
    numbers = not isinstance(found, tuple) or all(isinstance(each, int | float) for each in found)
    if found is UNKNOWN or isinstance(found, dict) or not numbers:
        return notes.open(key, field, value, made.node)
    notes.take(key, field, value)
    return found


def _groups(params: Value | None) -> list[Table] | None:
    match params:
        case Seq(items=items) if items and all(isinstance(item, Table) for item in items):
            return [item for item in items if isinstance(item, Table)]
        case _:
            return None
