"""Lint against the real DeepSpeed: an error that says "parse" stands exactly where DeepSpeedConfig raises for it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from configs import config_of
from corpus import corpus_json

from dsconf.config.context import Consumer, Context
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.engine import lint_file
from dsconf.lint.finding import Result

from .engine import initialize, refused
from .judge import BATCH_KEYS, OTHERS, Constraint, Fault, faults, hjson, read
from .linting import RULES, lint, without_autos
from .mutants import BASES, WORLD_SIZES, contradict, mutants

pytestmark = pytest.mark.oracle

CONSTRAINTS: dict[str, Constraint] = {
    "batch-product-mismatch": "batch-product",
    "batch-indivisible": "batch-indivisible",
    "batch-derived-zero": "batch-indivisible",
    "batch-missing": "batch-missing",
    "batch-not-positive": "batch-not-positive",
    "precision-both": "precision-both",
    "unknown-nested-key": "unknown-nested-key",
    "misplaced-key": "unknown-nested-key",
    "type-number-as-string": "quoted-number",
    "invalid-type": "wrong-value",
    "invalid-enum": "wrong-value",
    "int-field-fractional": "wrong-value",
    "out-of-range": "wrong-value",
    "warmup-nonpositive": "wrong-value",
    "bool-as-string": "wrong-value",
    "removed-key": "removed-key",
    "max-grad-norm-in-optimizer": "removed-key",
    "deprecated-and-new-key": "deprecated-and-new",
    "both-spellings": "both-spellings",
    "duplicate-key": "duplicate-key",
}
"""The rules whose errors DeepSpeedConfig decides, and what the judge calls the reason."""


def reasons(result: Result) -> set[tuple[Constraint, str]]:
    """What lint says that DeepSpeedConfig raises for, as `Fault` names it."""
    found: set[tuple[Constraint, str]] = set()
    for finding in result.findings:
        # "auto" in keys that DeepSpeed refuses it in has a test of its own.
        if (
            finding.severity == "error"
            and finding.fails == "parse"
            and finding.rule != "auto-without-resolver"
        ):
            constraint = CONSTRAINTS.get(finding.rule, finding.rule)
            found.add((constraint, place(constraint, finding.key)))
    return found


def place(constraint: Constraint, key: str) -> str:
    """The key by which a reason is compared: "" for those between several keys, the name alone of a duplicate."""
    if constraint.startswith(("batch", "precision")) or constraint in OTHERS.values():
        return ""
    return key.rpartition(".")[2] if constraint == "duplicate-key" else key


def is_left_out(fault: Fault) -> bool:
    """Whether it is a CPU's, in an undeclared section, or `allgather_size` beside `zero_optimization: true`."""
    if fault.path in ("allgather_size", "aio.use_gds"):
        return True
    node = load_keys()
    for key in fault.path.split("."):
        node = node.get("keys", {}).get(key, {})
        if node.get("open"):
            return True
    return False


def disagreement(text: str, world_size: int, found: list[Fault]) -> str | None:
    """How lint and DeepSpeed differ over the reasons for which a file is refused."""
    ours = reasons(lint(text, "deepspeed", world_size))
    unexplained = [fault for fault in found if fault.constraint == "other" and not is_left_out(fault)]
    if unexplained:
        return f"{text}\n  no rule, and no reason for it: {unexplained}"
    covered = [
        (fault, (fault.constraint, place(fault.constraint, fault.path)))
        for fault in found
        if fault.constraint != "other" and not is_left_out(fault)
    ]
    needed = {reason for fault, reason in covered if not fault.hidden}
    possible = {reason for _, reason in covered}
    if any(fault.constraint == "duplicate-key" for fault in found):
        # DeepSpeed names those of one object, and what stands in the first of two sections it never sees.
        possible |= ours
    if needed <= ours <= possible:
        return None
    missed, wrong = sorted(needed - ours), sorted(ours - possible)
    return f"{text}\n  {world_size} ranks: missed {missed}, wrong {wrong}, DeepSpeed: {found}"


def test_the_bases_are_accepted() -> None:
    for base in BASES:
        text = json.dumps(base)
        assert faults(text, 1) == []
        found = {each.rule for each in lint(text, "deepspeed", 1).findings if each.severity != "info"}
        assert found <= {"fp16-loss-not-scaled", "auto-without-resolver"}, text
        assert '"auto"' in text or "auto-without-resolver" not in found


