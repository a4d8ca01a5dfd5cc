"""Rules of the user's own: they run as dsconf's do, and what is wrong with them is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import lint_json
from running import dsconf, lint, write

PAGE = """\
# no-stage-2

```toml
code = "ACME100"
name = "no-stage-2"
severity = [{ when = "context.world_size > 8", is = "error" }, { is = "warning" }]
formats = ["deepspeed"]
when = "zero_optimization.stage == 2 and not fact.has_optimizer"
at = "zero_optimization.stage"
message = "our cluster runs stage 3, not {zero_optimization.stage}"
help = "set zero_optimization.stage to 3"
```

Why.
"""
NAME = "rules/ACME100-no-stage-2.md"
CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write({"a.json": CONFIG})


@pytest.mark.parametrize("name", [NAME, "rules/zero/ACME100-no-stage-2.md"])
def test_it_runs(name: str) -> None:
    write({name: PAGE, "rules/README.md": "No rule.", "rules/zero/notes.txt": ""})
    assert lint("a.json") == ["0"]
    assert lint("a.json", "--rules", "rules") == ["a.json:1 ACME100", "1"]
    (finding,) = lint_json("a.json", "--rules", "rules", "--world-size", "16")[1]["findings"]
    assert finding["severity"] == "error"
    assert finding["message"] == "our cluster runs stage 3, not 2"
    assert finding["help"] == "set zero_optimization.stage to 3"
    assert finding["url"] == name
    assert finding["key"] == "zero_optimization.stage"


def test_it_is_selected_and_suppressed_as_the_others() -> None:
    write({NAME: PAGE, "dsconf.toml": 'rules = ["rules"]'})
    assert lint("a.json") == lint("a.json", "--rules", "rules") == ["a.json:1 ACME100", "1"]
    assert lint("a.json", "--select", "AC") == ["a.json:1 ACME100", "1"]
    assert lint("a.json", "--ignore", "no-stage-2") == ["0"]
    assert lint("a.json", "--isolated") == ["0"]
    write({"a.json": CONFIG[:-1] + " // dsconf: ignore[ACME]\n}"})
    assert lint("a.json") == ["0"]


def test_two_folders() -> None:
    other = PAGE.replace("ACME100", "ACME101").replace("no-stage-2", "no-stage-two")
    write({NAME: PAGE, "more/ACME101-no-stage-two.md": other})
    args = ["--rules", "rules", "--rules", "more"]
    assert lint("a.json", *args) == ["a.json:1 ACME100", "a.json:1 ACME101", "1"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("ACME100", "DS900", "DS900: codes with DS, AC, TR, FS, PY are dsconf's own"),
        ("ACME100", "AC100", "AC100: codes with DS, AC, TR, FS, PY are dsconf's own"),
        ("ACME100", "A100", "the code should be two capital letters or more and three digits, not 'A100'"),
        ("ACME100", "acme100", "the code should be two capital letters or more and three digits"),
        ("no-stage-2", "No_Stage", "the name should be small letters, digits and dashes, not 'No_Stage'"),
        ("no-stage-2", "precision-both", "the name precision-both is that of rules/precision/"),
        ('code = "ACME100"', "code = 100", "the code should be two capital letters"),
        ('message = "our', 'massage = "our', "unknown field massage"),
        ('formats = ["deepspeed"]\n', "", "missing field formats"),
        (
            '["deepspeed"]',
            '["deepsped"]',
            "formats should be a list of accelerate, axolotl, deepspeed, llamafactory, trainer, not ['deepsped']",
        ),
        (
            '["deepspeed"]',
            '"deepspeed"',
            "formats should be a list of accelerate, axolotl, deepspeed, llamafactory, trainer, not 'deepspeed'",
        ),
        ('when = "zero', 'schema = "unknown-key" #', "a rule of your own has a condition (when)"),
        ("\nwhen = ", "\n# ", "a rule has one of: when"),
        (".stage == 2", ".stag == 2", "no key zero_optimization.stag: did you mean zero_optimization.stage?"),
        ("zero_optimization.stage == 2", "zero.stage == 2", "no key zero.stage"),
        ("fact.has_optimizer", "fact.has_optimiser", "no fact.has_optimiser: did you mean has_optimizer?"),
        ("context.world_size", "context.worldsize", "no context.worldsize: did you mean world_size?"),
        ("context.world_size", "context.world_size.x", "no context.world_size.x"),
        ("context.world_size", "context.gpu.memry", "no context.gpu.memry: did you mean memory?"),
        ("not fact.has_optimizer", "since('abc')", "since() takes a version in quotes"),
        ("not fact.has_optimizer", "since(fp16)", "since() takes a version in quotes"),
        ("not fact.has_optimizer", "key.name", "no key.name in a condition"),
        ('at = "zero_optimization.stage"', 'at = "zero_optimization.x"', "no key zero_optimization.x"),
        ("not {zero_optimization.stage}", "not {zero_optimization.x}", "no key zero_optimization.x"),
        ("== 2", "=== 2", "not an expression"),
        ("not fact", "print(1) and not fact", "'print(1)' is not allowed in"),
        ('is = "warning"', 'is = "fatal"', "'fatal' is none of error, warning, info"),
        (', { is = "warning" }', "", "the last message and the last severity have no condition"),
        ("{ is =", "{ si =", "no 'is' where it is needed"),
        ("```toml", "```yaml", "no ```toml block"),
        ('name = "no', "name = no", "Invalid value"),
    ],
)
def test_faults_are_told_with_their_file(old: str, new: str, reason: str) -> None:
    assert old in PAGE
    code = new if old == "ACME100" else "ACME100"
    name = new if old == "no-stage-2" else "no-stage-2"
    page = f"rules/{code}-{name}.md"
    write({page: PAGE.replace(old, new)})
    result = dsconf("lint", "a.json", "--rules", "rules")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Invalid value for --rules: {page}: {reason}" in result.stderr


@pytest.mark.parametrize("name", ["ACME100-other.md", "ACME101-no-stage-2.md"])
def test_the_name_of_the_file(name: str) -> None:
    write({f"rules/{name}": PAGE})
    stderr = dsconf("lint", "a.json", "--rules", "rules").stderr
    assert f"rules/{name}: the file should be called ACME100-no-stage-2.md" in stderr


def test_two_with_one_code_or_name() -> None:
    write({NAME: PAGE, "rules/ACME101-no-stage-2.md": PAGE.replace("ACME100", "ACME101")})
    assert f"the name no-stage-2 is that of {NAME}" in dsconf("lint", "a.json", "--rules", "rules").stderr


@pytest.mark.parametrize("folder", ["none", "a.json"])
def test_a_folder_that_is_none(folder: str) -> None:
    assert f"{folder}: no such folder of rules" in dsconf("lint", "a.json", "--rules", folder).stderr


def test_a_folder_without_rules() -> None:
    write({"rules/README.md": PAGE})
    result = dsconf("lint", "a.json", "--rules", "rules")
    assert result.exit_code == 2
    assert "rules: it has no rule: a file called CODE-name.md" in result.stderr
