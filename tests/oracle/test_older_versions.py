"""`coerce` over the key tables of older versions, against those versions, each in a process of its own.

The environment variable DSCONF_DEEPSPEEDS names a folder with one sub-folder per version, such as `./dev test` makes.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from examples import EXAMPLES

from dsconf.config.context import Context
from dsconf.config.effective import Config as Effective
from dsconf.document.json_scanner import scan
from dsconf.formats.deepspeed.history import load_history, optimizers_of
from dsconf.formats.deepspeed.keys import NEWEST, load_keys
from dsconf.formats.deepspeed.optimizers import DEEPSPEED_OPTIMIZERS
from dsconf.lint.engine import lint_config
from dsconf.lint.index import load_rules

from .grid import COMPUTED, SHOWN_BY, VALUES, Config, Observed, difference, nodes, values_of
from .linting import bases
from .mutants import mutants
from .versions import look

pytestmark = pytest.mark.oracle

RULES = load_rules()
FOLDER = os.environ.get("DSCONF_DEEPSPEEDS")
VERSIONS = ("0.14.5", "0.16.9", "0.18.9")
INSTALLED = [version for version in VERSIONS if FOLDER and (Path(FOLDER) / version / "deepspeed").is_dir()]

GONE = ("amp", "curriculum_learning", "progressive_layer_drop")
"""Sections that older versions read, and the newest does not."""

# What the key table of an older version can't repeat: the values, and why.
EXCEPTIONS: dict[tuple[str, str], tuple[list[Any], str]] = {
    ("0.18.9", "sequence_parallel_size"): ([-1], "only a negative size is noticed, as a negative batch"),
    **{
        ("0.14.5", monitor): ([[], ""], "pydantic 1 makes an object of it with dict()")
        for monitor in ("tensorboard", "wandb", "comet", "csv_monitor")
    },
    **{
        ("0.14.5", f"comms_logger.{name}"): (["auto"], "its model was none of those that drop it")
        for name in ("enabled", "prof_all", "prof_ops", "verbose", "debug")
    },
    **{
        ("0.14.5", f"zero_optimization.{section}.nvme_path"): (
            [value for value in VALUES if isinstance(value, int | float)],
            "pydantic 1 makes no path of a number, but it does make a string",
        )
        for section in ("offload_param", "offload_optimizer")
    },
    **{
        (version, section): ([{}], "nothing but a section with the key enabled is accepted")
        for version in VERSIONS
        for section in GONE
    },
}


CHANGES = 2000
Asked = tuple[str, Config, int]


@cache
def files() -> list[Asked]:
    """Strict JSON that writes no key twice: the examples of the rules, the bases, and changes to these; with the ranks.

    The name of a base is its number, that of a change begins with the one of its base.
    """
    all_bases = bases()
    texts = [(example.id, example.text, 8 if "--world-size" in example.args else 1) for example in EXAMPLES]
    texts += [
        (f"{place}", json.dumps(base), size)
        for place, (base, sizes) in enumerate(all_bases)
        for size in sizes
    ]
    texts += [
        (f"{mutant.base} changed", mutant.text, mutant.world_size)
        for mutant in mutants(CHANGES, seed=2, bases=all_bases)
    ]
    found = []
    for name, text, world_size in texts:
        try:
            config = json.loads(text, object_pairs_hook=without_duplicates)
        except ValueError:
            continue
        if isinstance(config, dict):
            found.append((name, config, world_size))
    return found


def without_duplicates(pairs: list[tuple[str, Any]]) -> Config:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is written twice")
    return dict(pairs)


@cache
def said(version: str) -> dict[str, Any]:
    return look(Path(FOLDER or "") / version, [(config, world_size) for _, config, world_size in files()])


@cache
def table(version: str) -> dict[str, tuple[Config, Config]]:
    """The keys of one version: for each path its node and that of its section."""
    return {path: (node, section) for path, node, section in nodes(load_keys(version))}


def differences(version: str) -> dict[str, list[Any]]:
    """For each key the values over which `coerce` and DeepSpeed differ."""
    found: dict[str, list[Any]] = {}
    for path, outcomes in said(version)["values"].items():
        if path not in table(version):
            continue
        node, section = table(version)[path]
        seen = [Observed(*outcome) for outcome in outcomes]
        cases = [(value, each) for value, each in zip(VALUES, seen, strict=True)]
        judged = [repr(value) for value in values_of(path, node)]
        wrong = [
            value
            for value, each in cases
            if repr(value) in judged
            and difference(path, node, section.get("reader", "raw"), value, each) is not None
        ]
        if wrong:
            found[path] = wrong
    return found


needs_version = pytest.mark.parametrize(
    "version",
    [
        pytest.param(
            version, marks=pytest.mark.skipif(version not in INSTALLED, reason="DSCONF_DEEPSPEEDS has it not")
        )
        for version in VERSIONS
    ],
)


@needs_version
def test_coerce_does_what_an_older_deepspeed_does(version: str) -> None:
    excepted = {path: values for (of, path), (values, _) in EXCEPTIONS.items() if of == version}
    assert differences(version) == excepted
    assert len(table(version)) > 100


@needs_version
def test_it_has_the_keys_that_deepspeed_has(version: str) -> None:
    """Unknown keys are judged by the strict sections themselves, and by what is looked up in the others."""
    strict = said(version)["pydantic"]
    for section, names in strict.items():
        assert {f"{section}.{name}" for name in names.values()} == {
            path for path in table(version) if path.rpartition(".")[0] == section
        }
        assert table(version)[section][0]["reader"] == "pydantic"
    assert set(said(version)["plain"]) <= set(table(version))
    for section, raises in said(version)["raises"].items():
        if section in table(version) and ".params" not in section:
            assert (table(version)[section][0].get("unknown") == "raises") == raises, section


@needs_version
def test_the_defaults(version: str) -> None:
    wrong = {}
    for path, value in said(version)["defaults"].items():
        node = table(version)[path][0] if path in table(version) else {}
        judged = "default" in node and "object" not in node["type"] and path not in (*COMPUTED, *SHOWN_BY)
        if judged and node["default"] != value:
            wrong[path] = value
    assert wrong == {}


@needs_version
def test_the_optimizers(version: str) -> None:
    newest = [name.lower() for name in DEEPSPEED_OPTIMIZERS]
    assert sorted(optimizers_of(newest, version)) == said(version)["optimizers"]


def is_left_out(config: Config, exception: str | None) -> bool:
    """Whether a version refuses a config for one of EXCEPTIONS: a section that is gone, or "auto" in a monitor's."""
    if exception == "KeyError('enabled')":
        return any(isinstance(config.get(section), dict) for section in GONE)
    return (
        exception is not None and "model='CommsLoggerConfig'" in exception and '"auto"' in json.dumps(config)
    )


