"""Rule pages: their examples are run, and their form is checked."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from examples import EXAMPLES, PAGES, RULES, Example, examples_of, lint_json, sections

from dsconf.config.context import Context
from dsconf.lint import schema, wrong_value
from dsconf.lint.compile import SCHEMA_KINDS, compile_rules, split_page
from dsconf.lint.formats import NAMES, format_named
from dsconf.lint.names import faults, leaves

HEADINGS = ["What it catches", "Why it matters", "Bad", "Good", "References"]
FAMILIES = {
    "reading": "DS1",
    "batch": "DS2",
    "precision": "DS3",
    "zero": "DS4",
    "offload": "DS5",
    "optimizer": "DS6",
    "checkpoint": "DS7",
    "performance": "DS8",
    "parallel": "DS9",
    "accelerate": "AC",
    "trainer": "TR",
    "fsdp": "FS",
}
ENTRIES = compile_rules(RULES)
CHECKS = {name: check for format in NAMES for name, check in format_named(format).checks.items()}
SERIOUS = ("error", "warning")


def page_id(page: Path) -> str:
    return page.stem


def entry_id(entry: dict[str, Any]) -> str:
    return str(entry["code"])


def facts_of(page: Path) -> dict[str, Any]:
    return tomllib.loads(split_page(page.read_text(encoding="utf-8"))[0])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_example(example: Example, tmp_path: Path) -> None:
    path = tmp_path / example.file
    status, report = lint_json(path, *example.write(path))
    said = {finding["rule"] for finding in report["findings"]}
    serious = {finding["rule"] for finding in report["findings"] if finding["severity"] in SERIOUS}
    name = facts_of(example.page)["name"]
    assert not report["skipped"]
    if example.section == "Good":
        assert serious == set()
        assert name not in said
        assert status == 0
    else:
        assert name in said
        assert serious <= {name}
        assert (status == 0) == (not serious)


def test_pages_exist() -> None:
    assert len(PAGES) == len(ENTRIES) >= 15


@pytest.mark.parametrize("field", ["code", "name"])
def test_unique(field: str) -> None:
    counts = Counter(entry[field] for entry in ENTRIES)
    assert [value for value, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_form(page: Path) -> None:
    text, facts = page.read_text(encoding="utf-8"), facts_of(page)
    assert page.name == f"{facts['code']}-{facts['name']}.md"
    assert text.startswith(f"# {facts['name']}\n\n```toml\n")
    assert [title for title, _ in sections(text)] == HEADINGS
    assert all(body.strip() for _, body in sections(text))
    assert {example.section for example in examples_of(page)} == {"Bad", "Good"}
    assert re.fullmatch(r"[A-Z]{2}[1-9]\d\d", facts["code"])
    assert facts["code"].startswith(FAMILIES[page.parent.name])
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", facts["name"])
    assert len(facts["evidence"]) > 20


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_names_exist(entry: dict[str, Any]) -> None:
    assert set(entry["formats"]) <= set(NAMES)
    for name in entry["formats"]:
        format = format_named(name)
        assert list(faults(entry, format.table_for(None, Context()), format.facts)) == []
        assert entry["kind"] in ("when", "reader", "suppression", *SCHEMA_KINDS, *format.checks)
    assert not leaves(entry, "key") or entry["kind"] in (*SCHEMA_KINDS, *CHECKS)


def test_leaves_sees_everything() -> None:
    entry: dict[str, Any] = {field: [] for field in ("severity", "fails", "at", "help", "related")}
    entry["fix"] = [[None, {"edits": [["set", "key", ["object", ["h", ["key", "i"]]]]]}]]
    entry["when"] = ["and", ["present", "a.b"], ["not", ["==", ["path", "c"], ["fact", "d"]]]]
    entry["message"] = [[["in", ["context", "e"], ["list", ["path", "f"]]], ["text ", ["key", "g"]]]]
    assert leaves(entry, "path", "present") == {"a.b", "c", "f"}
    assert leaves(entry, "fact", "context", "key") == {"d", "e", "g", "i"}
    entry["fix"] = [[None, {"edits": [["set", "h", ["path", "i"]]]}]]
    assert leaves(entry, "path") == {"c", "f", "i"}


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_names_of_keys_are_those_that_the_walk_provides(entry: dict[str, Any]) -> None:
    source = inspect.getsource(schema) + inspect.getsource(wrong_value)
    if entry["kind"] in CHECKS:
        checks = [format_named(name).checks.get(entry["kind"]) for name in entry["formats"]]
        modules = {inspect.getmodule(check) for check in checks if check}
        source = "".join(inspect.getsource(module) for module in modules if module)
    for name in leaves(entry, "key"):
        assert f'"{name}":' in source


@pytest.mark.parametrize("entry", ENTRIES, ids=entry_id)
def test_there_is_always_a_message_and_a_severity(entry: dict[str, Any]) -> None:
    assert entry["message"][-1][0] is None, "the last case has no condition"
    assert entry["severity"][-1][0] is None
    assert entry["kind"] != "when" or entry["when"] is not None
    assert (
        entry["url"]
        == f"rules/{next(page for page in PAGES if page.stem.startswith(entry['code'])).relative_to(RULES).as_posix()}"
    )


@pytest.mark.parametrize("info", ["json", 'json args="--world-size 8"', 'json encoding="utf-16"'])
def test_fences_are_parsed(tmp_path: Path, info: str) -> None:
    page = tmp_path / "DS999-x.md"
    page.write_text(f"# x\n\n## Bad\n```{info}\n## not a heading\n```\n\n## Good\n```json\n{{}}\n```\n")
    bad, good = examples_of(page)
    assert (bad.section, bad.text, good.section, good.text) == ("Bad", "## not a heading\n", "Good", "{}\n")
    assert bad.args == (("--world-size", "8") if "args" in info else ())
    assert bad.encoding == ("utf-16" if "encoding" in info else "utf-8")


@pytest.mark.parametrize("info", ["toml", "json args=8", 'json arg="--world-size 8"', 'jsonargs="x"'])
def test_fences_that_would_never_run_are_refused(tmp_path: Path, info: str) -> None:
    page = tmp_path / "DS999-x.md"
    page.write_text(f"# x\n\n## Bad\n```{info}\n{{}}\n```\n")
    with pytest.raises(ValueError, match="no example"):
        examples_of(page)
