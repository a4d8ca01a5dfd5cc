"""`dsconf translate` as a user runs it, without torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from configs import ALL_AUTO
from syrupy.assertion import SnapshotAssertion

from dsconf.cli import main

DEMO = Path(__file__).parents[2] / "fixtures" / "demo"
ZERO3: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 3},
}
CPU = {"device": "cpu", "pin_memory": True}
FP16: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "fp16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
CURVES: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "Lion", "params": {"lr": "auto", "weight_decay": 0.1}},
    "scheduler": {
        "type": "OneCycle",
        "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "decay_step_size": 10, "decay_lr_rate": 0.5},
    },
    "zero_allow_untested_optimizer": True,
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def translate(source: dict[str, Any] | str, *args: str) -> Result:
    text = source if isinstance(source, str) else json.dumps(source, indent=2)
    Path("ds_config.json").write_text(text, encoding="utf-8")
    return CliRunner().invoke(main, ["translate", "ds_config.json", "--to", "fsdp2", *args])


def report_of(source: dict[str, Any], *args: str) -> dict[str, Any]:
    translate(source, "--report", "report.json", *args)
    report: dict[str, Any] = json.loads(Path("report.json").read_text(encoding="utf-8"))
    return report


def outcomes(source: dict[str, Any], *args: str) -> dict[str, str]:
    return {item["key"]: item["outcome"] for item in report_of(source, *args)["items"]}


def leaves(value: object, path: str = "") -> set[str]:
    if isinstance(value, dict) and value:
        return set().union(*(leaves(v, f"{path}.{key}" if path else key) for key, v in value.items()))
    return {path}


def test_the_code_is_on_stdout_and_the_report_on_stderr() -> None:
    result = translate(ZERO3)
    assert result.exit_code == 0
    compile(result.stdout, "module", "exec")
    assert "overall close" in result.stderr
    assert "overall" not in result.stdout


SOURCES: dict[str, Any] = {
    "demo": (DEMO / "ds_config.json").read_text(encoding="utf-8"),
    "zero3": ZERO3,
    "auto": ALL_AUTO,
    "curves": CURVES,
    "fp32": {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 0.0,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_type": "linear"}},
        "zero_optimization": {"stage": 3},
    },
    "zero0": {"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": False}},
    "zero1": ZERO3 | {"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}},
    "zero2": ZERO3 | {"zero_optimization": {"stage": 2}},
    "offload": ZERO3
    | {"zero_optimization": {"stage": 3, "offload_param": CPU, "offload_optimizer": CPU | {"ratio": 1}}},
    "fp16": FP16 | {"fp16": {"enabled": True, "loss_scale": 0, "hysteresis": 2, "initial_scale_power": 12}},
    "hpz": ZERO3 | {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
    "muon": ZERO3
    | {
        "optimizer": {"type": "Muon", "params": {"lr": 2e-2, "weight_decay": 0.1}},
        "scheduler": {
            "type": "WarmupCosineLR",
            "params": {"total_num_steps": 1000, "warmup_num_steps": 50, "warmup_type": "linear"},
        },
        "zero_optimization": {"stage": 2},
    },
}
EXOTIC = ("curves", "muon")
"""Those whose optimizers and schedulers torch does not have, so that the module does."""


@pytest.mark.parametrize("name", SOURCES)
def test_modules(name: str, snapshot: SnapshotAssertion) -> None:
    result = translate(SOURCES[name])
    assert result.exit_code == 0
    assert result.stdout == snapshot(name="module")
    assert result.stderr == snapshot(name="report")
    assert len(result.stdout.splitlines()) <= (275 if name in EXOTIC else 220)


def test_modules_are_as_ruff_leaves_them() -> None:
    """Checked with its default rules, and formatted in lines of the length that the parts have."""
    for name, source in SOURCES.items():
        Path(f"{name}.py").write_text(translate(source).stdout, encoding="utf-8")
    for args in (["check"], ["format", "--diff", "--line-length", "110"]):
        ruff = [sys.executable, "-m", "ruff", *args, "--isolated", "."]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_every_written_leaf_has_one_item() -> None:
    for source in (
        ZERO3,
        ALL_AUTO,
        CURVES,
        json.loads((DEMO / "ds_config.json").read_text(encoding="utf-8")),
    ):
        items = report_of(source)["items"]
        written = [item["key"] for item in items if item["written"]]
        assert len(written) == len(set(written))
        assert set(written) == leaves(source)


def test_the_report_has_the_promised_shape() -> None:
    report = report_of(ZERO3)
    assert {key: report[key] for key in ("version", "source", "target", "numerics")} == {
        "version": 1,
        "source": "deepspeed",
        "target": "fsdp2",
        "numerics": "deepspeed",
    }
    assert set(report["overall"]) == {"outcome", "note"}
    assert (report["torch"], report["assumed"]) == ("2.9", [])
    unclipped = {key: value for key, value in ZERO3.items() if key != "gradient_clipping"}
    assert [line.startswith("DeepSpeed 0.19.3 or newer") for line in report_of(unclipped)["assumed"]] == [
        True
    ]
    for item in report["items"]:
        assert set(item) == {"key", "value", "outcome", "target", "note", "action", "written"}


def test_defaults_that_change_training_are_in_the_report() -> None:
    source = {key: value for key, value in ZERO3.items() if key != "gradient_clipping"}
    items = {item["key"]: item for item in report_of(source)["items"]}
    clipping = items["gradient_clipping"]
    assert (clipping["written"], clipping["value"]) == (False, 1.0)
    assert "0.19.3" in clipping["note"]
    done = translate(source)
    assert "CLIP_NORM = 1.0" in done.stdout
    assert done.stderr.startswith("Assumed: DeepSpeed 0.19.3 or newer")
    done = translate(source, "--deepspeed-version", "0.18.0")
    assert ("CLIP_NORM" in done.stdout, "Assumed" in done.stderr) == (False, False)


def test_auto_becomes_parameters() -> None:
    found = outcomes(ALL_AUTO)
    open_ = {key for key in leaves(ALL_AUTO) if key.split(".")[-1] not in ("type", "stage")}
    open_ -= {"zero_optimization.reduce_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"}
    assert {key for key, outcome in found.items() if outcome == "needs-value"} == open_
    code = translate(ALL_AUTO).stdout
    functions = {node.name: node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    needed = {name: [arg.arg for arg in node.args.kwonlyargs] for name, node in functions.items()}
    assert {name: parameters for name, parameters in needed.items() if parameters} == {
        "prepare": ["param_dtype"],
        "parallelize": ["param_dtype"],
        "build_optimizer": ["lr", "betas", "eps", "weight_decay"],
        "build_scheduler": ["warmup_min_lr", "warmup_max_lr", "warmup_steps", "total_steps"],
        "train_step": ["gradient_accumulation_steps", "clip_norm"],
    }
    assert all(default is None for node in functions.values() for default in node.args.kw_defaults)


def test_set_gives_values() -> None:
    found = translate(ALL_AUTO, "--set", "optimizer.params.lr=3e-4", "--set", "bf16.enabled=true")
    assert "LR = 0.0003  # optimizer.params.lr" in found.stdout
    assert "PARAM_DTYPE = torch.bfloat16  # bf16.enabled" in found.stdout
    assert outcomes(ALL_AUTO, "--set", "optimizer.params.lr=3e-4")["optimizer.params.lr"] == "exact"


def test_fp16_without_zero_is_scaled_as_it_is_meant_to_be() -> None:
    stage0 = FP16 | {"zero_optimization": {"stage": 0}}
    result = translate(stage0)
    assert result.exit_code == 0
    assert "loss_scaler.scale" in result.stdout
    assert outcomes(stage0)["zero_optimization.stage"] == "approximate"
    assert "does not scale the loss at stage 0 since 0.18.9" in result.stderr
    older = translate(stage0, "--deepspeed-version", "0.16.9")
    assert "does not scale" not in older.stderr
    assert "takes a step with zero gradients" in older.stderr


def test_set_makes_an_unsupported_device_supported() -> None:
    nvme = zero(stage=3, offload_param={"device": "nvme", "nvme_path": "/x"})
    result = translate(nvme)
    assert result.exit_code == 1
    assert "--set zero_optimization.offload_param.device=cpu" in result.stderr
    key = "zero_optimization.offload_param"
    assert translate(nvme, "--set", f"{key}.device=cpu", "--set", f"{key}.nvme_path=null").exit_code == 0


def zero(**changes: Any) -> dict[str, Any]:
    """Two micro batches, bf16, and a section of ZeRO's."""
    return ZERO3 | {"gradient_accumulation_steps": 2, "zero_optimization": changes}


