"""What few settings need of a model that is sharded: autocast, casts, summed gradients, experts without tokens."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

AUTOCAST = False
INPUTS_CAST = False
BUFFERS_CAST = False
BUFFERS_KEPT = False
SUMMED = False
UNUSED_PARAMETERS = False

PARAM_DTYPE = torch.float16
AUTOCAST_DTYPE = torch.bfloat16
BUFFER_DTYPE = torch.bfloat16
FP32_BUFFERS = "router"


def cast_inputs(value: Any) -> Any:
    """Inputs of the model with their floating-point tensors in the dtype of the parameters."""
    if isinstance(value, list | tuple):
        return type(value)(map(cast_inputs, value))
    if isinstance(value, dict):
        return {name: cast_inputs(item) for name, item in value.items()}
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(PARAM_DTYPE) if is_float else value


def finish(model: nn.Module, device: torch.device) -> None:
    """Settings that act on the sharded model."""
    if AUTOCAST:
        # Around the forward pass only, not around the loss.
        model.forward = torch.autocast(device.type, dtype=AUTOCAST_DTYPE)(model.forward)
    if INPUTS_CAST:
        # Positional ones only, as in DeepSpeed.
        model.register_forward_pre_hook(lambda module, inputs: cast_inputs(inputs))
    if BUFFERS_KEPT:
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point():
                dtype = torch.float32 if re.search(FP32_BUFFERS, name) else BUFFER_DTYPE
                buffer.data = buffer.data.to(dtype)
    if BUFFERS_CAST:
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(BUFFER_DTYPE)
    if SUMMED:
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor
    if UNUSED_PARAMETERS:
        assert isinstance(model, FSDPModule)
        model.set_reduce_scatter_unused_params(True)  # an expert without tokens has no gradient on that rank