def parse_errors(config: Config, world_size: int, version: str) -> list[str]:
    """The rules by which lint says that a version refuses a config when it reads it."""
    document = scan("ds.json", json.dumps(config))
    context = Context("deepspeed", world_size, version)
    findings = lint_config(Effective(document, load_keys(version), context), RULES).findings
    return [each.rule for each in findings if each.severity == "error" and each.fails == "parse"]


@needs_version
def test_lint_on_the_examples(version: str) -> None:
    """What lint says to fail when the file is read is refused; silent it is on no good example that is refused."""
    wrong, refused = [], 0
    for (name, config, world_size), exception in zip(files(), said(version)["refusals"], strict=True):
        if name[0].isdigit():
            continue
        ours = parse_errors(config, world_size, version)
        refused += exception is not None and bool(ours)
        if bool(ours) > (exception is not None) or ("-Good-" in name and exception is not None and not ours):
            wrong.append((name, config, world_size, ours, exception))
    assert wrong == []
    assert refused > 20


@needs_version
def test_lint_on_changes(version: str) -> None:
    """Of what the version accepted before it was changed, lint says to fail what the version refuses, no other."""
    accepted: set[tuple[str, int]] = set()
    wrong = []
    counts = [0, 0]
    for (name, config, world_size), exception in zip(files(), said(version)["refusals"], strict=True):
        if name.isdigit() and exception is None:
            accepted.add((name, world_size))
        place, _, changed = name.partition(" ")
        if not changed or (place, world_size) not in accepted or is_left_out(config, exception):
            continue
        ours = parse_errors(config, world_size, version)
        counts[exception is not None] += 1
        if bool(ours) != (exception is not None):
            wrong.append((json.dumps(config), world_size, ours, exception))
    assert wrong == [], f"{len(wrong)} of {sum(counts)}"
    assert min(counts) > CHANGES / 10


def test_the_installed_one_is_the_newest_of_the_history() -> None:
    assert load_history()["versions"][-1] == NEWEST
