"""The optimizer of a module."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import Draft
from dsconf.formats.fsdp2.emit import Alias, Constant, Omitted
from dsconf.formats.outcome import Landing
from dsconf.plan import OPTIMIZERS, Optimizer

_ANNOTATIONS = {"betas": "tuple[float, float]"} | dict.fromkeys(
    ("amsgrad", "maximize", "fused", "decoupled_weight_decay", "centered", "nesterov"), "bool"
)
"""Types of the arguments that are no floats."""

_DECAY = {
    "AdamW": "written out: torch's own default is 0.01",
    "Lion": "decoupled from the gradient",
}
_ALL_DECAY = "all weights decay, biases and those of norms too"
_GROUPS = "give the optimizer two groups in build_optimizer(), one of them with weight_decay=0.0"


def write_optimizer(draft: Draft, optimizer: Optimizer) -> list[tuple[str, list[str]]]:
    """Settle the constants and landings of the optimizer, and return the functions to take, by part."""
    name = optimizer.name
    for argument in OPTIMIZERS[name]:
        constant = argument.upper()
        if argument not in optimizer.arguments:
            draft.constants[constant] = Omitted()
            continue
        note = _DECAY.get(name, "") if argument == "weight_decay" else ""
        annotation = _ANNOTATIONS.get(argument, "float")
        value = optimizer.arguments[argument]
        draft.set(constant, f"optimizer.{argument}", value, annotation, f"{argument}={{}}", note)
    _decay(draft, optimizer)
    divided = draft.flags["TENSOR_PARALLEL"]
    one_mesh = f"{draft.labels['parallelism.tensor']}: parameters lie on two meshes" if divided else ""
    draft.constants["FOREACH"] = Constant("False", one_mesh) if divided else Omitted()
    if name == "Muon":
        return _muon(draft, optimizer)
    decoupled = "decoupled weight decay" if name == "AdamW" else ""
    if name == "Lion":
        draft.flags["SIGN_BIT"] = optimizer.sign_of_zero == "bit"
        draft.landings["optimizer.name"] = Landing("exact", "Lion, a class of the module", "torch has none")
        return [("lion", ["Lion", "build_optimizer"])]
    if not optimizer.bias_correction:
        draft.flags["DECOUPLED"] = name == "AdamW"
        target = "UncorrectedAdam, a class of the module"
        draft.landings["optimizer.name"] = Landing("exact", target, decoupled)
        draft.landings["optimizer.bias_correction"] = Landing("exact", target, "torch's always corrects")
        return [("uncorrected_adam", ["UncorrectedAdam", "build_optimizer"])]
    if draft.has(f"torch.optim.{name}", "optimizer.name"):
        draft.landings["optimizer.name"] = Landing("exact", f"torch.optim.{name}", decoupled)
    for argument in optimizer.arguments:
        draft.has(f"torch.optim.{name}({argument})", f"optimizer.{argument}")
    draft.constants[name.lower()] = Alias("build_optimizer")
    return [("optimizer", ["build_optimizer"])]


def _decay(draft: Draft, optimizer: Optimizer) -> None:
    """Which weights decay: the module has one group of parameters."""
    spared, field = optimizer.spares_norms, "optimizer.weight_decay"
    decay = draft.landings.get(field)
    if spared and decay is not None and decay.outcome == "exact" and optimizer.arguments["weight_decay"] != 0:
        draft.landings[field] = decay._replace(outcome="approximate", note=_ALL_DECAY, action=_GROUPS)
    draft.landings["optimizer.spares_norms"] = draft.landings.get(field, Landing("exact"))


def _muon(draft: Draft, optimizer: Optimizer) -> list[tuple[str, list[str]]]:
    for constant in ("MUON_LR", "ADAM_LR"):
        if constant.lower() not in optimizer.arguments:
            draft.constants[constant] = Alias("LR")
    draft.flags["DECOUPLED"] = optimizer.decoupled
    adam = "AdamW" if optimizer.decoupled else "Adam"
    target = f"torch.optim.Muon for hidden matrices, torch.optim.{adam} for the rest"
    if draft.has("torch.optim.Muon", "optimizer.name"):
        draft.landings["optimizer.name"] = Landing("approximate", target)
    return [("muon", ["MuonAndAdam", "build_optimizer"])]