FP32_ONLY: dict[str, Any] = {"bf16": {"enabled": False}}
FP32 = ZERO3 | FP32_ONLY
MASTERS = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}


def autocast(**section: Any) -> dict[str, Any]:
    return {"torch_autocast": {"enabled": True, "dtype": "bfloat16", **section}}


AUTOCAST = autocast()


def types(**section: Any) -> dict[str, Any]:
    return {"data_types": section}


@pytest.mark.parametrize(
    ("source", "has", "lacks"),
    [
        (zero(stage=0), "(dist.get_world_size(), 1), mesh_dim_names", "stage ="),
        (zero(stage=1), "model.set_requires_gradient_sync(is_last)", "replicas"),
        (zero(stage=2), "model.set_reshard_after_backward(is_last)", "set_requires_gradient_sync"),
        (zero(stage=2), "ignored_params=frozen(module)", "OffloadPolicy"),
        (zero(stage=3), "RESHARD_AFTER_FORWARD = True", "is_last"),
        (zero(stage=3), "RESHARD_AFTER_FORWARD = True", "reshard()"),
        (zero(stage=2) | {"gradient_accumulation_steps": 1}, "module.reshard()", "is_last"),
        (zero(stage=3, zero_hpz_partition_size=8), "RESHARD_AFTER_FORWARD = 8", "is_last"),
        (zero(stage=2, zero_hpz_partition_size=8), "RESHARD_AFTER_FORWARD = False", "= 8"),
        (zero(stage=2, cpu_offload=True), 'init_process_group("cpu:gloo,cuda:nccl")', "nvme"),
        (zero(stage=3, offload_optimizer={"device": "none", "pin_memory": True}), "= True", "OffloadPolicy"),
        (FP16, "loss_scaler.update(skipped)", "1.0  # fp16.loss_scale"),
        (FP16, 'state["loss_scaler"] = vars(loss_scaler)', "REFILLED"),
        (FP16 | {"fp16": {"enabled": True, "loss_scale": 128}}, "LOSS_SCALE = 128.0", "loss_scaler"),
        (
            FP16 | {"fp16": {"enabled": True, "auto_cast": True}},
            "model.register_forward_pre_hook(lambda module, inputs: cast_inputs(inputs))",
            "buffer.is_floating_point()",
        ),
        (ZERO3 | AUTOCAST, "REDUCE_DTYPE = torch.bfloat16  # torch_autocast.dtype", "torch.float32"),
        (FP32 | AUTOCAST, "AUTOCAST_DTYPE = torch.bfloat16  # torch_autocast.dtype", "cast_inputs"),
        (FP32 | AUTOCAST, "REDUCE_DTYPE = torch.bfloat16  # torch_autocast.dtype", "PARAM_DTYPE"),
        (FP32 | autocast(lower_precision_safe_modules=[]), "reduce_dtype=torch.float32", "REDUCE_DTYPE"),
        (
            FP32 | autocast(dtype="fp16") | {"gradient_clipping": 0},
            "SCALE_WINDOW = 2000  # torch_autocast.dtype",
            "torch.float16  # communication_data_type",
        ),
        (FP32 | {"gradient_allreduce_op": "mean"}, "fully_shard", "finish"),
        (
            zero(stage=2) | {"gradient_allreduce_op": "sum"},
            "set_force_sum_reduction_for_comms(True)",
            "autocast",
        ),
        (ZERO3 | {"bf16": MASTERS}, "param.data = param.data.to(PARAM_DTYPE)", ".float()"),
        (
            ZERO3 | types(buffer_dtype="fp16"),
            "BUFFER_DTYPE = torch.float16  # data_types.buffer_dtype",
            "re.search",
        ),
        (
            ZERO3 | types(keep_in_fp32_modules=["b*", "a.c"]),
            "torch.float32 if re.search(FP32_BUFFERS, name) else buffer.dtype",
            "BUFFER_DTYPE",
        ),
        (
            ZERO3 | types(keep_in_fp32_modules=["b*", "a.c"], buffer_dtype="bf16"),
            "FP32_BUFFERS = 'a.c|b.*'  # data_types.keep_in_fp32_modules",
            "buffer.dtype",
        ),
        (
            FP32 | {"communication_data_type": "bf16"},
            "REDUCE_DTYPE = torch.bfloat16  # comm",
            "= torch.float32",
        ),
    ],
)
def test_settings_and_their_code(source: dict[str, Any], has: str, lacks: str) -> None:
    result = translate(source)
    assert result.exit_code == 0, result.stderr
    assert has in result.stdout
    assert lacks not in result.stdout


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (zero(stage=3, offload_param=CPU, offload_optimizer=CPU), {"offload_param.device": "exact"}),
        (zero(stage=2, offload_optimizer=CPU), {"offload_optimizer.device": "approximate"}),
        (
            zero(stage=3, offload_optimizer=CPU | {"ratio": 0.5, "buffer_count": 4}),
            {"offload_optimizer.ratio": "approximate", "offload_optimizer.buffer_count": "no-effect"},
        ),
        (
            zero(stage=3, offload_optimizer={"device": "nvme", "nvme_path": "/x", "pin_memory": False}),
            {"offload_optimizer.device": "unsupported", "offload_optimizer.nvme_path": "unsupported"},
        ),
        (zero(stage=3, zero_hpz_partition_size=1), {"zero_hpz_partition_size": "no-effect"}),
        (zero(stage=3, zero_hpz_partition_size=8), {"zero_hpz_partition_size": "close"}),
        (zero(stage=0), {"stage": "approximate"}),
        (zero(stage=0) | {"bf16": {"enabled": False}}, {"stage": "exact"}),
        (ZERO3 | {"zero_optimization": True}, {"stage": "exact"}),
        (ZERO3 | {"zero_optimization": False}, {"stage": "approximate"}),
    ],
)
def test_settings_of_zero_and_their_outcomes(source: dict[str, Any], expected: dict[str, str]) -> None:
    found = outcomes(source)
    assert {key: found[f"zero_optimization.{key}"] for key in expected} == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (zero(stage=0) | FP32_ONLY | AUTOCAST, {"torch_autocast.dtype": "exact"}),
        (
            zero(stage=2) | FP32_ONLY | AUTOCAST,
            {"torch_autocast.dtype": "close", "torch_autocast.enabled": "exact"},
        ),
        (FP32 | AUTOCAST, {"torch_autocast.dtype": "approximate"}),
        (zero(stage=3) | AUTOCAST, {"torch_autocast.dtype": "exact"}),
        (zero(stage=0) | FP32_ONLY | autocast(dtype="fp16"), {"torch_autocast.dtype": "approximate"}),
        (FP32 | autocast(dtype="fp16"), {"torch_autocast.dtype": "unsupported"}),
        (
            ZERO3 | {"bf16": MASTERS},
            {"bf16.bf16_master_weights_and_grads": "close", "bf16.bf16_optimizer_states": "exact"},
        ),
        (FP16 | {"fp16": {"enabled": True, "auto_cast": True}}, {"fp16.auto_cast": "exact"}),
        (FP32 | {"communication_data_type": "bf16"}, {"communication_data_type": "close"}),
        (ZERO3 | {"communication_data_type": "fp16"}, {"communication_data_type": "close"}),
        (FP32 | types(grad_accum_dtype="bf16"), {"data_types.grad_accum_dtype": "close"}),
        (ZERO3 | types(buffer_dtype="fp32"), {"data_types.buffer_dtype": "exact"}),
        (FP32 | {"gradient_allreduce_op": "mean"}, {"gradient_allreduce_op": "exact"}),
        (zero(stage=1) | {"gradient_allreduce_op": "sum"}, {"gradient_allreduce_op": "exact"}),
    ],
)
def test_precisions_and_their_outcomes(source: dict[str, Any], expected: dict[str, str]) -> None:
    found = outcomes(source)
    assert {key: found[key] for key in expected} == expected


