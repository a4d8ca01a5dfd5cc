"""`dsconf lint` from the outside: exit status, the promised JSON, what is skipped, and what no file may do to it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from configs import config_of
from examples import lint_json
from hypothesis import given, settings
from hypothesis import strategies as st

from dsconf import __version__
from dsconf.cli import main
from dsconf.config.context import CONSUMERS
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.engine import lint_config
from dsconf.lint.index import load_rules
from dsconf.lint.report import FORMATS, reporter

CLEAN = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'
WARNING = '{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 0.5}'
ERROR = '{"train_micro_batch_size_per_gpu": "4"}'
INFO = '{"gradient_accumulation_steps": 4}'
BROKEN = '{"train_micro_batch_size_per_gpu": 4'
COMMENT = '{"train_micro_batch_size_per_gpu": 4} // per GPU'
DUPLICATE = '{"train_micro_batch_size_per_gpu": 4, "train_micro_batch_size_per_gpu": 8}'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "ds.json") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def dsconf(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def rules_of(report: dict[str, Any]) -> list[str]:
    return [finding["rule"] for finding in report["findings"]]


# --- exit status -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "rules"),
    [
        (CLEAN, 0, []),
        (INFO, 0, ["batch-missing"]),
        (WARNING, 1, ["unknown-top-level-key"]),
        (ERROR, 1, ["type-number-as-string"]),
        (BROKEN, 2, ["json-syntax"]),
        ("", 2, ["unreadable-file"]),
        (COMMENT, 0, []),
    ],
)
@pytest.mark.parametrize("output", FORMATS)
def test_status(text: str, status: int, rules: list[str], output: str) -> None:
    path = write(text)
    result = dsconf("lint", path, "--output-format", output)
    assert result.exit_code == status
    assert result.stderr == ""
    code, report = lint_json(path)
    assert code == status
    assert rules_of(report) == rules
    for finding in report["findings"]:
        assert finding["code"] in result.stdout


@pytest.mark.parametrize("first", [CLEAN, WARNING, BROKEN])
@pytest.mark.parametrize("second", [CLEAN, WARNING, BROKEN])
def test_the_worst_file_decides(first: str, second: str) -> None:
    paths = [write(first, "a.json"), write(second, "b.json")]
    status = {CLEAN: 0, WARNING: 1, BROKEN: 2}
    code, report = lint_json(paths[0], paths[1])
    assert code == max(status[first], status[second])
    assert report["files"] == 2
    assert [finding["file"] for finding in report["findings"]] == [
        path for path, text in zip(paths, (first, second), strict=True) if text != CLEAN
    ]


def test_a_broken_file_does_not_hide_the_others() -> None:
    code, report = lint_json(write(BROKEN, "a.json"), write(ERROR, "b.json"))
    assert code == 2
    assert rules_of(report) == ["json-syntax", "type-number-as-string"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "no DeepSpeed config in ."),
        (["x.json", "--nonsense"], "No such option"),
        (["x.json", "--output-format", "xml"], "'xml' is not one of"),
        (["x.json", "--consumer", "keras"], "'keras' is not one of"),
        (["x.json", "--world-size", "0"], "0 is not in the range x>=1"),
        (["x.json", "--world-size", "many"], "'many' is not a valid integer"),
    ],
)
def test_bad_options(args: list[str], words: str) -> None:
    result = dsconf("lint", *args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_an_unknown_command() -> None:
    assert dsconf("lnit").exit_code == 2
    assert "No such command" in dsconf("lnit").stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option: str) -> None:
    overview = dsconf(option)
    assert overview.exit_code == 0
    assert all(name in overview.stdout for name in ("lint", "translate", "--version"))
    lint = dsconf("lint", option)
    assert lint.exit_code == 0
    assert all(
        name in lint.stdout for name in ("--output-format", "--consumer", "--world-size", "Exit status")
    )


def test_every_command_is_listed_and_exists() -> None:
    assert isinstance(main, click.Group)
    context = click.Context(main)
    assert main.list_commands(context) == ["explain", "lint", "resolve", "rules", "schema", "translate"]
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_version() -> None:
    result = dsconf("--version")
    assert (result.exit_code, result.stdout) == (0, f"dsconf {__version__}\n")


# --- which files are judged --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["{}", '{"name": "x", "version": 1}', '{"optimizer": {}, "name": 1, "x": 2}']
)
def test_other_json_is_skipped(text: str) -> None:
    path = write(text, "package.json")
    code, report = lint_json(path)
    assert code == 0
    assert report["files"] == 0
    assert report["findings"] == []
    (skipped,) = report["skipped"]
    assert skipped["file"] == path
    assert "none of DeepSpeed's keys" in skipped["reason"]
    assert dsconf("lint", path).stdout == f"{path}: skipped, {skipped['reason']}\n"


def test_the_config_of_another_trainer_is_skipped() -> None:
    """Some take DeepSpeed's keys among many of their own."""
    foreign = {f"num-layers-{number}": 1 for number in range(12)}
    path = write(
        json.dumps({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}} | foreign)
    )
    code, report = lint_json(path)
    assert (code, report["files"]) == (0, 0)
    assert "another trainer's config" in report["skipped"][0]["reason"]
    code, report = lint_json(path, "--consumer", "deepspeed")
    assert (code, report["files"], len(report["findings"])) == (1, 1, 12)


