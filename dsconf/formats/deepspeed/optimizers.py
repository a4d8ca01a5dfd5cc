"""The names that DeepSpeed 0.19.8 accepts for `optimizer.type`."""

from __future__ import annotations

DEEPSPEED_OPTIMIZERS = ("Adam", "AdamW", "Adagrad", "Lamb", "Lion", "Muon", "MuAdam", "MuAdamW", "MuSGD")
"""DeepSpeed's own, found in any case."""
TORCH_OPTIMIZERS = (
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam", "RAdam", "RMSprop",
    "Rprop", "SGD", "SparseAdam",
)  # fmt: skip
"""Classes of torch.optim (2.13), found by their exact name."""


def optimizer_known(name: object, version: str | None = None) -> bool:
    """Whether DeepSpeed finds a class for this `optimizer.type`; `version` is one of the history's, or the newest."""
    if not isinstance(name, str):
        return False
    own = {known.lower() for known in DEEPSPEED_OPTIMIZERS}
    if version is not None:
        from dsconf.formats.deepspeed.history import optimizers_of  # only an older target needs it

        own = optimizers_of(own, version)
    return name in TORCH_OPTIMIZERS or name.lower() in own
