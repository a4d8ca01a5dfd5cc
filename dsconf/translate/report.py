"""The report of a translation: an item for every key, and one outcome for the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsconf.config.context import Context
from dsconf.formats.choices import Numerics
from dsconf.formats.deepspeed.keys import NEWEST
from dsconf.formats.outcome import FIDELITY, Item, Landing, Outcome, worst
from dsconf.formats.reading import Reading, Remark
from dsconf.formats.writing import Writing
from dsconf.plan import Plan
from dsconf.translate.wrapping import Chosen

_RUNS = "over 8 steps of the test model on 2 ranks"
_EQUAL = f"losses and weights equal bit for bit, {_RUNS}"
_CLOSE = {
    "fp32": f"fp32: loss within 2e-6 {_RUNS}",
    "bf16": f"bf16: loss within 5e-3 {_RUNS}",
    "fp16": f"fp16: loss within 5e-3 {_RUNS}",
}
"""What the parity runs hold for an overall outcome "close", by precision."""
_LOADED = "; loss within 5e-3 where the model is loaded in bf16"
"""What is added without a precision section, where a model trains in the dtype that it was loaded in."""


class Report(NamedTuple):
    """What became of a source."""

    source: str
    target: str
    file: str
    overall: Outcome
    note: str
    items: list[Item]
    version: str | None
    """Of the source framework, if somebody said that it is older than the newest."""
    needs: str
    """What the target is for, such as the oldest torch."""
    numerics: Numerics
    other_numerics: str
    """What the other choice would change and cost."""
    blocks: Chosen
    """The modules that are sharded one by one."""

    @property
    def assumed(self) -> list[str]:
        """What was taken for granted where nobody said it."""
        blocks = [self.blocks.assumed] if self.blocks.assumed else []
        return [*self._assumed_version, *blocks]

    @property
    def _assumed_version(self) -> list[str]:
        """What the absence of a key was taken for, where the version of DeepSpeed decides."""
        if (
            self.source != "deepspeed"
            or self.version is not None
            or not any(item.key == "gradient_clipping" and not item.written for item in self.items)
        ):
            return []
        newer = "DeepSpeed 0.19.3 or newer, which clips at 1.0 where gradient_clipping is absent"
        return [f"{newer} (else --deepspeed-version)"]

    @property
    def kind(self) -> str:
        """What is written, in one word."""
        return "code" if self.target == "fsdp2" else "config"

    @property
    def waiting(self) -> str:
        """How many values somebody still has to give, beside which the overall outcome stands; "" without any."""
        count = sum(item.outcome == "needs-value" for item in self.items)
        return f"{count} {'value' if count == 1 else 'values'} to give" if count else ""

    @property
    def supported(self) -> bool:
        """Whether every setting has a counterpart."""
        return all(item.outcome != "unsupported" for item in self.items)

    def missing(self, *, forced: bool) -> str:
        """What follows from unsupported settings, code being written all the same or not; "" without any."""
        if self.supported:
            return ""
        if forced:
            return f"The {self.kind} goes without what is unsupported: it trains something else than the source says."
        return f"No {self.kind} was written: something is unsupported (--force writes the {self.kind} without it)."

    def as_json(self) -> dict[str, Any]:
        """The form that --report writes: version 1."""
        return {
            "version": 1,
            "source": self.source,
            "target": self.target,
            "numerics": self.numerics,
            "needs": self.needs,
            "torch": self.needs.removeprefix("torch >= ") if self.target == "fsdp2" else None,
            "assumed": self.assumed,
            "overall": {"outcome": self.overall, "note": self.note},
            "blocks": {"classes": list(self.blocks.wrapping.block_classes), "source": self.blocks.label},
            "items": [
                {
                    "key": item.key,
                    "value": item.value,
                    "outcome": item.outcome,
                    "target": item.target,
                    "note": item.note,
                    "action": item.action,
                    "written": item.written,
                }
                for item in self.items
            ],
        }


def assemble(
    path: str,
    reading: Reading,
    writing: Writing,
    target: str,
    context: Context,
    numerics: Numerics,
    other: str,
    blocks: Chosen,
) -> Report:
    """Join what the reader and the writer say of each key, in the order of the file.

    `other` is what the other choice of `numerics` would change.
    """
    items = list(reading.items)
    done = {item.key for item in items}
    order = {key: place for place, key in enumerate(reading.written)}
    placed = [key for key in reading.fields if key in reading.written or key in reading.in_force]
    items += [_placed(key, reading, writing.landings) for key in placed if key not in done]
    items = [item._replace(value=reading.written.get(item.key, item.value)) for item in items]
    if target != "fsdp2":  # whose functions have parameters without defaults
        items += _wanted(reading, writing.landings)
    items.sort(key=lambda item: (not item.written, order.get(item.key, len(order)), item.key))
    overall = worst([item.outcome for item in items])
    measured = (reading.source, target) == ("deepspeed", "fsdp2")
    note = _overall_note(overall, reading.plan) if measured or overall == "approximate" else ""
    version = context.deepspeed_version if reading.source == "deepspeed" else None
    if note and version is not None:
        note += f", with DeepSpeed {NEWEST}"
    return Report(
        reading.source, target, path, overall, note, items, version, writing.needs, numerics, other, blocks
    )


def _wanted(reading: Reading, landings: Mapping[str, Landing]) -> list[Item]:
    """What the target needs, and no key of the source says, nor a default of its own."""
    said = {
        field for key, field in reading.fields.items() if key in reading.written or key in reading.in_force
    }
    told = [landings[field] for field in said if field in landings]
    keys = {field: key for key, field in reading.fields.items()}
    wanted = []
    for field, landing in landings.items():
        if landing.outcome == "needs-value" and field not in said and landing not in told:
            key = keys.get(field, landing.target)
            target = "" if landing.target == key else landing.target
            wanted.append(Item(key, None, "needs-value", target, landing.note, landing.action, written=False))
    return wanted


def _placed(key: str, reading: Reading, landings: Mapping[str, Landing]) -> Item:
    written = key in reading.written
    default = None if written else reading.in_force[key]
    value = reading.written[key] if default is None else default.value
    field = reading.fields[key]
    section = field.partition(".")[0]
    landing = landings.get(field) or landings.get(f"{section}.name")
    if landing is None:
        return Item(key, value, "unsupported", note=f"it belongs to the {section}, which is not translated")
    remark = reading.remarks.get(key, Remark("exact", ""))
    outcomes: list[Outcome] = [landing.outcome, remark.outcome]
    outcome: Outcome
    if "needs-value" in outcomes:
        outcome = "needs-value"
    else:
        outcome = worst(outcomes) if landing.outcome in FIDELITY else landing.outcome
    notes = [note for note in (default.note if default else "", remark.note, landing.note) if note]
    return Item(key, value, outcome, landing.target, "; ".join(dict.fromkeys(notes)), landing.action, written)


def _overall_note(overall: Outcome, plan: Plan) -> str:
    compute = plan.precision.compute if isinstance(plan.precision.compute, str) else "bf16"
    if overall == "exact":
        # At the other stages DeepSpeed trains a model that was loaded in bf16 as exactly.
        differs = compute == "fp32" and plan.sharding.partition in ("nothing", "parameters")
        return _EQUAL + _LOADED * differs
    if overall == "close":
        return _CLOSE[plan.precision.coarsest] + _LOADED * (plan.precision.coarsest == "fp32")
    return "what is marked approximate says how it differs" if overall == "approximate" else ""