def test_the_overall_note_is_that_of_the_coarsest_dtype() -> None:
    source = FP32 | {"communication_data_type": "bf16", "gradient_clipping": 0}
    assert "overall close (bf16: loss within 5e-3" in translate(source).stderr
    assert "overall close (fp32: loss within 2e-6" in translate(FP32).stderr


@pytest.mark.parametrize(
    ("stage", "steps", "reduce", "accumulate", "expected"),
    [
        (1, 2, None, "fp32", ("torch.bfloat16", "exact")),
        (1, 3, None, "fp32", ("torch.float32", "close")),
        (1, 3, None, None, ("torch.bfloat16", "exact")),
        (1, 3, "fp32", "fp32", ("torch.float32", "exact")),
        (1, 3, "fp32", None, ("torch.float32", "close")),
        (2, 3, None, "fp32", ("torch.bfloat16", "exact")),
        (2, 3, None, None, ("torch.bfloat16", "close")),
        (2, 1, None, None, ("torch.bfloat16", "exact")),
        (3, 3, "fp32", "fp32", ("torch.float32", "exact")),
    ],
)
def test_how_gradients_are_added_up(
    stage: int, steps: int, reduce: str | None, accumulate: str | None, expected: tuple[str, str]
) -> None:
    source = zero(stage=stage) | {"gradient_accumulation_steps": steps}
    if reduce:
        source["communication_data_type"] = reduce
    source["data_types"] = {"grad_accum_dtype": accumulate}
    code = translate(source).stdout
    assert (f"REDUCE_DTYPE = {expected[0]} " in code, outcomes(source)["data_types.grad_accum_dtype"]) == (
        True,
        expected[1],
    )


