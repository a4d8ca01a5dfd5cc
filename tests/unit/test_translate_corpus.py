"""Every public config is translated, or refused with reasons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import hjson
import pytest
from corpus import MUST_TRANSLATE, configs, corpus_json, named, needs_corpus
from filling import values_for
from leaves import faults

from dsconf.config.context import Context
from dsconf.document.source import Unusable
from dsconf.translate.run import Refused, Translation, translate

pytestmark = needs_corpus

STAGE3: dict[str, object] = {"zero_optimization.stage": 3}
AT_LEAST = 200
SOME = 60


class Outcome(NamedTuple):
    """What became of one file: the translation, or the reasons why there is none."""

    done: Translation | None
    reasons: list[str]


def outcome(path: Path, values: dict[str, object]) -> Outcome:
    try:
        done = translate(str(path), "fsdp2", Context(), values, ())
    except Refused as refused:
        return Outcome(None, [finding.message for finding in refused.result.findings])
    return Outcome(done, [item.note for item in done.report.items if item.outcome == "unsupported"])


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, Outcome]:
    """Of all files, with values for what they leave open."""
    found = {}
    for path in corpus_json():
        try:
            found[path] = outcome(path, values_for(path))
        except Unusable as problem:
            found[path] = Outcome(None, [str(problem)])
    return found


@pytest.fixture(scope="module")
def translations(outcomes: dict[Path, Outcome]) -> dict[tuple[Path, str], Translation]:
    """What is not refused: all with values for what is open; some as they are, and as ZeRO-3 with its keys in force."""
    ways = [(path, "filled", found) for path, found in outcomes.items()]
    some = Random(3).sample(list(outcomes), SOME)
    ways += [(path, "as it is", outcome(path, {})) for path in some]
    ways += [(path, "as ZeRO-3", outcome(path, STAGE3)) for path in some]
    return {(path, way): found.done for path, way, found in ways if found.done is not None}


def test_what_must_translate_does(outcomes: dict[Path, Outcome]) -> None:
    found = {named(path): outcomes[path] for path in configs()}
    assert len(MUST_TRANSLATE) >= AT_LEAST
    assert {name: found[name].reasons for name in MUST_TRANSLATE if found[name].reasons} == {}


def test_nothing_is_open_once_every_auto_has_a_value(outcomes: dict[Path, Outcome]) -> None:
    for path in configs():
        done = outcomes[path].done
        if done is not None and done.report.supported:
            assert [item.key for item in done.report.items if item.outcome == "needs-value"] == [], path


def test_what_does_not_translate_says_why(outcomes: dict[Path, Outcome]) -> None:
    """A config that translates by now is to be listed: ./dev corpus --write."""
    for path in configs():
        if named(path) not in MUST_TRANSLATE:
            assert outcomes[path].reasons, path
            assert all(outcomes[path].reasons), path


def test_every_leaf_is_in_the_report_once(translations: dict[tuple[Path, str], Translation]) -> None:
    for (path, way), done in translations.items():
        try:
            source = hjson.loads(path.read_text(encoding="utf-8"))
        except hjson.HjsonDecodeError:
            continue  # a template
        assert list(faults(source, done.report)) == [], (path, way)


def test_every_module_is_clean_code(
    translations: dict[tuple[Path, str], Translation], tmp_path: Path
) -> None:
    """Also those that --force would write."""
    for number, done in enumerate(translations.values()):
        compile(done.text, "module", "exec")
        (tmp_path / f"m{number}.py").write_text(done.text, encoding="utf-8")
    ruff: list[Any] = [sys.executable, "-m", "ruff", "check", "--isolated", tmp_path]
    done_ruff = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done_ruff.returncode == 0, done_ruff.stdout
