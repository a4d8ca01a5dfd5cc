"""The examples of the rules about Accelerate and FSDP, through the real launcher and the plugins of a worker."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import EXAMPLES, Example, lint_json

from dsconf.formats.accelerate.keys import load_keys

from .accelerating import launched, one_machine

pytestmark = pytest.mark.oracle

OPEN = ("AC126",)
"""What lint leaves open, since it depends on where the run is started."""
OF_ACCELERATE = [
    example
    for example in EXAMPLES
    if example.language == "yaml"
    and "distributed_type" in example.text
    and example.page.parent.name != "reading"
    and not example.page.name.startswith(OPEN)
]
MOMENTS = ("parse", "launch", "init")


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    with one_machine():
        yield


@pytest.mark.parametrize("example", OF_ACCELERATE, ids=lambda example: example.id)
def test_a_run_gets_as_far_as_lint_says(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / example.file
    report = lint_json(path, *example.write(path))[1]
    config = importlib.import_module("yaml").safe_load(example.text)
    outcome = launched(config, tmp_path, whole=True)
    said = {finding["fails"] for finding in report["findings"] if finding["severity"] == "error"}
    wanted = next((moment for moment in MOMENTS if moment in said), None)
    assert outcome.fails == wanted, outcome.error


def test_there_are_examples_of_each_kind() -> None:
    assert len(OF_ACCELERATE) > 50
    assert {example.section for example in OF_ACCELERATE} == {"Bad", "Good"}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("loading", ["absent", "true", "false", "'false'", "0", "'no'"])
@pytest.mark.parametrize("sync", ["absent", "true", "false", "'false'", "0", "''"])
def test_loading_on_rank_0_without_sync(version: int, loading: str, sync: str, tmp_path: Path) -> None:
    """fsdp-ram-efficient-sync: the launcher looks at the values as YAML gives them."""
    text = f"distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: {version}\n"
    for name, value in (("cpu_ram_efficient_loading", loading), ("sync_module_states", sync)):
        text += f"  fsdp_{name}: {value}\n" if value != "absent" else ""
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    said = {finding["rule"] for finding in lint_json(path)[1]["findings"]}
    outcome = launched(importlib.import_module("yaml").safe_load(text), tmp_path, worker=False)
    assert ("fsdp-ram-efficient-sync" in said) == (outcome.fails == "launch"), outcome.error


@pytest.mark.parametrize("name", [*load_keys()["keys"]["deepspeed_config"]["keys"]])
def test_what_may_stand_beside_a_config_file(name: str, tmp_path: Path) -> None:
    """accelerate-ds-file-conflict: a key without a value is refused, too."""
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
    )
    section = {"deepspeed_config_file": str(tmp_path / "ds.json"), "zero3_init_flag": False}
    settings = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 8,
        "deepspeed_config": {name: None, **section},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    said = {finding["rule"] for finding in lint_json(path)[1]["findings"]}
    outcome = launched(settings, tmp_path)
    assert ("accelerate-ds-file-conflict" in said) == (outcome.fails == "init"), outcome.error
