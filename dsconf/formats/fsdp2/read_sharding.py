"""What the calls of fully_shard divide, when gradients are reduced, and what rests in CPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from dsconf.formats.fsdp2.read_mesh import axes_of, ranks_of
from dsconf.formats.fsdp2.read_notes import Notes
from dsconf.formats.fsdp2.read_units import REPLICATES, Unit, setting
from dsconf.formats.fsdp2.read_values import (
    UNKNOWN,
    Known,
    Made,
    Op,
    Value,
    called,
    choices,
    plain,
    torch_name,
)
from dsconf.plan import Offload, Sharding

_RESHARD = "fully_shard.reshard_after_forward"
_MESH = "fully_shard.mesh"
_SYNC = "set_requires_gradient_sync"
_Partition = Literal["nothing", "optimizer", "gradients", "parameters"]


def last_only(notes: Notes) -> bool:
    """Whether gradients are reduced on the last micro batch only; the setting is noted."""
    for event in notes.methods(_SYNC, "set_is_last_backward"):
        value = event.made.argument("requires_gradient_sync", 0) or event.made.argument("is_last_backward", 0)
        if called(event.made) == _SYNC and value is not None and plain(value) is not True:
            notes.take(_SYNC, "sharding.partition", value)
            return True
    return False


def read_sharding(notes: Notes, units: Sequence[Unit]) -> tuple[Sharding, int | None]:
    """The partition with its groups, and the number of ranks where a mesh has it."""
    last = last_only(notes)
    for event in notes.methods("set_reshard_after_backward"):
        value = event.made.argument("reshard_after_backward", 0)
        if value is not None and plain(value) is UNKNOWN:
            note = "weights stay gathered until the last micro batch: no number changes"
            notes.say("set_reshard_after_backward", value, "exact", note)
    mesh, made = setting(units, "mesh", notes)
    group, replicated, ranks = _mesh(notes, mesh, made)
    kinds = {called(unit.made) for unit in units}
    if replicated or kinds & {*REPLICATES}:
        name = next((kind for kind in sorted(kinds) if kind in REPLICATES), _MESH)
        notes.take(name, "sharding.partition", mesh if name == _MESH and mesh is not None else True)
        _no_sync(notes)
        return Sharding(partition="nothing", reshard_after_forward=False, own_linear=False), ranks
    reshard = _reshard(notes, units)
    partition: _Partition = "parameters" if reshard else "optimizer" if last else "gradients"
    if last and reshard:
        note = (
            "gradients are held whole until the last micro batch, and added up in the dtype of the reduction"
        )
        notes.remark(_SYNC, "approximate", note)
    return Sharding(
        partition=partition,
        reshard_after_forward=reshard,
        group=group,
        sums_gradients=_sums(notes),
        own_linear=False,
    ), ranks


def _no_sync(notes: Notes) -> None:
    for event in notes.methods("no_sync"):
        note = "gradients are reduced on the last micro batch only"
        notes.say("no_sync", True, "exact", note, node=event.made.node)


def _mesh(notes: Notes, mesh: Value | None, made: Made | None) -> tuple[int | None, bool, int | None]:
    """The ranks of a group, whether nothing is divided, and the number of ranks."""
    if mesh is None or plain(mesh) is None:
        return None, False, None
    axes = axes_of(mesh)
    node = made.node if made is not None else None
    if axes is None or not axes:
        note = "the mesh is known in a run only: one dimension over all ranks is assumed"
        notes.say(_MESH, mesh, "needs-value", note, node=node, action="say how many ranks share one copy")
        return None, False, None
    ranks = ranks_of(mesh)
    if len(axes) == 1 or axes[0].size == 1:
        note = "one dimension: the state is divided over all its ranks"
        notes.say(_MESH, mesh, "exact", note)
        return None, False, ranks
    shards = axes[-1].size
    if shards == 1:
        return None, True, ranks
    if shards is None:
        note = (
            f"groups of ranks hold copies ({' x '.join(axis.name or '?' for axis in axes)}), whose size is known "
            "in a run only"
        )
        notes.say(_MESH, mesh, "needs-value", note, node=node, action="say how many ranks share one copy")
        return None, False, ranks
    notes.take(_MESH, "sharding.group", mesh)
    return shards, False, ranks


def _reshard(notes: Notes, units: Sequence[Unit]) -> bool | int:
    value, made = setting(units, "reshard_after_forward", notes)
    given = notes.instead(_RESHARD, "sharding.partition", bool, int)
    if isinstance(given, bool | int):
        return given if given is True or given > 1 else False
    only_root = all(unit.kind == "root" for unit in units)
    found = plain(value) if value is not None else None
    if isinstance(found, int) and not isinstance(found, bool):
        if found <= 1:  # one rank holds all of it: nothing is freed
            notes.take(_RESHARD, "sharding.partition", found)
            return False
        notes.take(_RESHARD, "sharding.reshard_after_forward", found)
        return found
    if isinstance(found, bool):
        notes.take(_RESHARD, "sharding.partition", found)
        return found
    if value is not None and _all_but_last(value):
        note = "the last block keeps its weights, which its backward pass needs at once"
        notes.take(_RESHARD, "sharding.partition", value)
        notes.remark(_RESHARD, "exact", note)
        return True
    if found is None:
        default = not only_root
        why = "the root keeps its weights after the forward pass" if only_root else "weights are freed"
        if value is None:
            notes.default(_RESHARD, "sharding.partition", None, f"PyTorch's default: {why}")
        else:
            notes.take(_RESHARD, "sharding.partition", None)
        return default
    note = f"`{notes.text(value)}` is known in a run only: True is assumed, as in ZeRO-3"
    node = made.node if made is not None else None
    action = "write True, False, or a number of ranks"
    notes.say(_RESHARD, notes.text(value), "needs-value", note, node=node, action=action)
    return True


def _all_but_last(value: Value) -> bool:
    """Whether a value asks if a block is another one than the last."""
    match value:
        case Op(symbol="<" | "!=", right=Op(symbol="-", left=Made() as count, right=Known(value=1))):
            return called(count) == "len"
        case _:
            return False


def _sums(notes: Notes) -> bool:
    """Whether gradients are added up over the ranks."""
    for event in notes.methods("set_gradient_divide_factor", "set_reduce_scatter_divide_factor"):
        key, factor = called(event.made), event.made.argument("factor", 0) or Known(None)
        if plain(factor) == 1:
            notes.take(key, "sharding.sums_gradients", factor)
            return True
        note = "gradients are divided by it, where the target averages over the ranks"
        notes.say(key, factor, "unsupported", note, node=event.made.node)
    return False


def read_offload(notes: Notes, units: Sequence[Unit]) -> Offload:
    """The offload policy of the blocks."""
    value, made = setting(units, "offload_policy", notes)
    found = [each for each in choices(value) if not (isinstance(each, Known) and each.value is None)]
    policies = {torch_name(each.function) if isinstance(each, Made) else "" for each in found}
    key = "fully_shard.offload_policy"
    if not found or policies == {"OffloadPolicy"}:
        if value is not None and made is not None:
            notes.say(key, value, "no-effect", "nothing is moved to CPU memory")
        return Offload()
    policy = found[0]
    if policies != {"CPUOffloadPolicy"} or not isinstance(policy, Made) or value is None:
        note = f"`{notes.text(value)}` is known in a run only: no offload is assumed"
        node = made.node if made is not None else None
        notes.say(key, value or Known(None), "needs-value", note, node=node, action="choose one policy")
        return Offload()
    pin = policy.argument("pin_memory", 0)
    notes.take("CPUOffloadPolicy", "offload.parameters", True)
    notes.take("CPUOffloadPolicy (optimizer)", "offload.optimizer", True)
    if pin is None:
        notes.default("CPUOffloadPolicy.pin_memory", "offload.pinned", True, "PyTorch's default")
        return Offload(parameters=True, optimizer=True, pinned=True)
    pinned: Any = plain(pin)
    if pinned is UNKNOWN:
        note = f"`{notes.text(pin)}` is known in a run only: True is assumed"
        notes.say("CPUOffloadPolicy.pin_memory", pin, "needs-value", note, node=policy.node)
        return Offload(parameters=True, optimizer=True, pinned=True)
    notes.take("CPUOffloadPolicy.pin_memory", "offload.pinned", pinned)
    return Offload(parameters=True, optimizer=True, pinned=bool(pinned))
