"""The wheel, installed and used far from the checkout: the same findings, nothing missing, nothing heavy imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from examples import EXAMPLES, PAGES, ROOT, RULES, Example

from dsconf.lint.compile import compile_rules

pytestmark = pytest.mark.package

# Lints many files in one process and prints, as JSON, what each prints.
DRIVER = """
import json, sys
from click.testing import CliRunner
import dsconf
from dsconf.cli import main
from dsconf.lint import index
answers = []
for name, args in json.load(sys.stdin):
    result = CliRunner().invoke(main, ["lint", name, "--output-format", "json", *args])
    assert isinstance(result.exception, (SystemExit, type(None))), result.exception
    answers.append([result.exit_code, json.loads(result.stdout)])
print(json.dumps([dsconf.__file__, "dsconf.lint.compile" in sys.modules, index.load_rules(), answers]))
"""
# Prints which modules a command line imported, but for those of the interpreter and of click.
MODULES = """
import json, sys
import click
before = set(sys.modules)
import dsconf.cli
sys.stdout.write("\\0")
try:
    dsconf.cli.main(sys.argv[1:])
except SystemExit as end:
    status = end.code
print("\\0" + json.dumps([status, sorted(sys.modules), sorted(set(sys.modules) - before)]))
"""
NEVER = ("pydantic", "pydantic_core", "jsonschema", "ruamel", "libcst", "rich", "torch", "hjson", "numpy")
NOT_BESIDE_CLICK = (
    "ast",
    "tomllib",
    "pathlib",
    "importlib.metadata",
    "tempfile",
    "difflib",
    "dataclasses",
    "inspect",
)


class Built(NamedTuple):
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path
    installed: Path


def run(*command: str | Path, cwd: Path, **options: Any) -> str:
    environment = {**os.environ, **options.pop("env", {})}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, a wheel of it, and a wheel of the tree; the last is installed without its dependencies."""
    if not (ROOT / ".git").exists():
        pytest.skip("the files that belong to the package are those that git tracks")
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--outdir", folder / "both", source, cwd=folder)
    run(*build, "--wheel", "--outdir", folder / "direct", source, cwd=folder)
    (sdist,) = (folder / "both").glob("*.tar.gz")
    (wheel_of_sdist,) = (folder / "both").glob("*.whl")
    (wheel,) = (folder / "direct").glob("*.whl")
    installed = folder / "installed"
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
    )
    run(*pip, "--target", installed, wheel, cwd=folder)
    return Built(sdist, wheel, wheel_of_sdist, installed)


