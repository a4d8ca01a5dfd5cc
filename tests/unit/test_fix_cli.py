"""`dsconf lint --fix`, `--diff` and `--unsafe-fixes` from the outside."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsconf.cli import main
from dsconf.lint.report import FORMATS

SAFE = '{\n  "train_micro_batch_size_per_gpu": "4",\n  "zero_optimization": {"stage": 2, "cpu_offload": true}\n}\n'
MENDED = (
    '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {"stage": 2, "offload_optimizer": '
    '{"device": "cpu"}}\n}\n'
)
UNSAFE = '{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 0.5}'
CLEAN = '{"train_micro_batch_size_per_gpu": 4}'
BROKEN = "{"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "ds.json") -> Path:
    path = Path(name)
    path.write_bytes(text.encode())
    return path


def dsconf(*args: str | Path) -> Result:
    result = CliRunner().invoke(main, ["lint", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize("output", FORMATS)
def test_safe_fixes(output: str) -> None:
    path = write(SAFE)
    result = dsconf(path, "--fix", "--output-format", output)
    assert path.read_text() == MENDED
    assert (result.exit_code, result.stderr) == (0, "")
    if output == "json":
        assert json.loads(result.stdout)["findings"] == []
    elif output == "sarif":
        assert json.loads(result.stdout)["runs"][0]["results"] == []
    else:
        assert result.stdout == "Fixed 2 problems.\nNo problems found in 1 file.\n"


def test_unsafe_ones_want_to_be_asked_for() -> None:
    path = write(UNSAFE)
    result = dsconf(path, "--fix")
    assert path.read_text() == UNSAFE
    assert result.exit_code == 1
    summary = (
        "Found 1 problem (1 warning) in 1 file: 1 fixable with --fix --unsafe-fixes (it may change training)."
    )
    assert result.stdout.splitlines()[-1] == summary
    result = dsconf(path, "--fix", "--unsafe-fixes")
    assert path.read_text() == UNSAFE.replace("cliping", "clipping")
    assert result.exit_code == 0


def test_what_is_fixable_is_marked() -> None:
    result = dsconf(write(SAFE), write(UNSAFE, "b.json"))
    first, *_ = result.stdout.splitlines()
    assert first.endswith("   [*]")
    assert result.stdout.count("   [*]\n") == 2
    assert result.stdout.splitlines()[-1] == (
        "Found 3 problems (1 error, 2 warnings) in 2 files: 2 fixable with --fix [*], "
        "1 more with --unsafe-fixes (it may change training)."
    )


def test_unsafe_fixes_alone() -> None:
    path = write(UNSAFE)
    result = dsconf(path, "--unsafe-fixes")
    assert (result.exit_code, path.read_text()) == (2, UNSAFE)
    assert "--unsafe-fixes goes with --fix or --diff" in result.stderr


@pytest.mark.parametrize(
    ("text", "args", "status"),
    [
        (SAFE, [], 1),
        (SAFE, ["--fix"], 1),
        (UNSAFE, [], 0),
        (UNSAFE, ["--unsafe-fixes"], 1),
        (CLEAN, [], 0),
        (BROKEN, [], 2),
        ('{"_version": 1}', [], 0),
    ],
)
def test_diff_changes_nothing(text: str, args: list[str], status: int) -> None:
    path = write(text)
    before = path.stat()
    os.utime(path, ns=(1, 1))
    result = dsconf(path, "--diff", *args)
    assert result.exit_code == status
    assert (status == 1) == bool(result.stdout)
    assert path.read_bytes() == text.encode()
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (1, before.st_ino)
    assert f"Would fix {2 * (text == SAFE) or int(status == 1)} problem" in result.stderr


@pytest.mark.parametrize("text", [SAFE, SAFE.rstrip(), SAFE.replace("\n", "\r\n"), "\ufeff" + SAFE, UNSAFE])
def test_the_diff_is_the_fix(text: str, tmp_path: Path) -> None:
    path = write(text)
    patch = dsconf(path, "--diff", "--unsafe-fixes").stdout_bytes
    copy = write(text, "copy.json")
    subprocess.run(["patch", "--binary", "-s", copy], input=patch, check=True)
    dsconf(path, "--fix", "--unsafe-fixes")
    assert copy.read_bytes() == path.read_bytes() != text.encode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n", "\r\n"),
        ("  ", "\t"),
        ("{\n", "\ufeff{\n"),
        ("}\n}\n", "}\n}"),
        ("4", "4e0"),
        ("2,", "2.0,"),
        (" ", ""),
    ],
)
def test_the_layout_stays(old: str, new: str) -> None:
    path = write(SAFE.replace(old, new))
    assert dsconf(path, "--fix").exit_code == 0
    assert path.read_bytes() == MENDED.replace(old, new).encode()


@pytest.mark.parametrize("text", [CLEAN, UNSAFE, BROKEN, "", '{"_version": 1}', CLEAN + "\r\n // x"])
def test_nothing_to_fix_nothing_written(text: str) -> None:
    path = write(text)
    os.utime(path, ns=(1, 1))
    dsconf(path, "--fix")
    assert path.read_bytes() == text.encode()
    assert path.stat().st_mtime_ns == 1


def test_links_and_modes_stay() -> None:
    path = write(SAFE, "real.json")
    path.chmod(0o640)
    Path("link.json").symlink_to(path)
    assert dsconf("link.json", "--fix").exit_code == 0
    assert Path("link.json").is_symlink()
    assert path.read_text() == MENDED
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(map(str, Path().iterdir())) == ["link.json", "real.json"]


def test_a_file_named_twice() -> None:
    path = write(SAFE)
    result = dsconf(path, f"./{path}", "--fix")
    assert path.read_text() == MENDED
    assert (result.exit_code, result.stdout) == (0, "Fixed 2 problems.\nNo problems found in 2 files.\n")


def test_what_can_not_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = write(SAFE), write(SAFE, "other.json")
    monkeypatch.setattr(os, "access", lambda name, mode: not str(name).endswith("/ds.json"))
    result = dsconf(path, other, "--fix")
    assert result.exit_code == 2
    assert result.stderr == "ds.json: the fixes can't be written: the file is write-protected\n"
    assert path.read_text() == SAFE
    assert other.read_text() == MENDED
    assert "Found 2 problems (1 error, 1 warning) in 2 files" in result.stdout


def test_a_fix_shows_the_next() -> None:
    path = write(
        '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2, "cpu_offload": true}}'
    )
    result = dsconf(path, "--fix", "--unsafe-fixes")
    assert result.exit_code == 0
    assert json.loads(path.read_text())["zero_optimization"] == {
        "stage": 2, "offload_optimizer": {"device": "cpu"}
    }  # fmt: skip


def test_one_fix_makes_the_other_needless() -> None:
    """Of two spellings one is removed, not both."""
    path = write('{"train_micro_batch_size_per_gpu": 1, "gradient_cliping": 2, "gradient_clippin": 3}')
    dsconf(path, "--fix", "--unsafe-fixes")
    assert json.loads(path.read_text()) == {
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 2, "gradient_clippin": 3
    }  # fmt: skip
