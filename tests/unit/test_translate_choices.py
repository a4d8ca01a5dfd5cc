"""What the user chooses of a translation: numerics, style, and the form of the report."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from dsconf.cli import main
from dsconf.formats.choices import NUMERICS

ZERO3: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 3,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
}
FP32 = ZERO3 | {"bf16": {"enabled": False}}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def translate(source: dict[str, Any], *args: str) -> Result:
    Path("ds_config.json").write_text(json.dumps(source), encoding="utf-8")
    return CliRunner().invoke(main, ["translate", "ds_config.json", "--to", "fsdp2", *args])


def at(stage: int, **changes: Any) -> dict[str, Any]:
    return ZERO3 | {"zero_optimization": {"stage": stage}} | changes


def items_of(source: dict[str, Any], *args: str) -> dict[str, dict[str, Any]]:
    translate(source, "--report", "report.json", *args)
    report: dict[str, Any] = json.loads(Path("report.json").read_text(encoding="utf-8"))
    return {item["key"]: item for item in report["items"]}


def difference_line(source: dict[str, Any], *args: str) -> str:
    """What the report says of the other numerics."""
    lines = [line for line in translate(source, *args).stderr.splitlines() if line.startswith("--numerics")]
    return lines[0] if lines else ""


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_pytorch_numerics_keep_gradients_and_masters_in_fp32(stage: int) -> None:
    done = translate(at(stage), "--numerics", "pytorch")
    assert done.exit_code == 0
    assert "REDUCE_DTYPE = torch.float32  # --numerics pytorch" in done.stdout
    assert "PARAM_DTYPE)  # DeepSpeed makes its masters" not in done.stdout
    assert "as PyTorch recommends" in done.stdout
    assert ("find_units" in done.stdout) == (stage == 3)
    items = items_of(at(stage), "--numerics", "pytorch")
    chosen = {key for key, item in items.items() if "--numerics pytorch" in item["note"]}
    assert chosen == {"bf16.enabled", "communication_data_type", "data_types.grad_accum_dtype"}
    assert {items[key]["outcome"] for key in chosen} == {"close"}


def test_gradients_that_are_fp32_already_stay_exact() -> None:
    wide = at(3, communication_data_type="fp32", data_types={"grad_accum_dtype": "fp32"})
    items = items_of(wide, "--numerics", "pytorch")
    assert items["communication_data_type"]["outcome"] == "exact"
    assert items["data_types.grad_accum_dtype"]["outcome"] == "exact"
    assert "REDUCE_DTYPE = torch.float32  # communication_data_type" in translate(wide).stdout

    line = difference_line(wide)
    assert "keep masters that are not rounded" in line
    assert "gradients" not in line


@pytest.mark.parametrize("numerics", NUMERICS)
def test_dtypes_that_autocast_or_a_key_decides(numerics: str) -> None:
    """Gradients may be 16-bit in a step that computes in fp32, and no key may be left that names their dtype."""
    for source, dtype in (
        (at(2, torch_autocast={"enabled": True, "dtype": "bfloat16"}), "PARAM"),
        (FP32 | {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "AUTOCAST"),
        (FP32 | {"communication_data_type": "bf16"}, "REDUCE"),
    ):
        done = translate(source, "--numerics", numerics)
        assert done.exit_code == 0, done.stderr
        wide = "REDUCE_DTYPE = torch.float32" in done.stdout or "reduce_dtype=torch.float32" in done.stdout
        assert wide == (numerics == "pytorch"), dtype


def test_what_is_approximate_already_stays_so() -> None:
    half = FP32 | {
        "torch_autocast": {"enabled": True, "dtype": "float16"},
        "zero_optimization": {"stage": 2},
        "gradient_clipping": 0.0,
    }
    item = items_of(half, "--numerics", "pytorch")["torch_autocast.dtype"]
    assert item["outcome"] == "approximate"
    assert "--numerics pytorch: gradients are reduced in fp32" in item["note"]


def test_bf16_masters_stay_what_they_are() -> None:
    masters = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    kept, chosen = (translate(at(2, bf16=masters), "--numerics", name) for name in NUMERICS)
    assert "--numerics pytorch would" not in kept.stderr
    assert kept.stdout.partition("from __future__")[2] == chosen.stdout.partition("from __future__")[2]
    assert ".float()" not in chosen.stdout
    assert "masters keep" not in chosen.stderr


def test_pytorch_numerics_change_nothing_in_fp32_but_the_units() -> None:
    plain, chosen = (translate(FP32, "--numerics", name).stdout for name in NUMERICS)
    assert "find_units" not in plain
    assert "find_units" in chosen
    same = "def build_optimizer"
    assert plain[plain.index(same) :] == chosen[chosen.index(same) :]
    assert "numerics" not in translate(FP32 | {"zero_optimization": {"stage": 2}}).stderr


def test_the_report_says_what_the_other_choice_would_change() -> None:
    assert (
        "--numerics pytorch would reduce and add up gradients in fp32 (2 bytes more"
        in translate(ZERO3).stderr
    )
    other = translate(ZERO3, "--numerics", "pytorch").stderr
    assert "--numerics deepspeed would reduce and add up gradients as DeepSpeed does" in other
    waits = "the whole gradients that each GPU holds"
    assert [waits in difference_line(at(stage)) for stage in range(4)] == [True, True, False, False]
    report = Path("report.json")
    translate(ZERO3, "--numerics", "pytorch", "--report", str(report))
    assert json.loads(report.read_text(encoding="utf-8"))["numerics"] == "pytorch"


def test_the_minimal_style_has_parallelize_alone() -> None:
    done = translate(at(1), "--style", "minimal")
    assert done.exit_code == 0
    tree = ast.parse(done.stdout)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions == ["find_blocks", "prepare", "frozen", "parallelize"]
    said = ast.get_docstring(tree) or ""
    for duty in (
        "gradient_accumulation_steps: (loss / 3).backward()",
        "clip_grad_norm_(model.parameters(), 1.0)",
        "optimizer.params.weight_decay: weight_decay=0.1",
        "scheduler.type: build_scheduler() as --style module writes it",
        "model.set_requires_gradient_sync(is_last)",
        "where the gradient norm is not finite",
    ):
        assert duty in said
    items = items_of(at(1), "--style", "minimal")
    assert items["optimizer.params.weight_decay"]["action"] == "in your script: weight_decay=0.1"
    assert "is_last" in items["zero_optimization.stage"]["action"]


def test_the_minimal_style_names_no_class_that_it_does_not_have() -> None:
    lion = at(2, optimizer={"type": "Lion", "params": {"lr": 1e-4}}, zero_allow_untested_optimizer=True)
    said = translate(lion, "--style", "minimal").stdout.partition("from __future__")[0]
    assert "optimizer.type: build_optimizer() as --style module writes it" in said
    assert "optimizer.params" not in said
    fp16 = at(2, bf16={"enabled": False}, fp16={"enabled": True})
    said = translate(fp16, "--style", "minimal").stdout.partition("from __future__")[0]
    assert "LossScaler and train_step() as --style module writes it" in said
    assert "fp16.hysteresis" not in said


@pytest.mark.parametrize("style", ["module", "minimal"])
@pytest.mark.parametrize("numerics", NUMERICS)
def test_chosen_modules_are_clean(style: str, numerics: str) -> None:
    code = translate(ZERO3, "--style", style, "--numerics", numerics).stdout
    Path("shard.py").write_text(code, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--extend-select", "I", "shard.py"]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_minimal_and_pytorch(snapshot: SnapshotAssertion) -> None:
    done = translate(at(2), "--style", "minimal", "--numerics", "pytorch")
    assert done.stdout == snapshot(name="module")
    assert done.stderr == snapshot(name="report")


def test_a_report_in_markdown(snapshot: SnapshotAssertion) -> None:
    offloaded = at(
        3,
        zero_optimization={
            "stage": 3,
            "offload_param": {"device": "nvme", "nvme_path": "/x"},
            "overlap_comm": True,
        },
    )
    assert translate(offloaded, "--report", "report.md").exit_code == 1
    assert Path("report.md").read_text(encoding="utf-8") == snapshot


def test_no_cell_of_markdown_is_torn() -> None:
    translate(ZERO3 | {"a|b": "c|d\n`e`"}, "--report", "report.md")
    rows = [
        line for line in Path("report.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")
    ]
    assert rows
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