def test_two_keys_that_deepspeed_has_make_a_config() -> None:
    text = '{"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"}, "name": "x"}'
    assert "unknown-top-level-key" in rules_of(lint_json(write(text))[1])


def test_every_repetition_names_the_first_place() -> None:
    findings = lint_json(write('{"bf16": 0,\n"bf16": 1,\n"bf16": {}, "optimizer": {}}'))[1]["findings"]
    duplicates = [finding for finding in findings if finding["rule"] == "duplicate-key"]
    assert [(finding["line"], finding["related"][0]["line"]) for finding in duplicates] == [(2, 1), (3, 1)]


def test_a_consumer_says_that_it_is_a_config() -> None:
    code, report = lint_json(write('{"name": "x"}'), "--consumer", "deepspeed")
    assert (code, report["files"], report["skipped"]) == (1, 1, [])
    assert set(rules_of(report)) == {"unknown-top-level-key", "batch-missing"}


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "a: 1\n"), ("a.toml", ""), ("a.yaml", "a: 1\n"), ("a.YML", "model: {fsdp: 1}\n")],
)
def test_other_formats_are_skipped(name: str, text: str) -> None:
    code, report = lint_json(write(text, name))
    assert (code, report["files"], report["findings"]) == (0, 0, [])
    assert report["skipped"][0]["file"] == name
    assert report["skipped"][0]["reason"]
    assert lint_json(name, "--consumer", "accelerate") == (code, report)


def test_a_missing_file_of_another_format_is_missing() -> None:
    code, report = lint_json("missing.yaml")
    assert (code, rules_of(report), report["skipped"]) == (2, ["unreadable-file"], [])


@pytest.mark.parametrize("name", ["ds", "ds.txt", "ds.jsonc", "ds.json.bak", "yaml", "py", "a.yaml.json"])
def test_any_other_name_may_be_json(name: str) -> None:
    assert lint_json(write(WARNING, name))[0] == 1


def test_unreadable_paths() -> None:
    os.mkfifo("pipe.json")
    code, report = lint_json("pipe.json", "missing.json")
    assert code == 2
    assert [(finding["file"], finding["rule"], finding["line"]) for finding in report["findings"]] == [
        ("pipe.json", "unreadable-file", 1),
        ("missing.json", "unreadable-file", 1),
    ]
    assert report["files"] == 2


# --- the context -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (COMMENT, "a comment"),
        (CLEAN[:-1] + ",}", "a trailing comma"),
        ("\ufeff" + CLEAN, "a byte order mark"),
    ],
)
def test_who_reads_decides_what_is_json(consumer: str, text: str, what: str) -> None:
    code, report = lint_json(write(text), "--consumer", consumer)
    if consumer == "deepspeed":
        assert (code, report["findings"]) == (0, [])
        return
    assert code == 2
    assert rules_of(report) == ["json-syntax"]
    message = report["findings"][0]["message"]
    assert message == f"{consumer.title()} reads this file with json.load, which refuses {what}"


MISREAD = """{
  "train_micro_batch_size_per_gpu": 4,
  "prescale_gradients": False,
  "bf16": {"enabled": true}
}"""
HJSON = MISREAD.replace("False,", "false").replace('"bf16"', "bf16")


