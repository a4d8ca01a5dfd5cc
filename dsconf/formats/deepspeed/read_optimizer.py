"""The optimizer of the Plan: which class DeepSpeed builds, and its arguments."""

from __future__ import annotations

from typing import Any

from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.arguments import OPTIMIZER_ARGUMENTS
from dsconf.formats.deepspeed.notes import Notes
from dsconf.formats.reading import Default, Remark
from dsconf.plan import OPTIMIZERS, Optimizer, Unresolved

_PREFIX = "optimizer.params."
_ADAM_KERNELS = ("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam")
_LIONS = {"FusedLion": "FusedLion", "DeepSpeedCPULion": "CPULion"}
_FUSED_16 = "as DeepSpeed's kernel it computes in fp32 and rounds bf16 weights once"
_FUSED_CPU = "as DeepSpeed's kernel it takes one pass over the weights in CPU memory"
_OWN = "remove the section, and build the optimizer in your script with {}"
_REFUSED: dict[str, tuple[str, str]] = {
    "FusedLamb": (
        "torch has no LAMB",
        f"use AdamW, or {_OWN.format('a LAMB that takes DTensors: its trust ratio needs the norm of whole weights')}",
    ),
    "mup.": (
        "it comes from the package mup, which scales the lr of each weight by its shape, before sharding",
        _OWN.format("mup's classes: make its parameter groups before the model is sharded"),
    ),
    "Onebit": (
        "1-bit optimizers compress their own traffic, which FSDP2 reduces before the optimizer sees it",
        "use Adam: it is what they approximate",
    ),
    "torch.optim.Adafactor": (
        "torch's Adafactor fails on sharded parameters (DTensor)",
        "use AdamW, or " + _OWN.format("an Adafactor that takes DTensors"),
    ),
    "torch.optim.Rprop": ("torch's Rprop fails on sharded parameters (DTensor)", "use another optimizer"),
    "torch.optim.LBFGS": (
        "LBFGS needs a closure, which neither DeepSpeed nor a plain training step gives",
        "use AdamW",
    ),
    "torch.optim.SparseAdam": ("it takes sparse gradients only, which sharding does not give", "use AdamW"),
}
"""What is not translated, by the beginning of the class name: why, and what to do."""


def read_optimizer(notes: Notes) -> Optimizer | None:
    """The optimizer with the arguments in force; None where there is none, or none that is translated."""
    name = notes.config.value("optimizer.type")
    if name is UNKNOWN or name is None:
        return None
    built = notes.facts.value("optimizer_class")
    if built is UNKNOWN:
        built = {"adagrad": "torch.optim.Adagrad", "lion": "FusedLion"}.get(str(name).lower(), "FusedAdam")
    return _Optimizer(notes, str(name), str(built)).read()