@pytest.mark.parametrize(
    ("stage", "accumulate", "expected"),
    [(3, None, "no-effect"), (2, None, "approximate"), (1, None, "approximate"), (1, "fp32", "no-effect")],
)
def test_overflows_that_deepspeed_does_not_look_for(
    stage: int, accumulate: str | None, expected: str
) -> None:
    source = zero(stage=stage) | {
        "bf16": {"enabled": True, "check_grad_overflow": False},
        "data_types": {"grad_accum_dtype": accumulate},
    }
    assert outcomes(source)["bf16.check_grad_overflow"] == expected


def test_keys_of_loss_scaling() -> None:
    dynamic = {"loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1, "initial_scale_power": 12}
    found = outcomes(FP16 | {"fp16": {"enabled": True, **dynamic}})
    assert {key: found[f"fp16.{key}"] for key in dynamic} == {
        "loss_scale_window": "approximate",
        "hysteresis": "exact",
        "min_loss_scale": "exact",
        "initial_scale_power": "exact",
    }
    static = outcomes(FP16 | {"fp16": {"enabled": True, "loss_scale": 64, **dynamic}})
    assert static["fp16.loss_scale"] == "exact"
    assert {static[f"fp16.{key}"] for key in dynamic} == {"no-effect"}
    off = outcomes(FP16 | {"fp16": {"enabled": False, "loss_scale": 64, **dynamic}})
    assert {off[f"fp16.{key}"] for key in dynamic} == {"no-effect"}
    code = translate(FP16 | {"fp16": {"enabled": True, **dynamic}}).stdout
    assert "LOSS_SCALE = 4096.0  # fp16.initial_scale_power" in code
    assert "SCALE_WINDOW = 500  # fp16.loss_scale_window" in code


@pytest.mark.parametrize("setting", ["lr", "no.such.key=1", "=1", "zero_optimization.nothing=1"])
def test_bad_settings(setting: str) -> None:
    result = translate(ZERO3, "--set", setting)
    assert result.exit_code == 2
    assert "--set" in result.stderr


def test_unsupported_settings_write_no_code() -> None:
    offload = ZERO3 | {
        "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/x"}}
    }
    result = translate(offload, "--report", "report.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert Path("report.json").exists()
    assert "No code was written" in result.stderr
    forced = translate(offload, "--force")
    assert forced.exit_code == 1
    assert "No code was written" not in forced.stderr
    docstring = ast.get_docstring(ast.parse(forced.stdout)) or ""
    assert "zero_optimization.offload_param.device" in docstring
    assert "Trains as DeepSpeed does" not in docstring


def test_blocks_by_name() -> None:
    code = translate(ZERO3, "--blocks", "LlamaDecoderLayer", "--blocks", "Other").stdout
    assert "BLOCK_CLASSES = ('LlamaDecoderLayer', 'Other')  # --blocks" in code
    assert "find_blocks(child)" not in code


def test_a_fixed_world_is_checked() -> None:
    source = ZERO3 | {"train_batch_size": 64}
    assert "WORLD_SIZE = 8" in translate(source).stdout
    assert "WORLD_SIZE" not in translate(ZERO3, "--world-size", "8").stdout


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["--world-size", "4"], "torchrun --nproc-per-node 4 train.py"),
        (["--world-size", "8", "--gpus-per-node", "8"], "torchrun --nproc-per-node 8 train.py"),
        (
            ["--world-size", "16", "--gpus-per-node", "8"],
            "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 train.py",
        ),
        (["--gpus-per-node", "8"], None),
    ],
)
def test_the_docstring_has_the_command_for_known_machines(args: list[str], command: str | None) -> None:
    for style in ("module", "minimal"):
        lines = translate(ZERO3, *args, "--style", style).stdout.splitlines()
        found = [line.strip() for line in lines if "    torchrun" in line]
        assert found == ([command] if command else [])


