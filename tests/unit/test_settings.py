"""Settings files: which one counts, what they may say, and how faults in them are told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from examples import ROOT, lint_json
from running import dsconf, lint, write

from dsconf.cli import main
from dsconf.cli.lint import command
from dsconf.cli.options import CONTEXT_NAMES
from dsconf.config.gpus import gpu_named
from dsconf.settings.find import Finder
from dsconf.settings.load import line_of
from dsconf.settings.table import SETTINGS
from tools.settings_table import PAGE, with_table

TYPO = '{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 0.5}'
BATCH = '{"train_batch_size": 6, "train_micro_batch_size_per_gpu": 4}'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- which file counts -------------------------------------------------------------------------------------------


def test_the_nearest_file_counts_and_files_are_not_merged() -> None:
    write(
        {
            "pyproject.toml": '[tool.dsconf]\nignore = ["DS104"]\n',
            "a.json": TYPO,
            "sub/b.json": TYPO,
            "sub/deep/dsconf.toml": "world-size = 8\n",
            "sub/deep/c.json": TYPO,
        }
    )
    assert lint("a.json", "sub/b.json", "sub/deep/c.json") == ["sub/deep/c.json:1 DS104", "1"]
    assert lint("a.json", "--isolated") == ["a.json:1 DS104", "1"]
    assert lint("a.json", "--config", "sub/deep/dsconf.toml") == ["a.json:1 DS104", "1"]
    assert lint("sub/deep/c.json", "--config", "pyproject.toml") == ["0"]


def test_a_pyproject_without_settings_is_passed_over() -> None:
    write(
        {
            "dsconf.toml": 'ignore = ["DS104"]',
            "sub/pyproject.toml": '[project]\nname = "dsconf-user"\n',
            "sub/a.json": TYPO,
        }
    )
    assert lint("sub/a.json") == ["0"]


def test_dsconf_toml_comes_before_pyproject() -> None:
    write({"dsconf.toml": "", "pyproject.toml": '[tool.dsconf]\nignore = ["DS104"]\n', "a.json": TYPO})
    assert lint("a.json") == ["a.json:1 DS104", "1"]


def test_context_options_have_defaults_that_the_command_line_overrides() -> None:
    write({"dsconf.toml": "world-size = 4\n", "a.json": BATCH})
    assert lint("a.json") == ["a.json:1 DS222", "1"]
    write({"a.json": BATCH.replace("6", "16")})
    assert lint("a.json") == ["0"]
    assert lint("a.json", "--world-size", "3") == ["a.json:1 DS202", "1"]
    resolved = dsconf("resolve", "a.json").stdout
    assert re.search(r"^gradient_accumulation_steps +1 ", resolved, re.MULTILINE)
    resolved = dsconf("resolve", "a.json", "--world-size", "2").stdout
    assert re.search(r"^gradient_accumulation_steps +2 ", resolved, re.MULTILINE)


def test_a_consumer_in_the_settings_does_not_make_every_json_a_config() -> None:
    write({"dsconf.toml": 'consumer = "deepspeed"', "package.json": '{"name": "x"}'})
    assert lint("package.json") == ["0"]
    assert lint("package.json", "--consumer", "deepspeed") != ["0"]


def test_files_are_named_from_the_settings() -> None:
    write(
        {
            "sub/dsconf.toml": 'model = "model.json"\ngpu-memory = 40\n',
            "sub/model.json": '{"hidden_size": 64}',
            "sub/a.json": BATCH,
        }
    )
    assert lint("sub/a.json", "--world-size", "8")[-1] == "1"
    write({"sub/model.json": "nothing"})
    assert "sub/dsconf.toml:1: model: " in dsconf("lint", "sub/a.json").stderr


def test_paths_of_a_named_file_begin_in_the_current_folder() -> None:
    write(
        {
            "ci/dsconf.toml": 'baseline = "known.json"\n[per-file-ignores]\n"a.json" = ["DS104"]\n',
            "known.json": '{"version": 1, "findings": []}',
            "a.json": TYPO,
            "sub/b.json": TYPO,
        }
    )
    assert lint("a.json", "sub/b.json", "--config", "ci/dsconf.toml") == ["sub/b.json:1 DS104", "1"]


@pytest.mark.parametrize(
    ("settings", "args", "gpu"),
    [
        ('gpu = "V100"', [], ("V100", None)),
        ('gpu = "V100"\ngpu-memory = 12', [], ("V100", 12.0)),
        ('gpu = "V100"', ["--gpu-memory", "12"], ("V100", 12.0)),
        ("gpu-memory = 12", ["--gpu", "V100"], ("V100", None)),
        ("gpu-memory = 12", ["--gpu-memory", "24"], ("GPU of 24 GiB", 24.0)),
    ],
)
def test_a_gpu_of_the_command_line_has_its_own_memory(
    settings: str, args: list[str], gpu: tuple[str, float | None]
) -> None:
    page = """