@pytest.mark.parametrize(
    ("text", "consumer", "status", "found"),
    [
        (MISREAD, None, 1, [("json-syntax", "error", None, 3)]),
        (MISREAD, "deepspeed", 1, [("unquoted-text", "error", None, 3)]),
        (MISREAD, "trainer", 2, [("json-syntax", "error", "parse", 3)]),
        (MISREAD.replace("prescale_gradients", "x"), "deepspeed", 1, [("unquoted-text", "warning", None, 3)]),
        (HJSON, None, 1, [("json-strictness", "warning", None, 4)]),
        (HJSON, "deepspeed", 0, []),
        (HJSON, "lightning", 2, [("json-syntax", "error", "parse", 4)]),
        (MISREAD.replace("true}", "True}"), None, 2, [("json-syntax", "error", "parse", 3)]),
        (
            MISREAD.replace("False,", "false,").replace("true}", "True}"),
            "deepspeed",
            2,
            [("json-syntax", "error", "parse", 4)],
        ),
    ],
)
def test_what_is_no_json_is_judged_by_its_reader(
    text: str, consumer: str | None, status: int, found: list[tuple[str, str, str | None, int]]
) -> None:
    args = ["--consumer", consumer] if consumer else []
    code, report = lint_json(write(text), *args)
    said = [(each["rule"], each["severity"], each["fails"], each["line"]) for each in report["findings"]]
    assert (code, [each for each in said if each[0] != "unknown-top-level-key"]) == (status, found)


@pytest.mark.parametrize("text", ["False,", "False"])
def test_what_a_reader_sees_is_said(text: str) -> None:
    (finding,) = lint_json(write(MISREAD.replace("False,", text)))[1]["findings"]
    assert finding["key"] == "prescale_gradients"
    assert finding["message"] == (
        "False is Python: JSON writes false. Trainer and Accelerate refuse the file; DeepSpeed, which reads HJSON, "
        f'sees the text "{text}"'
    )


def test_hjson_is_linted_on() -> None:
    text = "{\n  train_micro_batch_size_per_gpu: 4\n  zero_optimization: {stage: 7}\n}"
    code, report = lint_json(write(text))
    assert code == 1
    assert rules_of(report) == ["json-strictness", "invalid-enum"]
    assert rules_of(lint_json("ds.json", "--consumer", "deepspeed")[1]) == ["invalid-enum"]


@pytest.mark.parametrize("consumer", [None, *CONSUMERS])
def test_numbers_beyond_all_bounds(consumer: str | None) -> None:
    """hjson raises OverflowError for 1e400, json.load takes NaN."""
    args = ["--consumer", consumer] if consumer else []
    for value, refusing in (("1e400", {"deepspeed"}), ("NaN", {"deepspeed", None})):
        _, report = lint_json(
            write(f'{{"train_micro_batch_size_per_gpu": 4, "steps_per_print": {value}}}'), *args
        )
        assert ("json-syntax" in rules_of(report)) is (consumer in refusing)


@pytest.mark.parametrize(
    ("consumer", "severity", "fails"),
    [(None, "warning", None), ("deepspeed", "error", "parse"), ("trainer", "warning", None)],
)
def test_who_reads_decides_how_bad_it_is(consumer: str | None, severity: str, fails: str | None) -> None:
    code, report = lint_json(write(DUPLICATE), *(["--consumer", consumer] if consumer else []))
    (finding,) = (each for each in report["findings"] if each["rule"] == "duplicate-key")
    assert (code, finding["severity"], finding["fails"]) == (1, severity, fails)


def test_what_could_not_be_checked_is_said() -> None:
    path = write('{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4}')
    last = "Not checked without more context: batch-indivisible, batch-derived-zero (--world-size)."
    assert dsconf("lint", path).stdout == f"No problems found in 1 file.\n{last}\n"
    assert dsconf("lint", path, "--world-size", "8").stdout == "No problems found in 1 file.\n"
    assert dsconf("lint", write(CLEAN)).stdout == "No problems found in 1 file.\n"


def test_auto_needs_no_context() -> None:
    path = write(
        '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'
    )
    assert dsconf("lint", path).stdout == "No problems found in 1 file.\n"


# --- the promised JSON -------------------------------------------------------------------------------------------

