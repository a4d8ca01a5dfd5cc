"""The minimal style: a module with parallelize alone says what its script has to do itself."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import Draft

_IN_ORDER = ("batch.micro", "batch.accumulation", "precision.scaling", "clipping.", "optimizer.")
_ELSEWHERE = "as --style module writes it"


def duties(draft: Draft) -> dict[str, str]:
    """By field of the Plan what the training loop has to do, in the order of a step."""
    found = {
        field: draft.landings[field].target
        for field in sorted(draft.landings, key=_place)
        if field.startswith(_IN_ORDER) and draft.landings[field].target and draft.labels.get(field)
    }
    for field, what in _classes(draft).items():
        section = field.removesuffix("name")
        found = {other: duty for other, duty in found.items() if not other.startswith(section)}
        found[field] = what
    if draft.flags["COUNTED"]:
        calls = ["set_reshard_after_backward(is_last)"]
        calls += ["set_requires_gradient_sync(is_last)"] if draft.flags["REDUCED_LAST"] else []
        found["sharding.partition"] = f"per micro batch model.{', model.'.join(calls)}"
    schedule = draft.landings.get("schedule.name")
    if schedule is not None and schedule.outcome != "unsupported":
        found["schedule.name"] = f"build_scheduler() {_ELSEWHERE}"
    return found


def _classes(draft: Draft) -> dict[str, str]:
    """What has no counterpart in torch, by the field that names it: where its code is, arguments included."""
    found = {}
    optimizer = draft.plan.optimizer
    if optimizer is not None and (optimizer.name in ("Lion", "Muon") or not optimizer.bias_correction):
        found["optimizer.name"] = f"build_optimizer() {_ELSEWHERE}"
    if draft.flags["DYNAMIC"]:
        found["precision.scaling"] = f"LossScaler and train_step() {_ELSEWHERE}"
    return found


def reminders(draft: Draft) -> list[str]:
    """What a script has to do that no constant of the module says."""
    lines = []
    if draft.flags["SKIPS"]:
        lines.append("Leave out optimizer.step() and scheduler.step() where the gradient norm is not finite.")
    if draft.flags["LEFT_GATHERED"]:
        lines.append("After an evaluation call reshard() of every FSDPModule: gathered weights grow stale.")
    return lines


def _place(field: str) -> tuple[int, bool]:
    place = next((i for i, start in enumerate(_IN_ORDER) if field.startswith(start)), len(_IN_ORDER))
    return place, field != "optimizer.name"
