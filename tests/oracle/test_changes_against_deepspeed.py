"""Changes to configs that DeepSpeed accepts: lint names the change that made the parser refuse, and no other.

The bases are ours and, where there is a corpus, the public configs. The environment variable DSCONF_MUTANTS says how
many changes to try.
"""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from configs import config_of

from dsconf.document.node import Document, Entry
from dsconf.lint.finding import Finding, Place, place_of

from .judge import refusal
from .linting import bases, lint
from .mutants import Keys, Mutant, mutants

pytestmark = pytest.mark.oracle

COUNT = int(os.environ.get("DSCONF_MUTANTS", "3000"))


def disagreement(mutant: Mutant) -> str | None:
    """How lint and the parser differ over a changed config, None where they agree."""
    refused = refusal(mutant.text, mutant.world_size)
    config = config_of(mutant.text, "deepspeed", mutant.world_size)
    said = [
        finding
        for finding in lint(mutant.text, "deepspeed", mutant.world_size).findings
        if finding.severity == "error" and finding.fails == "parse"
    ]
    about = f"{mutant.text}\n  {mutant.world_size} ranks, changed {mutant.changed}"
    if bool(said) != (refused is not None):
        return f"{about}: lint says {[(each.rule, each.key) for each in said]}, DeepSpeed {refused!r}"
    if (
        said
        and mutant.changed
        and not any(names(config.document, finding, mutant.changed) for finding in said)
    ):
        return f"{about}: lint names none of these: {[(each.rule, each.key) for each in said]}"
    return None


def names(document: Document, finding: Finding, changed: tuple[Keys, ...]) -> bool:
    """Whether a finding stands at a changed key, or at one that a changed key contradicts."""
    if finding.rule == "duplicate-key":
        return True
    places = [finding.place, *(related.place for related in finding.related)]
    for keys in changed:
        entry = document.entry(keys)
        if entry is None:  # deleted: what it leaves behind is contradicted
            return True
        if any(within(document, place, entry) for place in places):
            return True
    return False


def within(document: Document, place: Place, entry: Entry) -> bool:
    """Whether a place is in an entry, or around it."""
    here = place_of(document, entry.span)
    start, end = (place.line, place.column), (place.end_line, place.end_column)
    first, last = (here.line, here.column), (here.end_line, here.end_column)
    return first <= start < last or start <= first < end


def test_changes() -> None:
    counts: Counter[str] = Counter()
    different = []
    for mutant in mutants(COUNT, seed=4, bases=bases()):
        text = disagreement(mutant)
        if text is not None:
            different.append(text)
        counts["refused" if refusal(mutant.text, mutant.world_size) else "accepted"] += 1
    assert different == [], f"{len(different)} of {COUNT}"
    assert min(counts["refused"], counts["accepted"]) > COUNT / 5, counts


def test_the_bases_are_accepted() -> None:
    for config, world_sizes in bases():
        findings = lint(json.dumps(config), "deepspeed", world_sizes[0]).findings
        assert [each for each in findings if each.severity == "error" and each.fails == "parse"] == []
