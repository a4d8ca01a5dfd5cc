"""Tensor parallelism: the layers of each block divided over a group of ranks, all of which see the same batch."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel
from torch.distributed.tensor.parallel.style import ParallelStyle

REPLICATED = False

TENSOR_SIZE = 2
BLOCK_STYLES: dict[str, ParallelStyle] = {"up": ColwiseParallel(), "norm": SequenceParallel()}
ROOT_STYLES: dict[str, ParallelStyle] = {
    "head": ColwiseParallel(output_layouts=Replicate()),
    "end": RowwiseParallel(),
}


def meshes(device: torch.device) -> tuple[DeviceMesh, DeviceMesh]:
    """The mesh of the ranks that see different data, and that of those which share one batch and divide its layers."""
    ranks = dist.get_world_size()
    if ranks % TENSOR_SIZE:
        raise ValueError(f"{ranks} ranks are no groups of {TENSOR_SIZE}")
    if REPLICATED:
        # Groups of one rank: tensor parallelism divides layers, and nothing else is divided.
        names = ("replicas", "shards", "tp")
        mesh = init_device_mesh(device.type, (ranks // TENSOR_SIZE, 1, TENSOR_SIZE), mesh_dim_names=names)
        return mesh["replicas", "shards"], mesh["tp"]
    else:
        mesh = init_device_mesh(device.type, (ranks // TENSOR_SIZE, TENSOR_SIZE), mesh_dim_names=("dp", "tp"))
        return mesh["dp"], mesh["tp"]


def gradient_norm(model: nn.Module) -> torch.Tensor:
    """The norm of the whole gradient; what tensor parallelism divides lies on a mesh of its own."""
    by_mesh: dict[DeviceMesh, list[torch.Tensor]] = {}
    for param in model.parameters():
        if isinstance(param.grad, DTensor):
            by_mesh.setdefault(param.grad.device_mesh, []).append(param.grad)
    norms = [torch.nn.utils.get_total_norm(grads) for grads in by_mesh.values()]
    whole = torch.stack([norm.full_tensor() for norm in norms if isinstance(norm, DTensor)])
    norm: torch.Tensor = torch.linalg.vector_norm(whole)
    return norm
