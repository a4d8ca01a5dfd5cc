"""The ranks that a mesh spans."""

from __future__ import annotations

from typing import NamedTuple

from dsconf.formats.fsdp2.read_values import UNKNOWN, Attr, Made, Op, Seq, Value, choices, plain, torch_name


class Axis(NamedTuple):
    """One dimension of a mesh; a size that is not known is None."""

    name: str
    size: int | None


def axes_of(mesh: Value | None) -> tuple[Axis, ...] | None:
    """The dimensions of a mesh; None where they are not known."""
    found = [_axes(each) for each in choices(mesh)]
    return found[0] if found and all(each == found[0] for each in found) else None


def _axes(mesh: Value) -> tuple[Axis, ...] | None:
    match mesh:
        case Made() if torch_name(mesh.function) == "init_device_mesh":
            return _made(mesh)
        case Made(function=Attr(base=base, name="_flatten" | "flatten")):
            axes = axes_of(base)
            if axes is None:
                return None
            return (Axis("flat", _product(axes)),)
        case Op(symbol="[]", left=left, right=key):
            axes, names = axes_of(left), plain(key)
            wanted = (names,) if isinstance(names, str) else names
            if axes is None or wanted is UNKNOWN or not isinstance(wanted, tuple):
                return None
            by_name = {axis.name: axis for axis in axes if axis.name}
            # A dimension that was flattened before has a name that is none of the mesh's own.
            return tuple(by_name.get(str(name), Axis(str(name), None)) for name in wanted)
        case _:
            return None


def _made(mesh: Made) -> tuple[Axis, ...] | None:
    shape, names = mesh.argument("mesh_shape", 1), plain(mesh.argument("mesh_dim_names", 2))
    if not isinstance(shape, Seq):
        return None
    sizes = [plain(item) for item in shape.items]
    labels = names if isinstance(names, tuple) and len(names) == len(sizes) else [""] * len(sizes)
    return tuple(
        Axis(str(name), size if isinstance(size, int) else None)
        for name, size in zip(labels, sizes, strict=True)
    )


def _product(axes: tuple[Axis, ...]) -> int | None:
    product = 1
    for axis in axes:
        if axis.size is None:
            return None
        product *= axis.size
    return product


def whole(mesh: Value | None) -> Value | None:
    """The mesh that a part of one was taken from."""
    while True:
        match mesh:
            case Op(symbol="[]", left=left):
                mesh = left
            case Made(function=Attr(base=base, name="_flatten" | "flatten")):
                mesh = base
            case _:
                return mesh


def ranks_of(mesh: Value | None) -> int | None:
    """The number of ranks of the mesh that a part was taken from; None where that is not known."""
    axes = axes_of(whole(mesh))
    return None if axes is None else _product(axes)
