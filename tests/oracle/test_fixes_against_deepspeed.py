"""Safe fixes against the real DeepSpeed: what it accepted trains as before, and what it refused for this it accepts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from configs import config_of
from corpus import corpus_json

from dsconf.config.context import Consumer
from dsconf.document.edit import apply
from dsconf.document.source import Unusable
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .engine import initialize
from .judge import faults, hjson, pydantic, read, torch
from .linting import without_autos
from .mutants import mutants

pytestmark = pytest.mark.oracle

RULES = load_rules()


def safe_fixes(text: str, consumer: Consumer | None, world_size: int) -> Iterator[tuple[Finding, str]]:
    """Each finding that has a safe fix, and the text after that one."""
    for finding in lint_config(config_of(text, consumer, world_size), RULES).findings:
        if finding.fix is not None and finding.fix.safe:
            yield finding, apply(text, finding.fix.edits)


NEVER_USED = ("legacy_stage1",)
"""It stops deepspeed.initialize, or nobody reads it."""


def state(value: Any) -> Any:
    """All that DeepSpeed reads of a config, without the keys that only say in old words what newer ones say too."""
    if isinstance(value, pydantic.BaseModel):
        fields = type(value).model_fields
        return {
            name: state(getattr(value, name))
            for name, field in fields.items()
            if not (field.json_schema_extra or {}).get("deprecated") and name not in NEVER_USED
        }
    if isinstance(value, dict):
        return {name: state(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [state(each) for each in value]
    if type(value).__module__.startswith("deepspeed") and hasattr(value, "__dict__"):
        return {name: state(each) for name, each in vars(value).items() if name != "_param_dict"}
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def as_truth(value: Any) -> Any:
    """Texts where DeepSpeed only asks whether they are empty: "true" counts for true."""
    if isinstance(value, dict):
        return {name: as_truth(each) for name, each in value.items()}
    return True if value == "true" else value


UNUSED: dict[str, tuple[str, ...]] = {
    "adam-is-adamw": ("optimizer_name",),
    "offload-param-needs-zero3": ("zero_config.offload_param",),
    "nvme-needs-zero3": ("zero_config.offload_optimizer",),
}
"""What a fix changes in the text that builds the same: the tests of the rule prove that."""


def without_unused(config: Any, rule: str) -> Any:
    """A state without what the fix of a rule changes only in words.

    That nothing reads an inert key is proven for the key table; DeepSpeed keeps its value all the same.
    """
    if rule == "inert-key":
        return None
    for name in UNUSED.get(rule, ()):
        above, _, below = name.partition(".")
        if below and above in config:
            config = {**config, above: {key: value for key, value in config[above].items() if key != below}}
        else:
            config = {key: value for key, value in config.items() if key != name}
    return config


def check(text: str, world_size: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for consumer in (None, "deepspeed"):
        for finding, changed in safe_fixes(text, consumer, world_size):
            before, after = faults(text, world_size), faults(changed, world_size)
            if finding.fails == "parse" or (finding.severity == "error" and before):
                assert len(after) < len(before) or finding.fails != "parse", (text, changed, before, after)
                counts["refused"] += len(before) > 0
                counts["accepted then"] += not after
            elif not before:
                old, new = (state(read(hjson.loads(each), world_size)) for each in (text, changed))
                if finding.rule == "bool-as-string":
                    old, new = as_truth(old), as_truth(new)
                if finding.fails is None:
                    old, new = (without_unused(each, finding.rule) for each in (old, new))
                    assert old == new, (finding.rule, text, changed)
                    counts["as before"] += 1
            else:
                assert len(after) <= len(before), (text, changed, before, after)
            counts[finding.rule] += 1
    return counts


RULES_WITH_SAFE_FIXES = {
    "type-number-as-string", "removed-key", "deprecated-key", "deprecated-and-new-key", "both-spellings",
    "misplaced-key", "invalid-enum", "bool-as-string", "duplicate-key",
}  # fmt: skip


def test_mutants() -> None:
    counts: Counter[str] = Counter()
    for mutant in mutants(4000, seed=5):
        counts += check(mutant.text, mutant.world_size)
    assert all(counts[name] >= 20 for name in ("refused", "accepted then", "as before")), counts
    assert set(counts) >= RULES_WITH_SAFE_FIXES, counts


OLD_FORMS: list[dict[str, Any]] = [
    *({"zero_optimization": value} for value in (True, False)),
    *(
        {"zero_optimization": {"stage": stage, name: value}}
        for stage in (1, 2, 3)
        for name in (
            "cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory", "legacy_stage1",
            "stage3_gather_fp16_weights_on_model_save",
        )
        for value in (True, False, None)
    ),
    {"bfloat16": {"enabled": True}},
]  # fmt: skip


def test_old_forms() -> None:
    counts: Counter[str] = Counter()
    for config in OLD_FORMS:
        counts += check(json.dumps({"train_micro_batch_size_per_gpu": 1, **config}), 1)
    assert counts["as before"] >= 20, counts


@pytest.mark.parametrize("path", corpus_json(), ids=lambda path: path.stem)
def test_public_configs(path: Path) -> None:
    try:
        text = without_autos(path.read_text(encoding="utf-8"))
    except Unusable:
        return
    check(text, 8)


# ---- what shows later than when the file is read -----------------------------------------------------

LATE: list[dict[str, Any]] = [
    {
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "max_grad_norm": 1.0}},
    },
    {"optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": "1e-4"}}},
    {"optimizer": {"type": "AdamW", "params": {"torch_adam": True, "weight_decay": " 0.1 "}}},
]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("config", LATE, ids=json.dumps)
def test_what_stopped_later_runs(config: dict[str, Any]) -> None:
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, **config})
    ((finding, changed),) = safe_fixes(text, "deepspeed", 1)
    assert finding.fails in ("init", "step")
    assert not trains(text)
    assert trains(changed)


def trains(text: str) -> bool:
    """Whether a run with this config takes a step."""
    engine = initialize(hjson.loads(text))
    if isinstance(engine, Exception):
        return False
    try:
        engine.backward(engine(torch.ones(1, 4)).sum())
        engine.step()
    except Exception:
        return False
    return True