@pytest.mark.parametrize("style", ["module", "minimal"])
def test_the_docstring_has_the_backends_of_the_process_group(style: str) -> None:
    offload = ZERO3 | {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    assert (
        '    dist.init_process_group("cpu:gloo,cuda:nccl")\n' in translate(offload, "--style", style).stdout
    )
    assert "    dist.init_process_group()\n" in translate(ZERO3, "--style", style).stdout


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (ZERO3 | {"fp16": {"enabled": True}}, "precision-both|DS301"),
        (ZERO3 | {"train_batch_size": 9}, "DS201"),
        (ZERO3 | {"train_micro_batch_size_per_gpu": "2"}, "DS106"),
        ("{", "DS101"),
        ("[]", "DS101"),
        ("", "DS100"),
    ],
)
def test_sources_without_a_clear_meaning(source: dict[str, Any] | str, says: str) -> None:
    result = translate(source, "--report", "report.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert any(code in result.stderr for code in says.split("|"))
    assert not Path("report.json").exists()


@pytest.mark.parametrize(
    "keys",
    [
        {"amp": {"enabled": False}},
        {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "max_grad_norm": 1.0}}},
    ],
)
def test_a_removed_key_stops_nothing(keys: dict[str, Any]) -> None:
    result = translate(ZERO3 | keys)
    assert result.exit_code == 0
    assert "rejected by source" in result.stderr


