"""The hooks, installed and run by the real pre-commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.package

ROOT = Path(__file__).parents[2]
WRONG = '{"train_micro_batch_size_per_gpu": 4, "gradient_cliping": 0.5}\n'
MENDABLE = """{
  "train_micro_batch_size_per_gpu": 4, // per GPU
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "cpu_offload": true}
}
"""
LAUNCH = "distributed_type: FSDP\nnum_processes: 8\nfsdp_confg: {fsdp_version: 2}\n"


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with what a wheel is built from."""
    folder = tmp_path_factory.mktemp("hooks")
    for name in ("dsconf", "rules", "schemas"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, folder / name)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)


def test_hooks(hooks: Path, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(WRONG, encoding="utf-8")
    (tmp_path / "package.json").write_text('{"name": "x"}\n', encoding="utf-8")
    (tmp_path / "old.json").write_text(MENDABLE, encoding="utf-8")
    (tmp_path / "launch.yaml").write_text(LAUNCH, encoding="utf-8")
    (tmp_path / "compose.yml").write_text("services: {web: {image: nginx}}\n", encoding="utf-8")
    (tmp_path / "chart.yaml").write_text("kind: Pod\n---\nkind: Service\n", encoding="utf-8")
    revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=hooks, text=True).strip()
    ids = [{"id": "dsconf-lint"}, {"id": "dsconf-fix"}]
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": ids}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(json.dumps(config), encoding="utf-8")
    commit(tmp_path)
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / ".cache"), "GITHUB_ACTIONS": ""}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never", "--verbose"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "package.json: skipped, no DeepSpeed config" in run.stdout
    assert "compose.yml: skipped, it has no keys of" in run.stdout
    assert "chart.yaml: skipped, it has no keys of" in run.stdout
    assert "DS104 warning: unknown key" in run.stdout
    assert "AC101 error: unknown key fsdp_confg" in run.stdout
    assert "files were modified by this hook" in run.stdout
    mended = (tmp_path / "old.json").read_text(encoding="utf-8")
    assert "cpu_offload" not in mended
    assert '"train_micro_batch_size_per_gpu": 4, // per GPU\n' in mended
    assert (tmp_path / "ds.json").read_text(encoding="utf-8") == WRONG, "the fix would change training"