@pytest.fixture(scope="session")
def index(built: Built) -> list[dict[str, Any]]:
    text = (built.installed / "dsconf" / "_rules.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def python(built: Built, *args: str | Path, cwd: Path, **options: Any) -> str:
    return run(sys.executable, *args, cwd=cwd, env={"PYTHONPATH": str(built.installed)}, **options)


def test_both_wheels_are_the_same(built: Built) -> None:
    contents = []
    for path in (built.wheel, built.wheel_of_sdist):
        with zipfile.ZipFile(path) as wheel:
            contents.append({name: wheel.read(name) for name in wheel.namelist()})
    assert contents[0] == contents[1]


def test_the_wheel_holds_what_it_should(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        about = wheel.read(metadata).decode()
        for page in PAGES:
            assert wheel.read(f"dsconf/rules/{page.relative_to(RULES).as_posix()}") == page.read_bytes()
        for schema in (ROOT / "schemas").glob("*.json"):
            assert wheel.read(f"dsconf/schemas/{schema.name}") == schema.read_bytes()
    sources = run("git", "ls-files", "dsconf", cwd=ROOT).split()
    tracked = {name for name in sources if (ROOT / name).is_file()}
    pages = {f"dsconf/rules/{page.relative_to(RULES).as_posix()}" for page in PAGES}
    schemas = {f"dsconf/schemas/{path.name}" for path in (ROOT / "schemas").iterdir()}
    assert names == tracked | pages | schemas | {"dsconf/_rules.json"}
    assert "Requires-Dist: click>=8.1.7" in about
    assert "License-Expression: Apache-2.0" in about


def test_the_index_is_that_of_the_rules(index: list[dict[str, Any]]) -> None:
    assert index == compile_rules(RULES)


def lint_all(folder: Path, python_path: Path, examples: list[Example]) -> list[Any]:
    tasks = []
    for example in examples:
        name = f"{example.id}/{example.file}"
        (folder / example.id).mkdir(exist_ok=True)
        tasks.append([name, example.write(folder / name)])
    done = run(
        sys.executable,
        "-c",
        DRIVER,
        cwd=folder,
        env={"PYTHONPATH": str(python_path)},
        input=json.dumps(tasks),
    )
    answers: list[Any] = json.loads(done)
    return answers


def test_every_example_gives_the_same_findings(built: Built, tmp_path: Path) -> None:
    here, compiles_here, rules_here, findings_here = lint_all(tmp_path, ROOT, EXAMPLES)
    there, compiles_there, rules_there, findings_there = lint_all(tmp_path, built.installed, EXAMPLES)
    assert Path(here).parents[1] == ROOT
    assert Path(there).parents[1] == built.installed
    assert compiles_here
    assert not compiles_there, "an installed dsconf reads its index"
    assert rules_there == rules_here
    assert len(findings_there) == len(EXAMPLES)
    for example, one, other in zip(EXAMPLES, findings_there, findings_here, strict=True):
        assert one == other, example.id
        assert example.section == "Good" or one[1]["findings"], example.id


def imported(built: Built, folder: Path, *args: str) -> tuple[int, set[str], set[str]]:
    """The exit status of a command line, all modules that it imports, and those that click alone does not."""
    output = python(built, "-c", MODULES, *args, cwd=folder)
    status, modules, beside_click = json.loads(output.rpartition("\0")[2])
    return status, set(modules), set(beside_click)


@pytest.mark.parametrize("output", ["full", "concise", "json"])
def test_lint_imports_nothing_heavy(built: Built, tmp_path: Path, output: str) -> None:
    shutil.copy(ROOT / "fixtures" / "ok" / "zero3_bf16.json", tmp_path / "ds.json")
    (tmp_path / "bad.json").write_text(
        '{"train_micro_batch_size_per_gpu": "4", "gradient_clipping": "x", "bf16": 1}'
    )
    for name, status in (("ds.json", 0), ("bad.json", 1)):
        found, modules, beside_click = imported(built, tmp_path, "lint", name, "--output-format", output)
        assert found == status
        assert "dsconf.lint.engine" in beside_click
        assert not modules & {*NEVER, "importlib.metadata"}
        assert not beside_click & set(NOT_BESIDE_CLICK)
        outside = {name.partition(".")[0] for name in beside_click} - sys.stdlib_module_names
        assert outside == {"dsconf"}


def test_lint_of_yaml_imports_its_reader_and_nothing_heavier(built: Built, tmp_path: Path) -> None:
    good = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
    (tmp_path / "good.yaml").write_text(good)
    (tmp_path / "bad.yaml").write_text(good.replace("8", "none") + "fsdp_confg: 1\n")
    for name, status in (("good.yaml", 0), ("bad.yaml", 1)):
        found, modules, _ = imported(built, tmp_path, "lint", name)
        assert found == status
        assert "ruamel.yaml" in modules, "or this test looks at nothing"
        assert not modules & ({*NEVER, "importlib.metadata"} - {"ruamel"})


def test_settings_and_rules_of_ones_own_from_the_wheel(built: Built, tmp_path: Path) -> None:
    """The compiler and the settings are imported only where there is something for them."""
    page = """```toml
code = "ACME100"
name = "no-stage-2"
severity = "warning"
formats = ["deepspeed"]
when = "zero_optimization.stage == 2"
at = "zero_optimization.stage"
message = "our cluster runs stage 3"
```
"""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "ACME100-no-stage-2.md").write_text(page)
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    )
    needed = {"dsconf.lint.compile", "dsconf.settings.load", "tomllib"}
    found, modules, _ = imported(built, tmp_path, "lint", "ds.json")
    assert (found, modules & needed) == (0, set())
    (tmp_path / "dsconf.toml").write_text('rules = ["rules"]\n')
    found, modules, _ = imported(built, tmp_path, "lint", "ds.json")
    assert (found, modules & needed) == (1, needed)
    assert imported(built, tmp_path, "lint", "ds.json", "--write-baseline", "known.json")[0] == 0
    assert imported(built, tmp_path, "lint", "ds.json", "--baseline", "known.json")[0] == 0


def test_only_an_older_target_reads_the_history(built: Built, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "log_level": "info"}')
    for args, status, needed in (((), 0, False), (("--deepspeed-version", "0.18"), 1, True)):
        found, modules, _ = imported(built, tmp_path, "lint", "ds.json", *args)
        assert found == status
        assert ("dsconf.formats.deepspeed.history" in modules) == needed
        assert not modules & {*NEVER, "importlib.metadata"}


def test_help_imports_no_command(built: Built, tmp_path: Path) -> None:
    status, modules, beside_click = imported(built, tmp_path, "--help")
    assert status == 0
    assert {name for name in beside_click if name.startswith("dsconf")} == {"dsconf", "dsconf.cli"}
    assert not modules & set(NEVER)


def test_translate_from_the_wheel(built: Built, tmp_path: Path) -> None:
    shutil.copy(ROOT / "fixtures" / "demo" / "ds_config.json", tmp_path / "ds.json")
    command = ("-m", "dsconf", "translate", "ds.json", "--to", "fsdp2")
    code = python(built, *command, "--report", "report.json", cwd=tmp_path)
    compile(code, "shard.py", "exec")
    assert "def parallelize(" in code
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["version"], report["source"], report["target"]) == (1, "deepspeed", "fsdp2")
    here = run(sys.executable, *command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert code == here


def test_the_installed_program(built: Built, tmp_path: Path) -> None:
    shutil.copy(ROOT / "fixtures" / "demo" / "ds_config.json", tmp_path / "ds.json")
    program = built.installed / "bin" / "dsconf"
    environment = {"PYTHONPATH": str(built.installed)}
    assert run(program, "lint", "ds.json", "--world-size", "8", cwd=tmp_path, env=environment) == (
        "No problems found in 1 file.\n"
    )
