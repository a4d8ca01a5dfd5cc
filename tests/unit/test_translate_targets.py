"""Every source that we have an example of, to every target: nothing is dropped, and what is written lints clean."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsconf.cli import main
from dsconf.translate import TARGETS

FIXTURES = Path(__file__).parents[2] / "fixtures"
SOURCES = {
    path.name: path for path in [*(FIXTURES / "translate").iterdir(), *(FIXTURES / "fsdp2").glob("*.py")]
}
SET = {
    "zero2_auto.json": (
        "train_micro_batch_size_per_gpu=2",
        "train_batch_size=8",
        "gradient_accumulation_steps=1",
        "gradient_clipping=1.0",
        "bf16.enabled=true",
    ),
}
"""What is said of the values that a source leaves open, in a second run."""
PAIRS = [pytest.param(name, target, id=f"{name} {target}") for name, target in product(SOURCES, TARGETS)]
FILES = {"fsdp2": "shard.py", "deepspeed": "ds_config.json"}


def translate(folder: Path, name: str, target: str, *options: str) -> tuple[Result, Path, Path]:
    """The run, what it wrote, and its report."""
    output, report = folder / FILES.get(target, "config.yaml"), folder / "report.json"
    command = ["translate", str(SOURCES[name]), "--to", target, "-o", str(output), "--report", str(report)]
    return CliRunner().invoke(main, [*command, "--gpus-per-node", "8", *options]), output, report


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_nothing_is_dropped(name: str, target: str, tmp_path: Path) -> None:
    result, output, path = translate(tmp_path, name, target)
    assert result.exit_code in (0, 1), result.output
    assert output.exists() == (result.exit_code == 0)
    report = json.loads(path.read_text(encoding="utf-8"))
    items = {item["key"]: item for item in report["items"]}
    assert len(items) == len(report["items"]), "each key once"
    assert (result.exit_code == 1) == any(item["outcome"] == "unsupported" for item in items.values())
    unsaid = [key for key, item in items.items() if "which is not translated" in item["note"]]
    assert not unsaid
    unexplained = [
        key
        for key, item in items.items()
        if item["outcome"] in ("close", "approximate", "unsupported") and not item["note"]
    ]
    assert not unexplained
    helpless = [
        key
        for key, item in items.items()
        if item["outcome"] == "needs-value" and not (item["action"] or item["note"])
    ]
    assert set(helpless) <= {"train_batch_size"}, "which follows from the others"


def outcomes(path: Path) -> set[str]:
    """The outcomes of a report, and "auto" where a value is that."""
    items = json.loads(path.read_text(encoding="utf-8"))["items"]
    return {item["outcome"] for item in items} | {str(item["value"]) for item in items}


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_what_is_written_lints_clean(name: str, target: str, tmp_path: Path) -> None:
    for options in ((), [part for value in SET.get(name, ()) for part in ("--set", value)]):
        _, output, report = translate(tmp_path, name, target, "--force", *options)
        if target == "fsdp2":
            compile(output.read_text(encoding="utf-8"), "module", "exec")
            continue
        whole = target == "deepspeed" and not ({"auto", "needs-value"} & outcomes(report))
        consumer = ["--consumer", "deepspeed"] if whole else []
        found = CliRunner().invoke(main, ["lint", *consumer, "--output-format", "json", str(output)])
        assert found.exit_code == 0, found.stdout


@pytest.mark.parametrize("name", SOURCES)
def test_what_pytorch_recommends_instead(name: str, tmp_path: Path) -> None:
    result, output, _ = translate(tmp_path, name, "fsdp2", "--force", "--numerics", "pytorch")
    assert result.exit_code in (0, 1), result.output
    code = output.read_text(encoding="utf-8")
    compile(code, "module", "exec")
    masters = ".float()" in code  # gradients of 16-bit masters have their dtype
    assert not (masters and "REDUCE_DTYPE = torch.bfloat16" in code)


@pytest.mark.parametrize("option", [("--numerics", "pytorch"), ("--style", "minimal")])
def test_choices_of_code_are_for_code(option: tuple[str, str], tmp_path: Path) -> None:
    result, output, _ = translate(tmp_path, "zero3_bf16.json", "accelerate-fsdp2", *option)
    assert (result.exit_code, output.exists()) == (2, False)
    assert "are for --to fsdp2" in result.output


@pytest.mark.parametrize("name", SOURCES)
def test_parallelize_alone(name: str, tmp_path: Path) -> None:
    result, output, _ = translate(tmp_path, name, "fsdp2", "--force", "--style", "minimal")
    assert result.exit_code in (0, 1), result.output
    compile(output.read_text(encoding="utf-8"), "module", "exec")
