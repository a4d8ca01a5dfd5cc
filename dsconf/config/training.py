"""Facts about precision, optimizer and schedule: what DeepSpeed puts where a default depends on other keys."""

from __future__ import annotations

from dsconf.config.effective import Reader
from dsconf.document.node import UNKNOWN


def precision(read: Reader) -> object:
    """The dtype that the model is cast to: "bf16", "fp16", or "fp32" where neither section is enabled."""
    bf16, fp16 = read.value("bf16.enabled"), read.value("fp16.enabled")
    if bf16 is True:
        return "bf16"
    if fp16 is True:
        return "fp16"
    return "fp32" if bf16 is False and fp16 is False else UNKNOWN


def has_optimizer(read: Reader) -> object:
    """Whether DeepSpeed builds an optimizer from this file: the section has a type."""
    if read.may_hold("optimizer.type"):
        return UNKNOWN
    return read.given("optimizer.type") is not None


def offloads_optimizer(read: Reader) -> object:
    """Whether the optimizer is one for the CPU: a device is named, at whatever stage."""
    if read.given("zero_optimization.cpu_offload") is True:
        return True
    device = read.value("zero_optimization.offload_optimizer.device")
    return UNKNOWN if device is UNKNOWN else device in ("cpu", "nvme")


def optimizer_class(read: Reader) -> object:
    """The class that DeepSpeed builds for `optimizer.type` (constraints of `_configure_basic_optimizer`).

    Names of torch.optim are looked up as they are written; whether such a class exists is another question.
    """
    name, offload = read.given("optimizer.type"), read.fact("offloads_optimizer")
    if not isinstance(name, str) or offload is UNKNOWN:
        return UNKNOWN
    kind = name.lower()
    if kind in ("adam", "adamw"):
        return _adam(read, kind, bool(offload))
    offloaded = {"adagrad": "DeepSpeedCPUAdagrad", "lion": "DeepSpeedCPULion"}
    if offload and kind in offloaded:
        return offloaded[kind]
    own = {
        "adagrad": "torch.optim.Adagrad",
        "lion": "FusedLion",
        "lamb": "FusedLamb",
        "muon": "MuonWithAuxAdam",
        "muadam": "mup.MuAdam",
        "muadamw": "mup.MuAdamW",
        "musgd": "mup.MuSGD",
        "onebitadam": "OnebitAdam",
        "onebitlamb": "OnebitLamb",
        "zerooneadam": "ZeroOneAdam",
    }
    return own.get(kind, f"torch.optim.{name}")


def _adam(read: Reader, kind: str, offload: bool) -> object:
    torch_adam = read.value("optimizer.params.torch_adam")
    if torch_adam is UNKNOWN:
        return UNKNOWN
    if torch_adam:
        decoupled = kind == "adamw" or read.value("optimizer.params.adam_w_mode")
        return UNKNOWN if decoupled is UNKNOWN else f"torch.optim.{'AdamW' if decoupled else 'Adam'}"
    if offload and read.may_hold("zero_optimization.zenflow"):
        return UNKNOWN
    if offload:
        return "ZenFlowCPUAdam" if read.present("zero_optimization.zenflow") else "DeepSpeedCPUAdam"
    return "FusedAdam"


_DEFAULTS: dict[str, dict[str, float]] = {
    "FusedAdam": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0},
    "DeepSpeedCPUAdam": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0},
    "ZenFlowCPUAdam": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0},
    "DeepSpeedCPUAdagrad": {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0.0},
    "DeepSpeedCPULion": {"lr": 1e-3, "weight_decay": 0.0},
    "FusedLion": {"lr": 1e-3, "weight_decay": 0.0},
    "FusedLamb": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0},
    "torch.optim.Adam": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0},
    "torch.optim.AdamW": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 1e-2},
    "torch.optim.Adagrad": {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0.0},
    "torch.optim.SGD": {"lr": 1e-3, "weight_decay": 0.0},
    "torch.optim.RMSprop": {"lr": 1e-2, "eps": 1e-8, "weight_decay": 0.0},
    "torch.optim.NAdam": {"lr": 2e-3, "eps": 1e-8, "weight_decay": 0.0},
    "torch.optim.ASGD": {"lr": 1e-2, "weight_decay": 0.0},
    "torch.optim.Adadelta": {"lr": 1.0, "eps": 1e-6, "weight_decay": 0.0},
    "torch.optim.Adamax": {"lr": 2e-3, "eps": 1e-8, "weight_decay": 0.0},
    "torch.optim.RAdam": {"lr": 1e-3, "eps": 1e-8, "weight_decay": 0.0},
}
"""Defaults of the classes' own arguments (DeepSpeed 0.19.8, torch 2.13)."""


def _argument(read: Reader, name: str) -> object:
    """An argument of the optimizer: as written, else the default of its class."""
    path = f"optimizer.params.{name}"
    if read.present(path) or read.may_hold(path):
        return read.value(path)
    return _DEFAULTS.get(str(read.fact("optimizer_class")), {}).get(name, UNKNOWN)


def learning_rate(read: Reader) -> object:
    """`optimizer.params.lr`: not written it is 0.001, but 0.01 in Adagrad, for one."""
    return _argument(read, "lr")


def epsilon(read: Reader) -> object:
    """`optimizer.params.eps`: not written it is 1e-8, but 1e-10 in Adagrad."""
    return _argument(read, "eps")


def weight_decay(read: Reader) -> object:
    """`optimizer.params.weight_decay`: not written it is 0, but 0.01 in torch's own AdamW."""
    return _argument(read, "weight_decay")


def overlap_comm(read: Reader) -> object:
    """`zero_optimization.overlap_comm`: null means true at stage 3, else false."""
    value, stage = read.value("zero_optimization.overlap_comm"), read.value("zero_optimization.stage")
    if value is not None:
        return value
    return UNKNOWN if stage is UNKNOWN else stage == 3


def communication_dtype(read: Reader) -> object:
    """`communication_data_type`: null means the dtype of the model."""
    value = read.value("communication_data_type")
    return read.fact("precision") if value is None else value


def accumulation_dtype(read: Reader) -> object:
    """`data_types.grad_accum_dtype`: null means the dtype of the model."""
    value = read.value("data_types.grad_accum_dtype")
    return read.fact("precision") if value is None else value


def warmup_max_lr(read: Reader) -> object:
    """`scheduler.params.warmup_max_lr`: not written it is the optimizer's lr, but 0.001 in WarmupDecayLR."""
    path = "scheduler.params.warmup_max_lr"
    if read.may_hold(path):
        return UNKNOWN
    if read.given("scheduler.type") == "WarmupDecayLR" and not read.present(path):
        return 0.001
    value = read.value(path)  # before DeepSpeed 0.17.6 it had a default
    return read.fact("learning_rate") if value is None else value