def test_mutants() -> None:
    counts: Counter[str] = Counter()
    different = []
    for mutant in itertools.chain(mutants(6000, seed=1), mutants(4000, seed=1, damages=[contradict])):
        found = faults(mutant.text, mutant.world_size)
        counts.update({str(fault.constraint) for fault in found} or {"accepted"})
        if text := disagreement(mutant.text, mutant.world_size, found):
            different.append(text)
    assert different == []
    assert all(
        counts[constraint] >= 20 for constraint in (*CONSTRAINTS.values(), *OTHERS.values(), "accepted")
    ), counts


def test_autos_are_replaced() -> None:
    text = '{"train_batch_size": "auto", "gradient_clipping": "auto", "fp16": {"enabled": "auto"}}'
    micro = '{"train_micro_batch_size_per_gpu": "auto", "communication_data_type": "auto"}'
    assert (
        without_autos(text)
        == '{"train_batch_size": null, "gradient_clipping": 1, "fp16": {"enabled": "auto"}}'
    )
    assert without_autos(micro) == '{"train_micro_batch_size_per_gpu": 2, "communication_data_type": null}'


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("path", corpus_json(), ids=lambda path: path.stem)
def test_public_configs(path: Path) -> None:
    result = lint_file(str(path), RULES, Context("deepspeed", 8))
    text = path.read_text(encoding="utf-8")
    if result.unusable:
        with pytest.raises(ValueError, match=r"line|char"):
            json.loads(text)
        assert not any(is_accepted(text, world_size) for world_size in WORLD_SIZES)
        return
    if config_of(text).document.placeholders:
        pytest.skip("a template, which is no config before it is filled in")
    settled = without_autos(text)
    for world_size in WORLD_SIZES:
        found = faults(settled, world_size)
        assert disagreement(settled, world_size, found) is None
        if not found and is_buildable(settled):
            for consumer in (None, "deepspeed", "trainer", "accelerate"):
                handed = settled if consumer == "deepspeed" else text
                assert errors_of_a_sound_file(handed, consumer, world_size) == []


def is_buildable(text: str) -> bool:
    """Whether deepspeed.initialize takes the optimizer and the schedule of a file."""
    config = hjson.loads(text)
    return not refused(initialize({key: config[key] for key in ("optimizer", "scheduler") if key in config}))


def is_accepted(text: str, world_size: int) -> bool:
    """Whether DeepSpeed, which reads HJSON, takes a file."""
    try:
        return faults(text, world_size) == []
    except ValueError:
        return False


ELSEWHERE = ("accelerate-needs-zero-block", "auto-unsupported-key", "autotp-indivisible")
"""What Accelerate refuses, and DeepSpeed does not (against the real one in test_consumers), and what needs ranks."""


def errors_of_a_sound_file(text: str, consumer: Consumer | None, world_size: int) -> list[str]:
    """The errors of a file that DeepSpeed accepts, whenever they would show."""
    return [
        f"{consumer}: {finding.rule} {finding.key}"
        for finding in lint(text, consumer, world_size).findings
        if finding.severity == "error" and finding.rule not in ELSEWHERE
    ]


TOTALS = [None, 1, 4, 6, 30, 48, 60, 64, 12.0, 0.3, 2.1, 0, -4]
FACTORS = [None, 1, 2, 3, 4, 8, 12, 30, 1.5, 0.1, 0, -2]
SIZES = sorted({24, *(size for size in range(1, 65) for total in (48, 60, 64) if total % size == 0)})
"""Any other number of GPUs divides none of the totals."""


@pytest.mark.parametrize("parallel", [{}, {"sequence_parallel_size": 24}], ids=json.dumps)
def test_a_batch_error_without_a_world_size(parallel: dict[str, int]) -> None:
    """It is said only where no number of GPUs would do, and for whole numbers wherever none would."""
    counts: Counter[str] = Counter()
    for batch in itertools.product(TOTALS, FACTORS, FACTORS):
        config = {**dict(zip(BATCH_KEYS, batch, strict=True)), **parallel}
        said = bool(reasons(lint(json.dumps(config), "deepspeed")))
        accepted = any(not isinstance(read(config, size), Exception) for size in SIZES)
        assert not (said and accepted), config
        whole = all(number is None or number == int(number) for number in batch)
        assert said or accepted or not whole or parallel, config
        counts[f"{said} {accepted}"] += 1
    assert min(counts[outcome] for outcome in ("True False", "False True", "False False")) >= 10, counts
