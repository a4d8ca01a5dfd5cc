"""How people call the sources and targets of translations."""

from __future__ import annotations

_TITLES = {
    "deepspeed": "DeepSpeed",
    "fsdp2": "FSDP2",
    "accelerate": "Accelerate",
    "accelerate-fsdp1": "Accelerate FSDP1",
    "accelerate-fsdp2": "Accelerate FSDP2",
    "accelerate-deepspeed": "Accelerate DeepSpeed",
    "trainer": "Trainer",
    "trainer-fsdp1": "Trainer FSDP1",
    "trainer-fsdp2": "Trainer FSDP2",
    "trainer-deepspeed": "Trainer DeepSpeed",
    "axolotl": "Axolotl",
    "axolotl-fsdp1": "Axolotl FSDP1",
    "axolotl-fsdp2": "Axolotl FSDP2",
    "axolotl-deepspeed": "Axolotl DeepSpeed",
}


def title(name: str, *, short: bool = False) -> str:
    """A source or target for people; `short`: whose defaults hold in it."""
    found = _TITLES[name]
    if not short:
        return found
    return "PyTorch" if name == "fsdp2" else found.partition(" ")[0]