```toml
code = "ACME100"
name = "gpu"
severity = "warning"
formats = ["deepspeed"]
when = "context.gpu.memory > 0"
message = "{context.gpu.name}, {context.gpu.memory}"
```
"""
    write({"dsconf.toml": f'{settings}\nrules = ["rules"]', "rules/ACME100-gpu.md": page, "a.json": BATCH})
    (finding,) = lint_json("a.json", "--select", "ACME", *args)[1]["findings"]
    name, memory = gpu
    assert finding["message"] == f"{name}, {memory or gpu_named(name).memory}"


# --- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nselct = []", '2: unknown setting "selct": did you mean "select"?'),
        ("colour = 1", '1: unknown setting "colour": there are select, ignore, per-file-ignores,'),
        ('select = "DS1"', "1: select should be a list of strings, not 'DS1'"),
        ("select = [1]", "1: select should be a list of strings, not [1]"),
        ('select = [\n  "DS2",\n  "DS999",\n]', '3: select: no rule is called "DS999"'),
        ('ignore = ["ds104"]', '1: ignore: no rule is called "ds104": did you mean "DS104"?'),
        ('ignore = ["all"]', '1: ignore: no rule is called "all": did you mean "ALL"?'),
        (
            'ignore = ["offload-param-needs-zero2"]',
            '1: ignore: no rule is called "offload-param-needs-zero2": did you mean "offload-param-needs-zero3"?',
        ),
        ('exclude = ["a", "!"]', '1: exclude: no pattern: "!"'),
        ('[per-file-ignores]\n"a.json" = ["DS1"]\n"b.json" = ["DS999"]', "3: per-file-ignores: no rule"),
        ('[per-file-ignores]\n"a.json" = "DS1"', "1: per-file-ignores should be a table of lists of strings"),
        ("world-size = true", "1: world-size should be an integer, not true"),
        ("world-size = 1.5", "1: world-size should be an integer, not 1.5"),
        ("world-size = 0", "1: world-size: 0 is not in the range x>=1"),
        ('consumer = "keras"', "1: consumer: 'keras' is not one of 'deepspeed'"),
        ('deepspeed-version = "9"', "1: deepspeed-version: '9' is no version of DeepSpeed"),
        ('gpu = "A10000"', "1: gpu: 'A10000' is no GPU that dsconf knows"),
        ('baseline = "none.json"', "1: baseline: none.json: cannot be read"),
        ('rules = ["none"]', "1: rules: none: no such folder of rules"),
        ("# settings\nselect = [", "2: no TOML: "),
        ("a = 1\na = 2", "2: no TOML: Cannot overwrite a value"),
    ],
)
def test_faults_are_told_with_their_line(text: str, message: str) -> None:
    write({"dsconf.toml": text, "a.json": TYPO})
    result = dsconf("lint", "a.json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: dsconf.toml:{message}")
    assert lint("a.json", "--isolated") == ["a.json:1 DS104", "1"]


def test_faults_in_a_pyproject() -> None:
    write({"pyproject.toml": "[tool]\ndsconf = 1\n", "a.json": TYPO})
    assert dsconf("lint", "a.json").stderr == "Error: pyproject.toml:2: tool.dsconf should be a table\n"
    write({"pyproject.toml": "[tool.other]\nselct = 1\n[tool.dsconf]\nselct = 1\n"})
    assert dsconf("lint", "a.json").stderr.startswith('Error: pyproject.toml:4: unknown setting "selct"')


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    write({"a.json": TYPO})
    (tmp_path / "dsconf.toml").write_bytes(b"ignore = []\n# \xff")
    assert "dsconf.toml:1: byte 14 (line 2) is not UTF-8" in dsconf("lint", "a.json").stderr


@pytest.mark.parametrize("name", ["none.toml", "folder"])
def test_a_named_file_has_to_be_there(name: str) -> None:
    write({"a.json": TYPO, "folder/x": ""})
    result = dsconf("lint", "a.json", "--config", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {name}: cannot be read")


def test_a_named_file_has_to_have_settings() -> None:
    write({"a.json": TYPO, "pyproject.toml": ""})
    assert "it has no [tool.dsconf]" in dsconf("lint", "a.json", "--config", "pyproject.toml").stderr
    assert "--isolated ignores" in dsconf("lint", "a.json", "--config", "pyproject.toml", "--isolated").stderr


# --- parts -------------------------------------------------------------------------------------------------------


def test_excluded_files_are_not_found_in_folders_but_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    write({"sub/dsconf.toml": 'exclude = ["old", "x/*.json"]\n'})
    write({f"sub/{name}/a.json": TYPO for name in ("old/deep", "y/old", "x", "x/y", "new")})
    assert lint("sub") == ["sub/new/a.json:1 DS104", "sub/x/y/a.json:1 DS104", "1"]
    assert len(lint(".")) == 6, "the settings of the folder that is named"
    assert lint("sub/x/a.json") == ["sub/x/a.json:1 DS104", "1"]
    monkeypatch.chdir("sub/x")
    assert lint() == ["y/a.json:1 DS104", "1"]
    assert lint("--isolated") == ["a.json:1 DS104", "y/a.json:1 DS104", "1"]


def test_standard_input_has_settings_by_its_name() -> None:
    write({"dsconf.toml": 'ignore = ["DS104"]', "sub/dsconf.toml": ""})
    for args, codes in (([], []), (["--stdin-filename", "sub/a.json"], ["DS104"])):
        result = CliRunner().invoke(main, ["lint", "-", "--output-format", "json", *args], input=TYPO)
        assert [finding["code"] for finding in json.loads(result.stdout)["findings"]] == codes


@pytest.mark.parametrize(
    ("path", "element", "line"),
    [
        (("tool", "dsconf", "select"), None, 3),
        (("tool", "dsconf", "select"), "B", 5),
        (("tool", "dsconf", "per-file-ignores", "a.json"), None, 8),
        (("tool", "dsconf", "per-file-ignores", "b c"), "Z", 9),
        (("tool", "dsconf", "gpu"), None, 12),
        (("tool", "dsconf", "nothing"), None, 2),
        (("tool", "dsconf", "inline", "x.json"), None, 14),
        (("none",), None, 1),
    ],
)
def test_lines_are_found(path: tuple[str, ...], element: str | None, line: int) -> None:
    text = """\
