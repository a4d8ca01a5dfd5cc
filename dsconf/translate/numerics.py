"""The choice of --numerics: train as the source does, or as PyTorch recommends for a new run."""

from __future__ import annotations

from dsconf.formats.choices import Numerics
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.plan import Plan

LABEL = "--numerics pytorch"
"""Stands in comments and notes where a value comes from the choice, and from no key."""

MEASURED = {"bf16": 3e-3, "fp16": 5e-4}
"""By the coarsest dtype of a step how far the losses of the two choices are from each other at most, in the runs that
the report names; in fp32 they are the same."""

_GRADIENTS = {
    "precision.reduce": f"{LABEL}: gradients are reduced in fp32",
    "precision.accumulate": f"{LABEL}: gradients are added up in fp32",
}
_DECIDE = ("precision.autocast", "precision.compute")
"""Fields that decide dtypes of which no key speaks."""


def recommended(reading: Reading) -> Reading:
    """The Reading of a run with gradients in fp32, masters that nothing rounds, and ends that are units of their own.

    In fp32 only the last one differs; and that one differs only at ZeRO-3, where units free their weights.
    """
    plan = reading.plan
    said = _Said(reading)
    for field, note in _GRADIENTS.items():
        if _is_narrow(plan, field):
            said.note(field, note)
            said.labels[field] = LABEL
    if _rounds(plan):
        said.note("precision.compute", f"{LABEL}: masters keep what the model was loaded with")
    return reading._replace(
        plan=_recommended(plan), remarks=said.remarks, in_force=said.in_force, labels=said.labels
    )


def difference(plan: Plan, numerics: Numerics) -> str:
    """What the other choice would change of the `plan` of a source, and cost, in one line; "" for nothing."""
    back = numerics == "pytorch"
    other = "deepspeed" if back else "pytorch"
    changes = []
    if any(_is_narrow(plan, field) for field in _GRADIENTS):
        wide = f"reduce and add up gradients in fp32 ({_cost(plan)})"
        changes.append("reduce and add up gradients as DeepSpeed does" if back else wide)
    if _rounds(plan):
        changes.append("round the masters" if back else "keep masters that are not rounded")
    if changes:
        bound = MEASURED[plan.precision.coarsest]
        runs = f"loss within {bound:g} of this over 8 steps of the test model"
        return f"--numerics {other} would {' and '.join(changes)}: {runs}."
    if plan.sharding.partition != "parameters":
        return ""
    units = "the same units as DeepSpeed's" if back else "units of their own"
    return f"--numerics {other} would make embedding and head {units}: no number changes."


class _Said:
    """What is said of the keys of a Reading, to be added to."""

    def __init__(self, reading: Reading) -> None:
        self.fields = reading.fields
        self.remarks = dict(reading.remarks)
        self.in_force = dict(reading.in_force)
        self.labels = dict(reading.labels)

    def note(self, field: str, text: str) -> None:
        """Add to the keys of a field; to the first one that could say it where none is written."""
        named = ([key for key, name in self.fields.items() if name == each] for each in (field, *_DECIDE))
        keys = next((keys for keys in named if keys), [])
        for key in keys:
            self.remarks[key] = self.remarks.get(key, Remark("exact", "")).joined(Remark("close", text))
        if keys and field in _GRADIENTS:
            self.in_force.setdefault(keys[0], Default(None, ""))


def _recommended(plan: Plan) -> Plan:
    wide = {field.partition(".")[2]: "fp32" for field in _GRADIENTS if _is_narrow(plan, field)}
    masters = {"rounded_masters": False} if _rounds(plan) else {}
    precision = plan.precision.model_copy(update=wide | masters)
    ends = plan.sharding.partition == "parameters"
    wrapping = plan.wrapping.model_copy(update={"separate_ends": ends})
    return plan.model_copy(update={"precision": precision, "wrapping": wrapping})


def _is_narrow(plan: Plan, field: str) -> bool:
    """Whether gradients are 16-bit there, and need not be: those of 16-bit masters have their dtype."""
    if plan.precision.masters != "fp32":
        return False
    own = getattr(plan.precision, field.partition(".")[2])
    return (own or plan.precision.compute) != "fp32"


def _rounds(plan: Plan) -> bool:
    """Whether fp32 masters start from rounded weights."""
    precision = plan.precision
    return precision.compute != "fp32" and precision.masters == "fp32" and precision.rounded_masters


def _cost(plan: Plan) -> str:
    cost = "2 bytes more per parameter and reduction"
    if plan.sharding.partition in ("nothing", "optimizer") and plan.batch.accumulation != 1:
        return f"{cost}, and as much in the whole gradients that each GPU holds until then"
    return cost
