"""Where a translation goes: stdout, a file, a file with others beside it, or the source itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsconf.cli import main

SOURCES = Path(__file__).parents[2] / "fixtures" / "translate"
HYBRID = SOURCES / "accelerate_hybrid.yaml"
DDP = str(SOURCES / "accelerate_ddp.yaml")


def translate(source: Path | str, target: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["translate", str(source), "--to", target, *options])


def test_one_file_goes_to_stdout(tmp_path: Path) -> None:
    result = translate(DDP, "deepspeed")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["zero_optimization"] == {"stage": 0}
    path = tmp_path / "ds_config.json"
    told = translate(DDP, "deepspeed", "-o", str(path))
    assert (told.exit_code, told.stdout) == (0, "")
    assert path.read_text(encoding="utf-8") == result.stdout


def test_two_files_need_a_place() -> None:
    result = translate(DDP, "accelerate-deepspeed")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "this becomes a file and ds_config.json beside it: say with -o FILE where" in result.stderr


def test_a_file_beside_the_output_takes_no_other_ones_place(tmp_path: Path) -> None:
    beside, output = tmp_path / "ds_config.json", tmp_path / "accelerate.yaml"
    beside.write_text("{}", encoding="utf-8")
    result = translate(DDP, "accelerate-deepspeed", "-o", str(output))
    assert result.exit_code == 2
    assert "ds_config.json is needed beside the output, and exists" in result.stderr
    assert (beside.read_text(encoding="utf-8"), output.exists()) == ("{}", False)
    beside.unlink()
    assert translate(DDP, "accelerate-deepspeed", "-o", str(output)).exit_code == 0
    assert "deepspeed_config_file: ds_config.json" in output.read_text(encoding="utf-8")
    assert json.loads(beside.read_text(encoding="utf-8"))["zero_optimization"] == {"stage": 0}
    assert translate(DDP, "accelerate-deepspeed", "-o", str(output)).exit_code == 0, "the same once more"


def test_a_json_that_suffices_is_named(tmp_path: Path) -> None:
    source = str(SOURCES / "zero3_bf16.json")
    result = translate(source, "accelerate-deepspeed")
    assert f"deepspeed_config_file: {source}" in result.stdout
    changed = translate(source, "accelerate-deepspeed", "--set", "zero_optimization.stage=2")
    assert changed.exit_code == 2, "it is no longer what stands in the file"


def test_in_place(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    before = HYBRID.read_text(encoding="utf-8").replace("num_machines: 2", "num_machines: 2  # both\r")
    path.write_bytes(before.encode())
    result = translate(path, "accelerate-fsdp2", "--in-place")
    assert (result.exit_code, result.stdout) == (0, "")
    after = path.read_bytes().decode()
    assert "num_machines: 2  # both\r\n" in after
    assert "sharding_strategy" not in after
    assert "parallelism_config_dp_shard_size: 8" in after


def test_the_address_of_the_first_machine_is_kept_where_there_is_a_place_for_it() -> None:
    assert "main_process_ip: 10.1.2.3" in translate(HYBRID, "accelerate-fsdp2").stdout
    assert "--rdzv-endpoint 10.1.2.3:29500 " in translate(HYBRID, "fsdp2").stdout
    assert "on each of 2 nodes, 10.1.2.3 being one of them" in translate(HYBRID, "fsdp2").stdout


@pytest.mark.parametrize("target", ["fsdp2", "deepspeed", "trainer-fsdp2", "axolotl"])
def test_how_processes_meet_is_no_setting_of_training(target: str) -> None:
    for key in ("main_process_ip", "main_process_port", "machine_rank"):
        assert re.search(
            rf"^  no effect +{key} .* it says how processes", translate(HYBRID, target).stderr, re.MULTILINE
        )


@pytest.mark.parametrize(
    ("source", "target", "options", "said"),
    [
        ("zero3_bf16.json", "accelerate-fsdp2", [], "only an Accelerate config can be changed in place"),
        ("accelerate_hybrid.yaml", "fsdp2", [], "only an Accelerate config can be changed in place"),
        ("accelerate_ddp.yaml", "accelerate-fsdp2", [], "distributed_type is not FSDP"),
        ("accelerate_hybrid.yaml", "accelerate-fsdp2", ["-o", "x.yaml"], "-o and --set don't go with it"),
        (
            "accelerate_hybrid.yaml",
            "accelerate-fsdp2",
            ["--set", "debug=true"],
            "-o and --set don't go with it",
        ),
    ],
)
def test_what_can_not_be_changed_in_place(
    source: str, target: str, options: list[str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / source
    before = (SOURCES / source).read_bytes()
    path.write_bytes(before)
    result = translate(path, target, "--in-place", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "target", "key"),
    [
        ("zero3_bf16.json", "fsdp2", "no_such_key"),
        ("accelerate_ddp.yaml", "fsdp2", "zero_optimization.stage"),
        ("accelerate_ddp.yaml", "trainer-deepspeed", "zero_optimization.stag"),
    ],
)
def test_a_key_that_nobody_has(source: str, target: str, key: str) -> None:
    result = translate(SOURCES / source, target, "--set", f"{key}=1")
    assert result.exit_code == 2
    assert f"can have no key '{key}'" in result.stderr


def test_values_for_keys_of_the_source_and_of_the_target() -> None:
    given = ("--set", "mixed_precision=bf16", "--set", "train_micro_batch_size_per_gpu=4")
    result = translate(DDP, "deepspeed", *given)
    assert result.exit_code == 0
    config = json.loads(result.stdout)
    assert config["torch_autocast"]["dtype"] == "bfloat16"
    assert config["train_micro_batch_size_per_gpu"] == 4


OPEN_DTYPE = """\
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

