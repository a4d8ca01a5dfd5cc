"""The choice of --numerics: train as the source does, or as PyTorch recommends for a new run."""

from __future__ import annotations

from dsconf.formats.choices import Numerics
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.plan import Plan, Precision

LABEL = "--numerics pytorch"
"""Stands in comments and notes where a value comes from the choice, and from no key."""

MEASURED = {"bf16": 3e-3, "fp16": 5e-4}
"""By precision a bound of how far the losses of the two choices are from each other, in the runs that the report names;
in fp32 they are the same."""

_GRADIENTS = {
    "precision.reduce": f"{LABEL}: gradients are reduced in fp32",
    "precision.accumulate": f"{LABEL}: gradients are added up in fp32",
}


def recommended(reading: Reading) -> Reading:
    """The Reading of a run with gradients in fp32, masters that nothing rounds, and ends that are units of their own.

    In fp32 only the last one differs; and that one differs only at ZeRO-3, where units free their weights.
    """
    plan = reading.plan
    remarks, in_force = dict(reading.remarks), dict(reading.in_force)
    labels = dict(reading.labels)
    for field, note in _GRADIENTS.items():
        if not _is_changed(plan, field):
            continue
        labels[field] = LABEL
        key = next(key for key, name in reading.fields.items() if name == field)
        remarks[key] = Remark("close", note)
        in_force[key] = Default(None, "")
    for key in (key for key, field in reading.fields.items() if field == "precision.compute"):
        remarks[key] = Remark("close", f"{LABEL}: masters keep what the model was loaded with")
    return reading._replace(plan=_recommended(plan), remarks=remarks, in_force=in_force, labels=labels)


def difference(plan: Plan, numerics: Numerics) -> str:
    """What the other choice would change and cost, in one line; "" where it would change nothing."""
    other = "deepspeed" if numerics == "pytorch" else "pytorch"
    if not _is_mixed(plan.precision):
        if plan.sharding.partition != "parameters":
            return ""
        units = "the same units as DeepSpeed's" if other == "deepspeed" else "units of their own"
        return f"--numerics {other} would make embedding and head {units}: no number changes."
    dtype = plan.precision.compute if isinstance(plan.precision.compute, str) else "bf16"
    runs = f"loss within {MEASURED[dtype]:g} of this over 8 steps of the test model"
    if other == "deepspeed":
        change = f"reduce and add up gradients as DeepSpeed does, and round the masters to {dtype}"
    else:
        cost = "2 bytes more per parameter and reduction"
        change = f"reduce and add up gradients in fp32 ({cost}) and keep masters that are not rounded"
    return f"--numerics {other} would {change}: {runs}."


def _recommended(plan: Plan) -> Plan:
    precision = plan.precision
    if _is_mixed(precision):
        wide = {"reduce": "fp32", "accumulate": "fp32", "rounded_masters": False}
        precision = precision.model_copy(update=wide)
    ends = plan.sharding.partition == "parameters"
    wrapping = plan.wrapping.model_copy(update={"separate_ends": ends})
    return plan.model_copy(update={"precision": precision, "wrapping": wrapping})


def _is_mixed(precision: Precision) -> bool:
    return precision.compute != "fp32"


def _is_changed(plan: Plan, field: str) -> bool:
    return _is_mixed(plan.precision) and getattr(plan.precision, field.partition(".")[2]) != "fp32"