FINDING: dict[str, Any] = {
    "rule": str,
    "code": str,
    "severity": ("error", "warning", "info"),
    "fails": ("parse", "launch", "init", "step", "save", "load", None),
    "file": str,
    "line": int,
    "column": int,
    "end_line": int,
    "end_column": int,
    "key": str,
    "message": str,
    "help": (str, None),
    "related": list,
    "fix": (dict, None),
    "url": str,
}
RELATED: dict[str, Any] = {"file": str, "line": int, "column": int, "message": str}
FIX: dict[str, Any] = {"safe": bool, "description": str, "edits": list}
REPORT: dict[str, Any] = {"version": (1,), "findings": list, "files": int, "skipped": list}


def has_shape(value: dict[str, Any], shape: dict[str, Any]) -> None:
    assert list(value) == list(shape)
    for name, allowed in shape.items():
        options = allowed if isinstance(allowed, tuple) else (allowed,)
        found = value[name]
        assert any(
            type(found) is option if isinstance(option, type) else found == option for option in options
        ), name


def test_shape() -> None:
    text = (
        '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,'
        '\n"gradient_cliping": 1, "fp16": {"enabled": true}, "bf16": {"enabled": true, "enabled": true}}'
    )
    code, report = lint_json(
        write(text), "--world-size", "8", write("{", "b.json"), "missing.json", write("{}", "c.json")
    )
    assert code == 2
    has_shape(report, REPORT)
    assert len(report["findings"]) == 6
    assert report["files"] == 3
    assert {type(finding["help"]) for finding in report["findings"]} == {str, type(None)}
    for finding in report["findings"]:
        has_shape(finding, FINDING)
        for related in finding["related"]:
            has_shape(related, RELATED)
        if finding["fix"] is not None:
            has_shape(finding["fix"], FIX)
            for edit in finding["fix"]["edits"]:
                has_shape(edit, {"start": int, "end": int, "text": str})
        assert (finding["line"], finding["column"]) <= (finding["end_line"], finding["end_column"])
    assert [finding["rule"] for finding in report["findings"] if finding["fix"]] == [
        "batch-product-mismatch", "unknown-top-level-key", "duplicate-key"
    ]  # fmt: skip
    assert sum(len(finding["related"]) for finding in report["findings"]) == 4
    assert report["skipped"] == [{"file": "c.json", "reason": report["skipped"][0]["reason"]}]


def test_places_count_code_points() -> None:
    _, report = lint_json(write('{"_é😀": 1, "train_micro_batch_size_per_gpu": "4"}'))
    (finding,) = report["findings"]
    assert (finding["line"], finding["column"], finding["end_line"], finding["end_column"]) == (1, 12, 1, 49)


def test_findings_stand_in_the_order_of_the_text() -> None:
    _, report = lint_json(
        write('{"zz": 1, "train_micro_batch_size_per_gpu": "4",\n "aa": 1, "train_batch_size": "8"}')
    )
    places = [(finding["line"], finding["column"]) for finding in report["findings"]]
    assert places == sorted(places)
    assert len(places) == 4


@pytest.mark.parametrize(
    ("offload", "key", "related"),
    [
        ({"offload_param": "nvme", "offload_optimizer": "nvme"}, "offload_param", 1),
        ({"offload_param": "nvme", "offload_optimizer": "cpu"}, "offload_param", 0),
        ({"offload_param": "cpu", "offload_optimizer": "nvme"}, "offload_optimizer", 0),
    ],
)
def test_the_key_at_fault_is_marked(offload: dict[str, str], key: str, related: int) -> None:
    zero = {"stage": 3, **{name: {"device": device} for name, device in offload.items()}}
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero})
    (finding,) = lint_json(write(text))[1]["findings"]
    assert finding["key"] == f"zero_optimization.{key}.device"
    assert len(finding["related"]) == related


def test_what_is_not_written_is_marked_at_the_start() -> None:
    (finding,) = lint_json(write(' {"bf16": {"enabled": true}}'), "--consumer", "deepspeed")[1]["findings"]
    assert (finding["rule"], finding["line"], finding["column"], finding["end_column"]) == (
        "batch-missing",
        1,
        2,
        3,
    )


# --- what no file may do -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("name", ["a\\u001b[31mb", "a\\nb", "a\\ud800b", "a\\u202eb", "é"])
def test_keys_can_not_write_to_the_terminal(name: str, output: str) -> None:
    path = write(f'{{"train_micro_batch_size_per_gpu": 4, "{name}": 1}}')
    result = dsconf("lint", path, "--output-format", output)
    assert result.exit_code == 1
    assert all(character.isprintable() or character == "\n" for character in result.stdout)
    if output == "json":
        assert json.loads(result.stdout)["findings"][0]["key"] == json.loads(f'"{name}"')
    elif output == "concise":
        assert len(result.stdout.splitlines()) == 2
        assert f'unknown key "{name}"' in result.stdout


