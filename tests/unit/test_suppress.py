"""Suppressions: comments and per-file ignores, and those that suppress nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from examples import lint_json
from running import dsconf, lint, write
from syrupy.assertion import SnapshotAssertion

UNUSED = "unused-suppression"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(*lines: str) -> str:
    return "\n".join(
        ["{", '"train_micro_batch_size_per_gpu": 4,', *lines, '"bf16": {"enabled": true}', "}", ""]
    )


def unused() -> list[dict[str, Any]]:
    return [finding for finding in lint_json("a.json")[1]["findings"] if finding["rule"] == UNUSED]


# --- comments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ['"x_y": 1, // dsconf: ignore[DS104] ours'],
        ['"x_y": 1, # dsconf: ignore[unknown-top-level-key]'],
        ['"x_y": 1, /* dsconf: ignore[DS1] */'],
        ['/* dsconf: ignore[ALL] */ "x_y": 1,'],
        ["// dsconf: ignore[DS104]", '"x_y": 1,'],
        ["//dsconf:ignore [ DS104 , ] ours", "", "# another comment", "/* and", "another */", '"x_y": 1,'],
        ["// dsconf: ignore[DS104]", '"x_y": {', '  "a": 1', "},"],
        ["# dsconf: ignore[DS104]", '"x_y": 1, "z_y": 2,'],
    ],
)
def test_a_comment_counts_for_its_line_or_the_next(lines: list[str]) -> None:
    write({"a.json": config(*lines)})
    assert lint("a.json") == ["0"]
    write({"a.json": config(*(line.replace("dsconf:", "dsc:") for line in lines))})
    assert set(lint("a.json")) >= {"1"}


@pytest.mark.parametrize(
    "lines",
    [
        ['"zero_optimization": {}, // dsconf: ignore[DS104]', '"x_y": 1,'],
        ["// dsconf: ignore[DS104]", '"zero_optimization": {},', '"x_y": 1,'],
        ['"x_y": 1,', "// dsconf: ignore[DS104]"],
        ['"x_y": 1, // dsconf: ignore[DS301]'],
    ],
)
def test_at_another_line_it_suppresses_nothing(lines: list[str]) -> None:
    write({"a.json": config(*lines)})
    found = [line.split()[1] for line in lint("a.json")[:-1]]
    assert sorted(found) == ["DS104", "DS131"]


def test_ignore_file() -> None:
    text = config('"x_y": 1,', '"z_y": 2,')
    write({"a.json": "// dsconf: ignore-file[DS104] ours\n" + text})
    assert lint("a.json") == ["0"]
    write({"a.json": text.replace("{\n", "{ # dsconf: ignore-file[DS104]\n", 1)})
    assert lint("a.json") == ["0"]
    write({"a.json": config('"x_y": 1, // dsconf: ignore-file[DS104]')})
    assert [line.split()[1] for line in lint("a.json")[:-1]] == ["DS104", "DS131"]
    assert "ahead of the first key" in unused()[0]["message"]


def test_a_finding_of_the_whole_file() -> None:
    text = '{\n"zero_optimization": {}\n}'
    write({"a.json": "// dsconf: ignore[batch-missing]\n" + text})
    assert lint("a.json", "--consumer", "deepspeed") == ["0"]
    write({"a.json": text})
    assert lint("a.json", "--consumer", "deepspeed") == ["a.json:1 DS203", "1"]


def test_libraries_refuse_comments() -> None:
    """No suppression helps there, and the reason is told."""
    write({"a.json": config('"x_y": 1, // dsconf: ignore[ALL]')})
    assert lint("a.json", "--consumer", "deepspeed") == ["0"]
    for consumer in ("trainer", "accelerate", "lightning"):
        assert lint("a.json", "--consumer", consumer) == ["a.json:3 DS101", "2"]


def test_text_that_only_looks_like_a_comment() -> None:
    write({"a.json": config('"x_y": "// dsconf: ignore[DS104]",')})
    assert lint("a.json") == ["a.json:3 DS104", "1"]


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("// dsconf: ignore[DS301]", "DS301 finds nothing here to suppress"),
        ("// dsconf: ignore[DS301, DS5]", "DS301, DS5 find nothing here to suppress"),
        ("// dsconf: ignore[DS999]", 'no rule is called "DS999"'),
        ("// dsconf: ignore[DS301, ds104]", "DS301 finds nothing here to suppress; no rule is called"),
        ("// dsconf: ignore", "this suppresses nothing: write dsconf: ignore[CODE]"),
        ("// dsconf: ignore DS104", "this suppresses nothing: write dsconf: ignore[CODE]"),
        ("// dsconf: ignroe[DS104]", "this suppresses nothing: write dsconf: ignore[CODE]"),
        ("// dsconf: ignore[]", "this suppresses nothing: no rule stands between the brackets"),
    ],
)
def test_what_suppresses_nothing_is_reported(comment: str, message: str) -> None:
    write({"a.json": config(comment)})
    (finding,) = unused()
    assert finding["severity"] == "warning"
    assert (finding["line"], finding["column"], finding["end_column"]) == (3, 1, len(comment) + 1)
    assert finding["message"].startswith(message)


def test_what_was_not_decided_is_not_reported() -> None:
    """The rule did not run, or would have needed the number of GPUs."""
    text = '{"train_batch_size": 18, "train_micro_batch_size_per_gpu": 3, // dsconf: ignore[batch-indivisible]\n}'
    write({"a.json": text})
    assert lint("a.json") == ["0"]
    assert lint("a.json", "--world-size", "4") == ["0"]
    assert lint("a.json", "--world-size", "2") == ["a.json:1 DS131", "1"]
    assert lint("a.json", "--world-size", "2", "--ignore", "DS202") == ["0"]
    assert lint("a.json", "--world-size", "2", "--select", "DS131") == ["0"]
    assert lint("a.json", "--world-size", "2", "--ignore", "DS131") == ["0"]
    write({"a.json": text.replace("batch-indivisible", "DS2")})
    assert lint("a.json", "--world-size", "2", "--ignore", "DS203") == ["0"]


def test_a_suppression_may_name_this_rule() -> None:
    write({"a.json": config("// dsconf: ignore[DS131, DS1]")})
    assert lint("a.json") == ["0"]


def test_comments_of_python_count_too() -> None:
    text = """\
