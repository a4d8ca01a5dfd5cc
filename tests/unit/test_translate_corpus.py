"""Every public config is translated, or refused with reasons."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import hjson
import pytest
from corpus import corpus_json, needs_corpus

from dsconf.config.context import Context
from dsconf.translate.run import Refused, Translation, translate

pytestmark = needs_corpus

STAGE3 = {"zero_optimization.stage": 3}
"""All of them as ZeRO-3, too, with its own keys in force."""


def leaves(value: object, path: str = "") -> set[str]:
    if isinstance(value, dict) and value:
        return set().union(*(leaves(v, f"{path}.{key}" if path else key) for key, v in value.items()))
    return {path}


@pytest.fixture(scope="module")
def translations() -> dict[tuple[str, bool], Translation]:
    """All that are not refused, as they are and as ZeRO-3."""
    found = {}
    for path in corpus_json():
        for stage3 in (False, True):
            with contextlib.suppress(Refused):
                found[str(path), stage3] = translate(
                    str(path), "fsdp2", Context(), STAGE3 if stage3 else {}, ()
                )
    return found


def test_most_are_read(translations: dict[tuple[str, bool], Translation]) -> None:
    assert len(translations) > 1.5 * len(corpus_json())


def test_every_leaf_is_in_the_report_once(translations: dict[tuple[str, bool], Translation]) -> None:
    """An item stands for its key, or for the whole section that it names."""
    for (path, stage3), done in translations.items():
        keys = [item.key for item in done.report.items]
        assert len(keys) == len(set(keys)), path
        if stage3:
            continue
        written = [item for item in done.report.items if item.written]
        names = {name for item in written for name in (item.key, *spellings(item.key))}
        for leaf in leaves(hjson.loads(Path(path).read_text(encoding="utf-8"))):
            above = leaf.split(".")
            assert names & {".".join(above[:depth]) for depth in range(1, len(above) + 1)}, (path, leaf)


def spellings(key: str) -> list[str]:
    """Other names that a config may use for a canonical key."""
    return [key.replace("stage3_", ""), key.replace("bf16.", "bfloat16.", 1)]


def test_unsupported_items_say_why(translations: dict[tuple[str, bool], Translation]) -> None:
    for (path, _), done in translations.items():
        for item in done.report.items:
            assert item.note or item.target, (path, item)
            assert item.outcome != "unsupported" or item.note, (path, item)


def test_every_module_is_clean_code(
    translations: dict[tuple[str, bool], Translation], tmp_path: Path
) -> None:
    """Also those that --force would write."""
    for number, done in enumerate(translations.values()):
        compile(done.code, "module", "exec")
        (tmp_path / f"m{number}.py").write_text(done.code, encoding="utf-8")
    ruff: list[Any] = [sys.executable, "-m", "ruff", "check", "--isolated", tmp_path]
    done_ruff = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done_ruff.returncode == 0, done_ruff.stdout
