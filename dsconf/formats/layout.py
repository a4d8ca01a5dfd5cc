"""How ranks are laid out in Accelerate's ParallelismConfig, which Trainer takes too, and Axolotl's sizes copy."""

from __future__ import annotations

from typing import NamedTuple

from dsconf.plan import Plan

OWN_PLAN = "transformers divides the layers by its own plan"
"""What all three do where layers are divided over ranks."""


class Layout(NamedTuple):
    """The sizes of a layout, whose product is the number of ranks."""

    tensor: int
    context: int
    shards: int | None
    """Beside context: the ranks of context parallelism are among those that the state is divided over. None: the
    number of ranks, which decides it, is not known."""
    copies: int | None
    misfit: str
    """Why the ranks don't divide into such groups; "" where they do, or where their number is not known."""


def layout_of(plan: Plan) -> Layout:
    """The layout of a Plan's ranks (`Plan.world`), of a model that is sharded."""
    tensor, context, group = plan.parallelism.tensor, plan.parallelism.context, plan.sharding.group
    if group is not None and group % context:
        misfit = f"groups of {group} ranks don't divide by context parallelism over {context}"
        return Layout(tensor, context, None, None, misfit)
    whole = tensor * (group or context)
    world = plan.world
    if world is None:
        return Layout(tensor, context, None if group is None else group // context, None, "")
    if world % whole:
        return Layout(tensor, context, None, None, f"{world} ranks don't divide into groups of {whole}")
    shards = (group or world // tensor) // context
    return Layout(tensor, context, shards, world // (tensor * context * shards), "")
