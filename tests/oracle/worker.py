"""A worker of eight with a GPU that can do everything, for libraries that would ask the machine."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

_FOREIGN = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")
"""What the variables of Accelerate begin with."""


def imitate(patch: pytest.MonkeyPatch) -> None:
    """Replace what Accelerate's state finds out about the machine, and take variables of Accelerate away."""
    state = importlib.import_module("accelerate.state")
    accelerator = importlib.import_module("accelerate.accelerator")
    plugins = importlib.import_module("accelerate.utils.dataclasses")
    torch = importlib.import_module("torch")

    def partial_state(self: Any, cpu: bool = False, **_: object) -> None:
        self.__dict__ = self._shared_state
        if not self.initialized:
            deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"
            kind = state.DistributedType
            self.distributed_type = kind.DEEPSPEED if deepspeed else kind.MULTI_GPU
            self._cpu, self.backend, self.debug, self.fork_launched = cpu, "nccl", False, False
            self.num_processes, self.process_index, self.local_process_index = 8, 0, 0
            self.device = torch.device("cuda", 0)

    for name in list(os.environ):
        if name.startswith(_FOREIGN):
            patch.delenv(name)
    patch.setattr(state.PartialState, "__init__", partial_state)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    patch.setattr(plugins, "is_cuda_available", lambda: True)
    patch.setattr(accelerator, "is_bf16_available", lambda *_: True)
    for name in ("get_grad_scaler", "get_fsdp2_grad_scaler"):
        patch.setattr(accelerator, name, lambda *_, **__: None)


def forget() -> None:
    """Leave no state to whoever comes next."""
    state = importlib.import_module("accelerate.state")
    state.AcceleratorState._reset_state(reset_partial_state=True)
    state.GradientState._reset_state()
    importlib.import_module("transformers.integrations.deepspeed").unset_hf_deepspeed_config()