def test_a_report_that_cannot_be_written() -> None:
    result = translate(ZERO3, "--report", "no/such/folder/report.json")
    assert result.exit_code == 2
    assert "can't write" in result.stderr


def test_a_missing_source() -> None:
    result = CliRunner().invoke(main, ["translate", "nothing.json", "--to", "fsdp2"])
    assert result.exit_code == 2
    assert "DS100" in result.stderr


def test_odd_file_names_stay_in_the_docstring() -> None:
    name = 'a"""; import os; """\\b\nc.json'
    Path(name).write_text(json.dumps(ZERO3), encoding="utf-8")
    result = CliRunner().invoke(main, ["translate", name, "--to", "fsdp2"])
    assert result.exit_code == 0
    module = ast.parse(result.stdout)
    assert not [
        node for node in ast.walk(module) if isinstance(node, ast.Import) and node.names[0].name == "os"
    ]


def test_block_names_are_class_names() -> None:
    result = translate(ZERO3, "--blocks", "Llama Decoder")
    assert result.exit_code == 2
    assert "no class name" in result.stderr


def test_numbers_beyond_a_float_are_code() -> None:
    source = json.dumps(ZERO3 | {"optimizer": {"type": "AdamW", "params": {"lr": 1}}}).replace(
        '"lr": 1', '"lr": 1e999'
    )
    code = translate(source).stdout
    assert 'LR = float("inf")' in code


