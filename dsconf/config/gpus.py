"""GPUs by name: what they hold and what they compute (NVIDIA's and AMD's data sheets)."""

from __future__ import annotations

from dsconf.config.context import Gpu

GPUS = {
    gpu.name.lower(): gpu
    for gpu in (
        Gpu("P100", 16, False),
        Gpu("V100", 16, False),
        Gpu("V100-32GB", 32, False),
        Gpu("T4", 15, False),
        Gpu("RTX2080Ti", 11, False),
        Gpu("RTX3090", 24, True),
        Gpu("RTX4090", 24, True),
        Gpu("RTX5090", 32, True),
        Gpu("A10", 22, True),
        Gpu("A10G", 22, True),
        Gpu("A30", 24, True),
        Gpu("A40", 45, True),
        Gpu("A6000", 48, True),
        Gpu("A100", 40, True),
        Gpu("A100-80GB", 80, True),
        Gpu("A800", 80, True),
        Gpu("L4", 22, True),
        Gpu("L40", 45, True),
        Gpu("L40S", 45, True),
        Gpu("H20", 96, True),
        Gpu("H100", 80, True),
        Gpu("H200", 140, True),
        Gpu("H800", 80, True),
        Gpu("B200", 180, True),
        Gpu("GH200", 96, True),
        Gpu("MI100", 32, True),
        Gpu("MI210", 64, True),
        Gpu("MI250X", 64, True),
        Gpu("MI300X", 192, True),
    )
}
"""By name in lower case. Where a name has several sizes the plain one stands for the smallest."""


def gpu_named(text: str, memory: float | None = None) -> Gpu:
    """The GPU of a name (case, dashes and spaces aside), of `memory` GiB where given. Raises ValueError."""
    wanted = _plain(text)
    for gpu in GPUS.values():
        if _plain(gpu.name) == wanted:
            return gpu._replace(memory=memory or gpu.memory)
    raise ValueError(f"{text!r} is no GPU that dsconf knows: {', '.join(gpu.name for gpu in GPUS.values())}")


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
