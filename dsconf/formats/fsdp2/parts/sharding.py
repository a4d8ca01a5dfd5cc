"""Sharding: blocks, mixed precision, and rank 0's weights on every rank."""

from __future__ import annotations

from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from dsconf.formats.fsdp2.parts.finish import finish
from dsconf.formats.fsdp2.parts.tensor_parallel import BLOCK_STYLES, ROOT_STYLES, meshes

FIXED_WORLD = False
MIXED_PRECISION = True
ANY_PRECISION = False
NAMED_BLOCKS = False
REPLICATED = False
GROUPED = False
FROZEN_WHOLE = False
ROUNDED_MASTERS = True
SEPARATE_ENDS = False
OFFLOADED = False
WIDE_MASTERS = True
FINISHED = False
TENSOR_PARALLEL = False
SIZED_BLOCKS = False
ROOT_ONLY = False
RECOMPUTED = False
UNITS_CAST = False
ROOT_CASTS = False

WORLD_SIZE = 2
GROUP_SIZE = 1
PARAM_DTYPE = torch.bfloat16
REDUCE_DTYPE = torch.bfloat16
RESHARD_AFTER_FORWARD: bool | int = True
BLOCK_CLASSES = ("Block",)
MIN_PARAMS = 100_000_000
PIN_MEMORY = True


def find_blocks(module: nn.Module) -> list[nn.Module]:
    """The modules to shard one by one."""
    blocks: list[nn.Module] = []
    if NAMED_BLOCKS:
        blocks = [child for child in module.modules() if type(child).__name__ in BLOCK_CLASSES]
        if not blocks:
            raise ValueError(f"the model has no module of class {' or '.join(BLOCK_CLASSES)}")
    else:
        if SIZED_BLOCKS:
            # Parts before what they are part of. A list is never called, and shares its parts' units.
            for child in reversed(list(module.modules())):
                large = sum(param.numel() for param in child.parameters()) > MIN_PARAMS
                if large and child is not module and not isinstance(child, nn.ModuleList | nn.ModuleDict):
                    blocks.append(child)
        else:
            # The elements of the outermost nn.ModuleLists: the repeated layers of a transformer.
            for child in module.children():
                listed = isinstance(module, nn.ModuleList) and not isinstance(child, nn.ModuleList)
                blocks += [child] if listed else find_blocks(child)
    return blocks


def recomputed(model: nn.Module) -> list[nn.Module]:
    """The blocks, each in a wrapper that computes its activations again in the backward pass."""
    blocks = find_blocks(model)
    wrapped: list[nn.Module] = []
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if child in blocks:
                wrapped.append(checkpoint_wrapper(child))
                setattr(parent, name, wrapped[-1])
    return wrapped


def find_units(model: nn.Module) -> list[nn.Module]:
    """The blocks, and the embeddings and linear layers outside of them, such as the head, that share no weight."""
    blocks = find_blocks(model)
    inside = {module for block in blocks for module in block.modules()}
    owners = Counter(param for module in model.modules() for param in module._parameters.values())
    ends = [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.Linear) and module is not model and module not in inside
    ]
    return blocks + [module for module in ends if all(owners[param] == 1 for param in module.parameters())]


def loaded_dtype(model: nn.Module) -> torch.dtype:
    """The dtype of the trainable parameters as they were loaded."""
    dtypes = {param.dtype for param in model.parameters() if param.requires_grad}
    if len(dtypes) != 1:
        raise ValueError(f"the trainable parameters have to have one dtype, not {sorted(map(str, dtypes))}")
    return dtypes.pop()


def prepare(module: nn.Module, device: torch.device) -> None:
    """Put rank 0's weights on the device, in the dtype in which the optimizer updates them."""
    for buffer in module.buffers():
        buffer.data = buffer.data.to(device)
    for param in module.parameters():
        if isinstance(param, DTensor):  # sharded with its block
            continue
        param.data = param.data.to(device).contiguous()
        dist.broadcast(param.data, src=0)  # every rank starts from rank 0's weights
        if ROUNDED_MASTERS:
            param.data = param.data.to(PARAM_DTYPE)  # masters start from the 16-bit model
        if WIDE_MASTERS:
            if param.requires_grad:
                param.data = param.data.float()


