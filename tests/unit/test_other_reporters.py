"""GitHub annotations, SARIF, statistics, and the commands that explain rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from examples import PAGES

from dsconf import __version__
from dsconf.cli import main
from dsconf.document.node import Edit
from dsconf.lint.finding import Finding, Fix, Place, Related
from dsconf.lint.finding import Result as Found
from dsconf.lint.report import reporter

TEXT = '{\n  "train_micro_batch_size_per_gpu": "8",\n  "gradient_cliping": 0.5\n}\n'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    Path("ds.json").write_text(TEXT, encoding="utf-8")


def dsconf(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_github() -> None:
    result = dsconf("lint", "ds.json", "--output-format", "github")
    first, second, *rest = result.stdout.splitlines()
    assert first.startswith(
        "::error file=ds.json,line=2,endLine=2,col=3,endColumn=40,title=DS106 type-number-as-string::"
    )
    assert second.startswith("::warning file=ds.json,line=3,endLine=3,col=3,endColumn=21,title=DS104 ")
    assert "%0Ahelp: did you mean" in second
    (summary,) = rest
    assert summary.startswith("Found 2 problems (1 error, 1 warning) in 1 file: 1 fixable with --fix")


def test_github_escapes() -> None:
    place = Place("a,b:c%.json", 1, 1, 2, 5)
    finding = Finding("DS1", "x", "info", None, place, "", "50% of\nit: all, of it")
    text = reporter("github")([Found("a,b:c%.json", [finding])])
    assert text.splitlines()[0] == (
        "::notice file=a%2Cb%3Ac%25.json,line=1,endLine=2,title=DS1 x::50%25 of%0Ait: all, of it"
    )


@pytest.mark.parametrize(("value", "wanted"), [("true", True), ("false", False), ("", False)])
def test_github_comes_by_itself(monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", value)
    assert dsconf("lint", "ds.json").stdout.startswith("::error") is wanted
    assert not dsconf("lint", "ds.json", "--output-format", "full").stdout.startswith("::")


def sarif(results: list[Found]) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(reporter("sarif")(results))
    assert log["version"] == "2.1.0"
    assert len(log["runs"]) == 1
    run: dict[str, Any] = log["runs"][0]
    return run


def test_sarif_from_the_command_line() -> None:
    result = dsconf("lint", "ds.json", "--output-format", "sarif")
    assert result.exit_code == 1
    run = json.loads(result.stdout)["runs"][0]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("dsconf", __version__)
    assert [rule["id"] for rule in driver["rules"]] == ["DS104", "DS106"]
    for found in run["results"]:
        assert driver["rules"][found["ruleIndex"]]["id"] == found["ruleId"]
    assert [found["level"] for found in run["results"]] == ["error", "warning"]
    place = run["results"][1]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "ds.json", "uriBaseId": "ROOT"}
    assert place["region"] == {"startLine": 3, "startColumn": 3, "endLine": 3, "endColumn": 21}
    assert run["originalUriBaseIds"]["ROOT"]["uri"].endswith("/")
    assert run["invocations"][0]["executionSuccessful"] is True


def test_sarif_of_a_whole_finding() -> None:
    place, other = Place("/a b/ds.json", 1, 2, 1, 5), Place("c.json", 3, 4, 3, 6)
    finding = Finding(
        "DS501", "x-y", "warning", "init", place, "a.b", "wrong", "do it", (Related(other, "here"),), "rules/x",
        Fix(True, "remove it", (Edit(3, 7, "z"),)),
    )  # fmt: skip
    run = sarif([Found("/a b/ds.json", [finding]), Found("no.json", [], skipped="no config")])
    (found,) = run["results"]
    assert found["message"] == {"text": "wrong. Help: do it"}
    assert found["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///a%20b/ds.json"}
    assert found["relatedLocations"][0]["message"] == {"text": "here"}
    (change,) = found["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {"deletedRegion": {"charOffset": 3, "charLength": 4}, "insertedContent": {"text": "z"}}
    ]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"] == {"text": "skipped: no config"}


def test_sarif_says_that_a_file_was_unusable() -> None:
    assert sarif([Found("x", [], unusable=True)])["invocations"][0]["executionSuccessful"] is False


def test_statistics() -> None:
    Path("b.json").write_text(TEXT.replace('"8"', "8"), encoding="utf-8")
    result = dsconf("lint", "ds.json", "b.json", "--statistics")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == [
        "2  DS104  warning  unknown-top-level-key",
        "1  DS106  error    type-number-as-string",
    ]
    Path("b.json").write_text('{"train_micro_batch_size_per_gpu": 8}', encoding="utf-8")
    assert dsconf("lint", "b.json", "--statistics").stdout == "No problems found in 1 file.\n"


def test_many_skipped_files_are_counted() -> None:
    names = [f"{number}.json" for number in range(5)]
    for name in names:
        Path(name).write_text("{}", encoding="utf-8")
    result = dsconf("lint", *names)
    assert result.exit_code == 0
    assert result.stdout.startswith("5 files skipped, no DeepSpeed config")
    assert dsconf("lint", *names[:2]).stdout.startswith("0.json: skipped, no DeepSpeed config")


# --- explain and rules -------------------------------------------------------------------------------------------


def test_rules() -> None:
    lines = dsconf("rules").stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(page.stem.partition("-")[0] for page in PAGES)
    listed = json.loads(dsconf("rules", "--output-format", "json").stdout)["rules"]
    assert [f"{rule['code']}-{rule['name']}" for rule in listed] == sorted(page.stem for page in PAGES)
    assert all(rule["severity"] for rule in listed)


@pytest.mark.parametrize("name", ["DS203", "ds203", "batch-missing", "Batch-Missing"])
def test_explain(name: str) -> None:
    text = dsconf("explain", name).stdout
    assert text.startswith("DS203 error or info\n# batch-missing\n")
    assert "## Why it matters" in text
    assert "```toml" not in text


def test_explain_several_and_all() -> None:
    both = dsconf("explain", "DS203", "DS301").stdout
    assert "# batch-missing" in both
    assert "# precision-both" in both
    pages = json.loads(dsconf("explain", "--all", "--output-format", "json").stdout)["rules"]
    assert len(pages) == len(PAGES)
    assert all(page["page"].startswith(f"# {page['name']}") for page in pages)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name a rule"),
        (["DS999x"], "no rule 'DS999x'"),
        (["batch-mising"], "did you mean batch-missing?"),
        (["DS203", "nonsense"], "no rule 'nonsense' (dsconf rules lists them)"),
    ],
)
def test_explain_what_is_no_rule(args: list[str], words: str) -> None:
    result = dsconf("explain", *args)
    assert result.exit_code == 2
    assert words in result.stderr