def test_a_comment_names_the_key_that_gave_the_value() -> None:
    source = (
        {"fp16": {"enabled": False}}
        | ZERO3
        | {"optimizer": {"type": "Adam", "params": {"adam_w_mode": True}}}
    )
    assert "PARAM_DTYPE = torch.bfloat16  # bf16.enabled" in translate(source).stdout
    assert outcomes(source)["fp16.enabled"] == "no-effect"


def test_a_template_is_translated_once_all_of_it_is_said() -> None:
    source = (
        json.dumps(ZERO3)
        .replace('"stage": 3', '"stage": ${STAGE}')
        .replace('_steps": 4', '_steps": "$STEPS"')
    )
    result = translate(source)
    assert (result.exit_code, result.stdout) == (2, "")
    open_ = "gradient_accumulation_steps, zero_optimization.stage"
    assert f"DS118 error: the file leaves {open_} open: say them with --set" in result.stderr
    settings = ["--set", "gradient_accumulation_steps=4", "--set", "zero_optimization.stage=3"]
    assert translate(source, *settings[:2]).exit_code == 2
    filled = translate(source, *settings)
    assert (filled.exit_code, filled.stdout) == (0, translate(ZERO3).stdout)


def test_a_template_may_leave_open_what_changes_nothing() -> None:
    source = json.dumps(ZERO3 | {"steps_per_print": 1, "amp": {"enabled": 2}})
    result = translate(source.replace('_print": 1', '_print": $N').replace('"enabled": 2', '"enabled": $AMP'))
    assert (result.exit_code, result.stdout) == (0, translate(ZERO3).stdout)
    assert 'steps_per_print "$N"' in result.stderr
    assert 'amp {"enabled": "$AMP"}' in result.stderr


def test_what_set_adds_is_in_the_report() -> None:
    found = outcomes(
        ZERO3, "--set", "torch_autocast.enabled=true", "--set", "scheduler.params.total_num_steps=9"
    )
    assert found["scheduler.params.total_num_steps"] == "no-effect"
    assert found["torch_autocast.enabled"] == "unsupported"
    assert translate(ZERO3, "--set", "zero_optimization.zero_quantized_weights=true").exit_code == 1


def test_a_key_in_two_spellings_is_reported_in_both() -> None:
    found = outcomes(ZERO3 | {"bfloat16": {}})
    assert (found["bf16.enabled"], found["bfloat16"]) == ("exact", "no-effect")


def test_an_offload_that_deepspeed_does_not_read_has_no_effect() -> None:
    found = outcomes(zero(stage=2, offload_param=CPU))
    assert {key: found[f"zero_optimization.offload_param.{key}"] for key in CPU} == dict.fromkeys(
        CPU, "no-effect"
    )


def test_below_zero3_deepspeed_takes_cpu_memory_for_nvme() -> None:
    found = outcomes(zero(stage=2, offload_optimizer={"device": "nvme", "nvme_path": "/x"}))
    assert found["zero_optimization.offload_optimizer.device"] == "approximate"
    assert found["zero_optimization.offload_optimizer.nvme_path"] == "no-effect"


def test_hjson_is_translated() -> None:
    result = translate("{\n  train_micro_batch_size_per_gpu: 2\n  zero_optimization: {stage: 3}\n}")
    assert (result.exit_code, "fully_shard(" in result.stdout) == (0, True)
    result = translate('{\n  "prescale_gradients": False,\n  "zero_optimization": {"stage": 3}\n}')
    assert (result.exit_code, "DS101 error" in result.stderr) == (2, True)