def frozen(module: nn.Module) -> set[nn.Parameter]:
    """The parameters that don't train: every rank keeps them whole, so that nobody has to gather them."""
    return {param for param in module.parameters() if not param.requires_grad}


def parallelize(model: nn.Module, device: torch.device) -> nn.Module:
    """Divide the training state over all ranks, and return the model.

    Call it on every rank after init_process_group, with the model on the CPU or on the device, in fp32 or bf16, and
    before the optimizer is built: sharding replaces the parameters.
    """
    if FIXED_WORLD:
        if dist.get_world_size() != WORLD_SIZE:
            raise ValueError(f"the batch sizes are for {WORLD_SIZE} ranks, not {dist.get_world_size()}")
    if ANY_PRECISION:
        if PARAM_DTYPE not in (torch.float32, torch.bfloat16):
            raise ValueError("fp16 needs loss scaling: translate with --set fp16.enabled=true")
    if TENSOR_PARALLEL:
        mesh, tensor_mesh = meshes(device)
    else:
        if REPLICATED:
            # Groups of one rank: nothing is divided, gradients are averaged over all of them.
            names = ("replicas", "shards")
            mesh = init_device_mesh(device.type, (dist.get_world_size(), 1), mesh_dim_names=names)
        else:
            if GROUPED:
                # The training state is divided over the ranks of a group, gradients are averaged over all.
                copies, rest = divmod(dist.get_world_size(), GROUP_SIZE)
                if rest:
                    raise ValueError(f"{dist.get_world_size()} ranks are no groups of {GROUP_SIZE}")
                names = ("replicas", "shards")
                mesh = init_device_mesh(device.type, (copies, GROUP_SIZE), mesh_dim_names=names)
            else:
                mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("dp",))
    if MIXED_PRECISION:
        if UNITS_CAST:
            # Each unit casts its floating-point inputs, too.
            policy = MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE)
        else:
            policy = MixedPrecisionPolicy(
                param_dtype=PARAM_DTYPE,
                reduce_dtype=REDUCE_DTYPE,
                cast_forward_inputs=False,  # no inputs are cast: give the model inputs of the right dtype
            )
    else:
        policy = MixedPrecisionPolicy(
            param_dtype=loaded_dtype(model),  # nothing is cast
            reduce_dtype=REDUCE_DTYPE,
            cast_forward_inputs=False,
        )
    if OFFLOADED:
        offload = CPUOffloadPolicy(pin_memory=PIN_MEMORY and device.type != "cpu")
    for module in (
        [model]
        if ROOT_ONLY
        else [*recomputed(model), model]
        if RECOMPUTED
        else [*find_units(model), model]
        if SEPARATE_ENDS
        else [*find_blocks(model), model]
    ):
        prepare(module, device)
        if ROOT_CASTS:
            if module is model:  # the model casts its floating-point inputs
                policy = MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE)
        if TENSOR_PARALLEL:
            if RECOMPUTED:
                layers = getattr(module, "_checkpoint_wrapped_module", module)  # the block in its wrapper
                parallelize_module(layers, tensor_mesh, ROOT_STYLES if module is model else BLOCK_STYLES)
            else:
                parallelize_module(module, tensor_mesh, ROOT_STYLES if module is model else BLOCK_STYLES)
        fully_shard(
            module,
            mesh=mesh,
            mp_policy=policy,
            offload_policy=offload if OFFLOADED else OffloadPolicy(),
            ignored_params=frozen(module) if FROZEN_WHOLE else None,
            reshard_after_forward=RESHARD_AFTER_FORWARD,
        )
    if FINISHED:
        finish(model, device)
    return model
