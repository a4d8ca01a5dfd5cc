"""Writes what is divided over the ranks, and what rests in CPU memory."""

from __future__ import annotations

from dsconf.formats.deepspeed.notes import NO_SCALE, STEP_BEFORE
from dsconf.formats.deepspeed.write_draft import Draft, shown
from dsconf.formats.outcome import Outcome

_ZERO = "zero_optimization."
_HPZ = f"{_ZERO}zero_hpz_partition_size"
LINEAR = f"{_ZERO}memory_efficient_linear"
_ROUNDS = (
    "in 16 bits DeepSpeed's F.linear rounds once more than torch's (loss within 5e-3 over 8 steps of the test model); "
    "memory_efficient_linear: false takes torch's, and keeps every gathered weight until the backward pass"
)
_WHOLE = "ZeRO-2: weights stay whole on each GPU between steps, too; the largest amount of memory is the same"
_DIVIDED = (
    "ZeRO-1: the optimizer's state is divided over the ranks, which takes less memory; stage 0 is no equal"
)
_SUMS = "multiply the loss by the number of ranks before engine.backward(), which then averages"


def write_sharding(draft: Draft) -> None:
    """Write the ZeRO stage, with hpZ and the reduction's operation."""
    stage, sharding = draft.stage, draft.plan.sharding
    _stage(draft)
    _reshard(draft)
    if sharding.group is None:
        draft.land("sharding.group", "exact")
    else:
        _group(draft, sharding.group)
    field = "sharding.sums_gradients"
    if sharding.sums_gradients and stage == 3:
        draft.land(field, "unsupported", "", "DeepSpeed averages gradients at stage 3", _SUMS)
    elif sharding.sums_gradients:
        draft.set("gradient_allreduce_op", field, "sum")
    else:
        draft.land(field, "exact", "", "DeepSpeed averages gradients, too")
    _linear(draft)


def _linear(draft: Draft) -> None:
    """Torch's F.linear is written where its weights may stay: it costs the memory that ZeRO-3 saves."""
    sharding, field = draft.plan.sharding, "sharding.own_linear"
    draft.land("sharding.keeps_gathered", "exact")
    if draft.stage != 3 or sharding.own_linear is True:
        draft.land(field, "exact")
    elif sharding.keeps_gathered:
        draft.set(LINEAR, field, False)
    elif _rounds(draft):
        draft.land(field, "close", "", _ROUNDS)
    else:
        draft.land(field, "no-effect", "", "in fp32 DeepSpeed's F.linear gives the same numbers")


def _stage(draft: Draft) -> None:
    stage, field, sharding = draft.stage, "sharding.partition", draft.plan.sharding
    outcome: Outcome = "exact"
    note = ""
    if sharding.partition == "nothing" and stage == 1:
        outcome, note = "approximate", f"{_DIVIDED}: {_why_not_0(draft)}"
    elif stage == 3 and not (sharding.own_linear or sharding.keeps_gathered) and _rounds(draft):
        outcome, note = "close", _ROUNDS
    draft.set(f"{_ZERO}stage", field, stage, note, outcome)


def _why_not_0(draft: Draft) -> str:
    return NO_SCALE if draft.plan.precision.compute == "fp16" else STEP_BEFORE


def _rounds(draft: Draft) -> bool:
    return draft.narrow or draft.plan.precision.autocast is not None


def _reshard(draft: Draft) -> None:
    sharding, field = draft.plan.sharding, "sharding.reshard_after_forward"
    ranks = sharding.reshard_after_forward
    if sharding.partition != "parameters":
        draft.land(field, "exact", "", "weights are whole on each GPU")
    elif ranks is False:
        draft.land(field, "approximate", shown(f"{_ZERO}stage", draft.stage), _WHOLE)
    elif ranks is True:
        draft.land(field, "exact", "", "ZeRO-3 frees gathered weights")
    else:
        draft.set(_HPZ, field, ranks)


def _group(draft: Draft, size: int) -> None:
    """Groups that are copies of each other exist in older versions only, as MiCS."""
    note = (
        f"DeepSpeed divides the state over all ranks, not over groups of {size}: less memory on each GPU, more "
        "traffic between the groups, and the same numbers"
    )
    target = ""
    if draft.stage == 3 and draft.plan.sharding.reshard_after_forward is True and size > 1:
        draft.put(_HPZ, size)
        target = shown(_HPZ, size)
        note += f"; hpZ keeps a copy of the weights in each group of {size} for the backward pass"
        draft.land("sharding.reshard_after_forward", "approximate", target, note)
    draft.land("sharding.group", "approximate", target, note)


def write_offload(draft: Draft) -> None:
    """Write the sections of offload to the CPU."""
    offload, stage = draft.plan.offload, draft.stage
    sections = []
    for name, first in (("optimizer", 1), ("parameters", 3)):
        field = f"offload.{name}"
        path = f"{_ZERO}offload_{'param' if name == 'parameters' else name}"
        if not getattr(offload, name):
            draft.land(field, "exact", "", "nothing is offloaded")
        elif stage >= first:
            draft.set(f"{path}.device", field, "cpu")
            sections.append(path)
        elif stage == 0:
            draft.land(
                field, "unsupported", "", "DeepSpeed offloads with ZeRO only", "choose ZeRO stage 1 or more"
            )
        else:
            note = f"at stage {stage} DeepSpeed keeps the weights on the GPU, in {_of(draft)}"
            draft.land(field, "approximate", "", note)
    for path in sections:
        draft.set(f"{path}.pin_memory", "offload.pinned", offload.pinned)
    if not sections:
        draft.land("offload.pinned", "no-effect", "", "nothing is offloaded")
    if draft.offloads_optimizer and draft.plan.optimizer is None:
        landing = draft.landings["offload.optimizer"]
        other = "zero_force_ds_cpu_optimizer: false"
        action = f"give deepspeed.initialize a DeepSpeedCPUAdam; any other optimizer needs {other}"
        draft.landings["offload.optimizer"] = landing._replace(action=action)


def _of(draft: Draft) -> str:
    compute = draft.plan.precision.compute
    return compute if isinstance(compute, str) else "the dtype of the model"