[ tool . dsconf ]
select = [
  "A",
  "B",
]
[tool.dsconf.per-file-ignores] # comment
"a.json" = ["X"]
'b c' = ["Y", "Z"]
[tool]
# gpu
dsconf.gpu = "A"
[tool.dsconf]
inline = {"x.json" = ["A"]}
"""
    assert line_of("\n" + text, path, element) == line


def test_every_context_option_is_a_setting() -> None:
    names = {name.replace("_", "-") for name in CONTEXT_NAMES}
    assert {key for key, setting in SETTINGS.items() if not setting.help} == names
    options = {parameter.name for parameter in command.params if isinstance(parameter, click.Option)}
    assert set(CONTEXT_NAMES) <= options


def test_the_page_lists_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "python -m tools.settings_table"
    assert all(f"\n| `{key}` |" in page for key in SETTINGS)


def test_the_example_of_the_page_is_accepted() -> None:
    example = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[
        0
    ]
    own_batch = TYPO[:-1] + ', "zero_optimization": {"stage": 1}}'
    write({"pyproject.toml": example, "a.json": own_batch})
    (Path("tools/rules")).mkdir(parents=True)
    own = re.search(r"^````markdown\n(.*?)^````$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert own is not None
    write({"tools/rules/ACME100-no-stage-2.md": own[1]})
    assert lint("a.json") == ["0"]
    write({"a.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'})
    assert lint("a.json") == ["a.json:1 ACME100", "1"]


def test_the_search_looks_up_each_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write({"dsconf.toml": "", "sub/a.json": TYPO})
    finder = Finder()
    first = finder.find("sub/a.json")
    assert first is not None
    Path("dsconf.toml").unlink()
    assert finder.find("sub/b.json") is first


def test_nothing_is_imported_without_a_file(tmp_path: Path) -> None:
    write({"a.json": '{"train_micro_batch_size_per_gpu": 4}', "pyproject.toml": "[tool.ruff]\n"})
    code = (
        "import sys\nfrom dsconf.cli import main\n"
        "try: main(['lint', 'a.json'])\nexcept SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('dsconf.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert "'dsconf.settings.find'" in run.stdout
    for name in ("settings.load", "lint.suppress", "lint.baseline", "lint.selection"):
        assert f"'dsconf.{name}'" not in run.stdout