@pytest.mark.parametrize("output", FORMATS)
def test_the_text_of_a_file_can_not_write_to_the_terminal(output: str) -> None:
    path = write('{"train_micro_batch_size_per_gpu": 4, "a": "\x1b[31m\x00\u202e"}'.replace("\x00", "\x7f"))
    result = dsconf("lint", path, "--output-format", output)
    assert result.exit_code == 2
    assert all(character.isprintable() or character == "\n" for character in result.stdout)


def test_errors_of_the_scanner_can_not_write_to_the_terminal() -> None:
    (finding,) = lint_json(write('{"a\\u001b\\n" 1}'))[1]["findings"]
    assert finding["message"] == 'expected ":" after the key "a\\u001b\\n", found 1'
    (finding,) = lint_json(write(f'{{"{"x" * 1000}" 1}}'))[1]["findings"]
    assert len(finding["message"]) < 100


@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("name", [b"a\xff.json", b"a\nb.json"])
def test_odd_names_of_files(name: bytes, output: str) -> None:
    Path(os.fsdecode(name)).write_text(WARNING)
    result = dsconf("lint", os.fsdecode(name), "--output-format", output)
    assert result.exit_code == 1
    if output == "json":
        assert json.loads(result.stdout)["findings"][0]["file"] == os.fsdecode(name)
    else:
        shown = ("a\\udcff.json", "a\\nb.json", "a%FF.json", "a%0Ab.json")
        assert any(text in result.stdout for text in shown)


def test_a_terminal_that_is_not_utf8() -> None:
    path = write('{"train_micro_batch_size_per_gpu": 4, "中": 1}')
    command = [sys.executable, "-m", "dsconf", "lint", path]
    env = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "")
    assert 'unknown key "\\u4e2d"' in result.stdout


def test_long_values_are_cut() -> None:
    path = write(
        json.dumps(
            {"train_micro_batch_size_per_gpu": 4, "x" * 100_000: 1, "optimizer": {"type": "y" * 100_000}}
        )
    )
    for output in ("full", "concise"):
        assert max(map(len, dsconf("lint", path, "--output-format", output).stdout.splitlines())) < 400


def paths(node: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, spec in node.get("keys", {}).items():
        yield (*above, name)
        yield from paths(spec, (*above, name))


ODD_TEXTS = st.sampled_from(["auto", "8", "1e4", "x", "", "cpu", "nvme", "Adam", "sgdd", "\ud800\x1b"])
ODD_NUMBERS = st.sampled_from([True, False, None, 0, -1, 1, 3, 8, 0.5, 1e300, 10**30, 10**400])
ODD_CONTAINERS = st.sampled_from([[], [1], ["a", 2], {}, {"a": {}}, {"enabled": True}])
ODD_VALUES = ODD_TEXTS | ODD_NUMBERS | ODD_CONTAINERS
KEYS = st.sampled_from(
    [*paths(load_keys()), ("nonsense",), ("bf16", "nonsense"), ("optimizer", "params", "\x00")]
)
CONFIGS = st.dictionaries(KEYS, ODD_VALUES, max_size=8)


def nested(flat: dict[tuple[str, ...], object]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value in flat.items():
        node = root
        for name in path[:-1]:
            below = node.get(name)
            node[name] = below if isinstance(below, dict) else {}
            node = node[name]
        node[path[-1]] = copy.deepcopy(value)
    return root


@settings(max_examples=200)
@given(CONFIGS, st.sampled_from([None, *CONSUMERS]), st.sampled_from([None, 1, 3, 8, 10**400]))
def test_any_config(flat: dict[tuple[str, ...], object], consumer: Any, world_size: int | None) -> None:
    """No file makes lint raise, and every message says what it means to say."""
    result = lint_config(config_of(nested(flat), consumer, world_size), load_rules())
    for finding in result.findings:
        assert finding.message
        assert "\n" not in finding.message
        assert finding.severity in ("error", "warning", "info")
        texts = [finding.message, finding.help or "", *(related.message for related in finding.related)]
        assert not any("?" in text.removesuffix("?") for text in texts), texts
    for output in FORMATS:
        assert reporter(output)([result])