# dsconf: ignore-file[DS501] shown on purpose
import deepspeed

ds_config = {
    "train_micro_batch_size_per_gpu": 4,
    "x_y": "# dsconf: ignore[DS104]",
    "z_y": 1,  # dsconf: ignore[DS104] ours
    # dsconf: ignore[unknown-top-level-key, DS301]
    "v_y": 1,
    "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
}
other = {"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4, "\u00e9_y": 1}  # dsconf: ignore[DS104]
"""
    write({"train.py": text})
    assert lint("train.py") == ["train.py:6 DS104", "train.py:8 DS131", "1"]
    findings = lint_json("train.py")[1]["findings"]
    (edit,) = findings[1]["fix"]["edits"]
    assert text[edit["start"] : edit["end"]] == "unknown-top-level-key, DS301"
    assert edit["text"] == "unknown-top-level-key"


def test_comments_in_a_fence_count_for_it() -> None:
    fence = '```json\n{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {},\n"x_y": 1 // IGNORE\n}\n```\n'
    write({"a.md": fence.replace("IGNORE", "dsconf: ignore[DS104]") + fence + "// dsconf: ignore[DS104]\n"})
    assert lint("a.md") == ["a.md:8 DS104", "1"]


# --- the fix -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{\n  // dsconf: ignore[DS301] old\n  KEY\n}", "{\n  KEY\n}"),
        ("{\r\n\t# dsconf: ignore[DS301]\t\r\n  KEY\r\n}", "{\r\n  KEY\r\n}"),
        ("{\n  KEY \t// dsconf: ignore[DS301]\n}", "{\n  KEY\n}"),
        ("{\n  /* dsconf: ignore[DS301] */ KEY\n}", "{\n KEY\n}"),
        ("{KEY} // dsconf: ignore[DS301]", "{KEY}"),
        ("// dsconf: ignore-file[DS301]\n{KEY}\n", "{KEY}\n"),
        ('{KEY, // dsconf: ignore[DS301, DS104, DS5] x\n"x_y": 1}', None),
        (
            '{KEY, "x_y": 1 // dsconf: ignore[DS301, DS104,DS5] x\n}',
            '{KEY, "x_y": 1 // dsconf: ignore[DS104] x\n}',
        ),
    ],
)
def test_the_fix(before: str, after: str | None) -> None:
    key = '"train_micro_batch_size_per_gpu": 4'
    write({"a.json": before.replace("KEY", key)})
    text = Path("a.json").read_bytes().decode()
    (finding,) = unused()
    fix = finding["fix"]
    assert fix["safe"] is True
    for edit in fix["edits"]:
        text = text[: edit["start"]] + edit["text"] + text[edit["end"] :]
    assert text == (after or '{KEY,\n"x_y": 1}').replace("KEY", key)
    Path("a.json").write_bytes(text.encode())
    assert unused() == []


# --- per-file ignores --------------------------------------------------------------------------------------------

OFFLOAD = (
    '{"train_micro_batch_size_per_gpu": 4, "x_y": 1,\n'
    '"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu", "nope": 1}}}'
)


def found(*paths: str) -> list[str]:
    return lint(*paths)[:-1]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('"a.json" = ["ALL"]', []),
        ('"configs/a.json" = ["DS104"]', ["DS105", "DS501"]),
        ('"configs/*.json" = ["DS1", "DS5"]', []),
        ('"other/*.json" = ["ALL"]', ["DS104", "DS105", "DS501"]),
        ('"*.json#zero_optimization.offload_param" = ["ALL"]', ["DS104"]),
        ('"*.json#zero_optimization" = ["DS5"]', ["DS104", "DS105"]),
        ('"*.json#zero_optimization.offload_param.nope" = ["ALL"]', ["DS104", "DS501"]),
        ('"*.json#zero_optimization.offload" = ["ALL"]', ["DS104", "DS105", "DS501"]),
        ('"*.json#x_y" = ["unknown-top-level-key"]', ["DS105", "DS501"]),
    ],
)
def test_per_file_ignores(line: str, left: list[str]) -> None:
    write({"configs/a.json": OFFLOAD, "dsconf.toml": f"[per-file-ignores]\n{line}\n"})
    assert sorted(entry.split()[1] for entry in found("configs/a.json")) == left


def test_a_line_that_suppresses_nothing_is_reported_once_all_its_files_were_linted() -> None:
    write({"configs/a.json": OFFLOAD, "configs/b.json": config()})
    settings = '[per-file-ignores]\n"configs/*.json" = ["DS301"]\n'
    write({"dsconf.toml": settings})
    assert "dsconf.toml:2 DS131" in found("configs/a.json", "configs/b.json")
    assert "dsconf.toml:2 DS131" not in found("configs/a.json")
    write({"dsconf.toml": settings.replace("DS301", "DS104")})
    assert "dsconf.toml:2 DS131" not in found("configs/a.json", "configs/b.json")
    assert found("configs/b.json") == []
    for glob in ("**/*.json", "*.json"):
        write({"dsconf.toml": settings.replace("configs/*.json", glob)})
        assert "dsconf.toml:2 DS131" not in found("configs/a.json", "configs/b.json")
    write(
        {"dsconf.toml": settings.replace("DS301", "DS202"), "configs/b.json": config().replace("micro_", "")}
    )
    assert "dsconf.toml:2 DS131" not in found("configs/a.json", "configs/b.json")


def test_a_file_that_cannot_be_read_is_not_ignored_and_proves_nothing() -> None:
    write({"configs/a.json": "{", "dsconf.toml": '[per-file-ignores]\n"configs/a.json" = ["ALL", "DS301"]\n'})
    assert lint("configs/a.json") == ["configs/a.json:1 DS101", "2"]


def test_both_kinds_at_once() -> None:
    """What two suppressions take out needs both: removing either is no fix that a reader has to think about."""
    write({"configs/a.json": config('"x_y": 1, // dsconf: ignore[DS104]')})
    write({"dsconf.toml": '[per-file-ignores]\n"configs/a.json" = ["DS104"]\n'})
    assert lint("configs/a.json") == ["0"]


def test_the_look(snapshot: SnapshotAssertion) -> None:
    write(
        {
            "configs/a.json": config(
                '"x_y": 1, // dsconf: ignore[DS104, DS301] ours', "# dsconf: ignore DS104"
            ),
            "dsconf.toml": '[per-file-ignores]\n"configs/*.json#fp16" = ["DS301", "DS302"]\n',
        }
    )
    assert dsconf("lint", "configs/a.json").stdout == snapshot
    report = json.loads(dsconf("lint", "configs/a.json", "--output-format", "json").stdout)
    assert [finding["file"] for finding in report["findings"]] == ["configs/a.json"] * 2 + ["dsconf.toml"]