def shard(model, dtype):
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=dtype))
"""


@pytest.mark.parametrize(
    ("given", "written", "outcome"),
    [
        ((), {"bf16": "auto", "fp16": "auto"}, "needs-value"),
        (("bf16.enabled=true",), {"bf16": True}, "approximate"),  # the masters are rounded
        (("fp16.enabled=true",), {"fp16": True}, "approximate"),
        (("bf16.enabled=false", "fp16.enabled=false"), {"bf16": False, "fp16": False}, "exact"),
    ],
)
def test_a_dtype_that_code_leaves_open_is_given_for_deepspeed(
    given: tuple[str, ...], written: dict[str, object], outcome: str, tmp_path: Path
) -> None:
    path, report = tmp_path / "shard.py", tmp_path / "report.json"
    path.write_text(OPEN_DTYPE, encoding="utf-8")
    options = [part for value in given for part in ("--set", value)]
    result = translate(path, "deepspeed", *options, "--report", str(report))
    assert result.exit_code == 0
    config = json.loads(result.stdout)
    assert {name: config[name]["enabled"] for name in ("bf16", "fp16") if name in config} == written
    items = json.loads(report.read_text(encoding="utf-8"))["items"]
    (item,) = [each for each in items if each["key"] == "MixedPrecisionPolicy.param_dtype"]
    assert item["outcome"] == outcome


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("other.json", '{"a": 1}', "it has no keys of DeepSpeed, Accelerate, Trainer or Axolotl"),
        ("other.yaml", "a: 1\n", "it has no keys of DeepSpeed, Accelerate, Trainer or Axolotl"),
        ("plain.py", "x = 1\n", "it holds no DeepSpeed config"),
        ("broken.py", "def f(:\n    fully_shard(model)\n", "it does not parse as Python 3"),
        ("none.py", "# fully_shard\nx = 1\n", "fully_shard"),
        ("empty.yaml", "", "the file is empty"),
        (
            "two.py",
            "A = {'zero_optimization': {}}\nB = {'zero_optimization': {}}\n",
            "2 configs, at lines 1, 2",
        ),
        ("llama.yaml", "dist_config:\n  name: fsdp2\n", "linted, and not translated"),
    ],
)
def test_what_is_no_source(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    result = translate(path, "deepspeed")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize("target", ["deepspeed", "accelerate-deepspeed", "trainer-deepspeed"])
def test_a_template_is_not_kept_as_it_is(target: str, tmp_path: Path) -> None:
    path = tmp_path / "template.json"
    bucket = '"reduce_bucket_size": {{ bucket }}'
    path.write_text(
        f'{{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {{"stage": 3, {bucket}}}}}',
        encoding="utf-8",
    )
    output = tmp_path / "out.yaml"
    assert translate(path, target, "-o", str(output)).exit_code == 0
    assert "template" not in output.read_text(encoding="utf-8").partition("\n")[2]


def test_an_older_deepspeed_gets_no_key_that_it_does_not_have() -> None:
    older = translate(DDP, "deepspeed", "--deepspeed-version", "0.16.9")
    assert older.exit_code == 1
    assert "DeepSpeed 0.16.9 has no torch_autocast.dtype" in older.stderr
    forced = translate(DDP, "deepspeed", "--deepspeed-version", "0.16.9", "--force")
    assert "torch_autocast" not in forced.stdout
    assert json.loads(forced.stdout)["zero_optimization"] == {"stage": 0}
    newest = translate(DDP, "deepspeed", "--deepspeed-version", "0.19.8")
    assert newest.stdout == translate(DDP, "deepspeed").stdout