class _Optimizer:
    def __init__(self, notes: Notes, name: str, built: str) -> None:
        self.notes = notes
        self.type = name
        self.built = built

    def read(self) -> Optimizer | None:
        if self.built in _ADAM_KERNELS or self.built in ("torch.optim.Adam", "torch.optim.AdamW"):
            return self._adam()
        if self.built in _LIONS:
            return self._lion()
        if self.built == "MuonWithAuxAdam":
            return self._muon()
        if self.built == "DeepSpeedCPUAdagrad":
            self._remark("close", "DeepSpeed's own Adagrad kernel rounds differently from torch's")
            return self._optimizer("Adagrad", "lr", "eps", "weight_decay")
        name = self.built.removeprefix("torch.optim.")
        for start, (note, action) in _REFUSED.items():
            if self.built.startswith(start):
                self.notes.unsupported("optimizer.type", note, action)
                return None
        if name not in OPTIMIZERS:
            self.notes.unsupported("optimizer.type", f"{self.type} is not translated")
            return None
        return self._optimizer(name, "lr")

    def _adam(self) -> Optimizer:
        kernel = self.built in _ADAM_KERNELS
        decoupled = self.type.lower() == "adamw"
        mode = self.notes.value(f"{_PREFIX}adam_w_mode")
        said = []
        if self.type.lower() == "adam":
            decoupled = mode is not False
            if self.notes.config.present(f"{_PREFIX}adam_w_mode"):
                self.notes.fields[f"{_PREFIX}adam_w_mode"] = "optimizer.name"
            if decoupled:
                said.append("DeepSpeed's Adam is AdamW unless adam_w_mode is false")
        corrected = not kernel or self.notes.value(f"{_PREFIX}bias_correction") is not False
        name = "AdamW" if decoupled else "Adam"
        if kernel:
            said.append(f"DeepSpeed's own Adam kernel rounds differently from torch.optim.{name}")
        if said:
            self._remark("close" if kernel else "exact", "; ".join(said))
        optimizer = self._optimizer(name, "lr", "betas", "eps", "weight_decay")
        if kernel and corrected and (self.notes.bf16_masters or self.built == "DeepSpeedCPUAdam"):
            path = f"{_PREFIX}fused"
            self.notes.fields[path] = "optimizer.fused"
            why = _FUSED_16 if self.notes.bf16_masters else _FUSED_CPU
            self.notes.in_force.setdefault(path, Default(True, why))
            self.notes.labels["optimizer.fused"] = "as DeepSpeed's kernel"
            optimizer.arguments["fused"] = True
        if not corrected:
            self.notes.fields[f"{_PREFIX}bias_correction"] = "optimizer.bias_correction"
        return optimizer.model_copy(update={"bias_correction": corrected})

    def _lion(self) -> Optimizer:
        kernel = _LIONS[self.built]
        moves = "a weight without gradient moves by lr, the sign of 0 being a sign to DeepSpeed"
        if kernel == "CPULion":
            self._remark(
                "close", f"the formula of DeepSpeed's {kernel} kernel, which rounds differently; {moves}"
            )
        else:
            unmeasured = "no run was compared with it, since it needs a GPU"
            self._remark("approximate", f"the formula of DeepSpeed's {kernel} kernel; {unmeasured}; {moves}")
        optimizer = self._optimizer("Lion", "lr", "betas", "weight_decay")
        return optimizer.model_copy(update={"sign_of_zero": "bit" if kernel == "CPULion" else "negative"})

    def _muon(self) -> Optimizer | None:
        if self.notes.value(f"{_PREFIX}per_head_muon") is True:
            note = "torch's Muon treats a matrix as a whole, not each attention head of it"
            self.notes.unsupported(f"{_PREFIX}per_head_muon", note, "set it to false")
        note = (
            "DeepSpeed's ZeRO orthogonalizes before it takes the norm and clips, so that clipping acts on the update "
            "and grad_norm is the update's; torch's Muon does it in step(), in bf16"
        )
        self._remark("approximate", note)
        arguments: dict[str, Any] = {}
        defaults = {"momentum": 0.95, "betas": (0.9, 0.95), "eps": 1e-10, "weight_decay": 0.0}
        if not self.notes.config.present(f"{_PREFIX}lr"):
            defaults |= {"muon_lr": 0.02, "adam_lr": 3e-4}
        for argument in OPTIMIZERS["Muon"]:
            path = f"{_PREFIX}{argument}"
            written = self.notes.config.raw(path) is not None
            if not written and argument not in defaults:
                continue
            self.notes.fields[path] = f"optimizer.{argument}"
            arguments[argument] = (
                self._settled(path, self.notes.value(path)) if written else defaults[argument]
            )
        decoupled = self.notes.value(f"{_PREFIX}adam_w_mode") is not False
        return Optimizer(name="Muon", arguments=arguments, decoupled=decoupled, own_kernel=True)

    def _remark(self, outcome: Any, note: str) -> None:
        self.notes.remarks["optimizer.type"] = Remark(outcome, note)

    def _optimizer(self, name: str, *always: str) -> Optimizer:
        """An optimizer with the arguments that are written, and those of `always` whatever is written."""
        taken = OPTIMIZER_ARGUMENTS[self.built].split()
        arguments: dict[str, Any] = {}
        for argument in OPTIMIZERS[name]:
            path = f"{_PREFIX}{argument}"
            raw = self.notes.config.raw(path)
            written = raw is not None and raw is not False  # a 0 is a value
            if argument not in taken or not (argument in always or written):
                continue
            if argument == "amsgrad" and self.built in _ADAM_KERNELS:  # they refuse it
                continue
            self.notes.fields[path] = f"optimizer.{argument}"
            arguments[argument] = self._argument(path, argument)
        kernel = not self.built.startswith("torch.optim.")
        return Optimizer(name=name, arguments=arguments, own_kernel=kernel)

    def _argument(self, path: str, argument: str) -> Any:
        config, facts = self.notes.config, self.notes.facts
        if argument == "lr" or argument == "weight_decay":
            fact = facts.value("learning_rate" if argument == "lr" else "weight_decay")
            value = self.notes.or_default(path, fact)
        elif argument == "eps" and not config.present(path):
            value = facts.value("epsilon")  # the same in DeepSpeed's classes and in torch's
        else:
            value = self.notes.value(path)
        return self._settled(path, value)

    def _settled(self, path: str, value: Any) -> Any:
        if value is UNKNOWN:
            return Unresolved(key=path)
        if not isinstance(value, list):
            return value
        pair = len(value) == 2 and all(isinstance(each, int | float) for each in value)
        return tuple(value) if pair else Unresolved(key=path)
