"""The assembly of modules from parts, on the real parts."""

from __future__ import annotations

import ast
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from dsconf.formats.fsdp2 import emit as emit_module
from dsconf.formats.fsdp2.emit import Alias, Constant, Needed, emit

PARTS = Path(emit_module.__file__).parent / "parts"
FLAGS = {
    "FIXED_WORLD": False,
    "MIXED_PRECISION": True,
    "ANY_PRECISION": False,
    "NAMED_BLOCKS": False,
    "REPLICATED": False,
    "FROZEN_WHOLE": False,
    "OFFLOADED": False,
    "DECAYS": True,
    "LINEAR": False,
    "OWN_MAX_LR": True,
    "CLIPPED": True,
    "COUNTED": False,
    "REDUCED_LAST": False,
    "SCALED": False,
    "DYNAMIC": False,
    "REFILLED": False,
    "LEFT_GATHERED": False,
}
CONSTANTS: dict[str, Constant | Needed | Alias] = {
    "WORLD_SIZE": Constant("8", "a"),
    "PARAM_DTYPE": Constant("torch.bfloat16", "b"),
    "REDUCE_DTYPE": Constant("torch.bfloat16", "c"),
    "BLOCK_CLASSES": Constant("('Block',)", "d"),
    "RESHARD_AFTER_FORWARD": Constant("True", "k"),
    "PIN_MEMORY": Constant("True", "l"),
    "WARMUP_MIN_LR": Constant("0.0", "e"),
    "WARMUP_MAX_LR": Constant("0.1", "f"),
    "WARMUP_STEPS": Constant("10", "g"),
    "TOTAL_STEPS": Constant("100", "h"),
    "GRADIENT_ACCUMULATION_STEPS": Constant("2", "i"),
    "CLIP_NORM": Constant("1.0", "j"),
    "LOSS_SCALE": Constant("128.0", "m"),
    "SCALE_WINDOW": Constant("1000", "n"),
    "HYSTERESIS": Constant("2", "o"),
    "MIN_LOSS_SCALE": Constant("1", "p"),
}
SHARDING = ("sharding", ["find_blocks", "loaded_dtype", "prepare", "frozen", "parallelize"])
SCHEDULER = ("scheduler", ["AbsoluteLR", "build_scheduler"])
LOSS_SCALE = ("loss_scale", ["LossScaler", "loss_scaler"])
STEP = ("step", ["train_step", "evaluate"])


def arguments(code: str, function: str) -> list[str]:
    """The keyword-only parameters of a function of a module."""
    found = [
        node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    return [f"{arg.arg}: {ast.unparse(arg.annotation)}" for arg in found[0].args.kwonlyargs if arg.annotation]


def names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def test_flags_fold_to_their_branch() -> None:
    clipped = emit("x", [STEP], FLAGS, CONSTANTS)
    plain = emit("x", [STEP], FLAGS | {"CLIPPED": False}, CONSTANTS)
    assert "clip_grad_norm_" in clipped
    assert "get_total_norm" not in clipped
    assert "get_total_norm" in plain
    assert "CLIP_NORM" not in plain
    assert not names(clipped + plain) & set(FLAGS)


def test_constants_carry_their_source_and_only_used_ones_appear() -> None:
    code = emit("x", [STEP], FLAGS, CONSTANTS)
    assert "CLIP_NORM = 1.0  # j\n" in code
    assert "WARMUP" not in code


def test_a_needed_constant_becomes_a_parameter() -> None:
    code = emit("x", [STEP], FLAGS, CONSTANTS | {"CLIP_NORM": Needed("float")})
    assert arguments(code, "train_step") == ["clip_norm: float"]
    assert arguments(code, "evaluate") == []
    assert "    loss_fn: Callable[[nn.Module, Any], torch.Tensor],\n    *,\n    clip_norm: float,\n" in code
    assert "CLIP_NORM" not in code


def test_a_parameter_is_handed_down_through_calls() -> None:
    code = emit("x", [SHARDING], FLAGS, CONSTANTS | {"PARAM_DTYPE": Needed("torch.dtype")})
    assert arguments(code, "prepare") == ["param_dtype: torch.dtype"]
    assert arguments(code, "parallelize") == ["param_dtype: torch.dtype"]
    assert arguments(code, "find_blocks") == []
    assert "prepare(module, device, param_dtype=param_dtype)" in code


def test_nested_functions_close_over_the_parameter() -> None:
    code = emit(
        "x", [SCHEDULER], FLAGS, CONSTANTS | {"WARMUP_STEPS": Needed("int"), "TOTAL_STEPS": Needed("int")}
    )
    assert arguments(code, "build_scheduler") == ["warmup_steps: int", "total_steps: int"]
    assert "(total_steps - step)" in code


def test_an_alias_stands_for_the_other_constant() -> None:
    code = emit("x", [SHARDING], FLAGS, CONSTANTS | {"REDUCE_DTYPE": Alias("PARAM_DTYPE")})
    assert "reduce_dtype=PARAM_DTYPE" in code
    assert "REDUCE_DTYPE" not in code


def test_an_argument_of_a_flag_is_there_or_left_out() -> None:
    plain = emit("x", [SHARDING], FLAGS, CONSTANTS)
    assert "offload" not in plain
    assert "            mp_policy=policy,\n            reshard_after_forward" in plain
    offloaded = emit("x", [SHARDING], FLAGS | {"OFFLOADED": True}, CONSTANTS)
    assert "            offload_policy=offload,\n" in offloaded
    assert "OffloadPolicy()" not in offloaded


def test_a_part_may_use_a_variable_of_another() -> None:
    code = emit("x", [LOSS_SCALE, STEP], FLAGS | {"SCALED": True, "DYNAMIC": True}, CONSTANTS)
    assert "\n\n\nloss_scaler = LossScaler()\n\n\n" in code
    assert "dsconf" not in code


def test_an_unknown_function_is_an_error() -> None:
    with pytest.raises(KeyError):
        emit("x", [("step", ["no_such_function"])], FLAGS, CONSTANTS)


def test_every_combination_of_flags_is_clean_code(tmp_path: Path) -> None:
    """Compiles, and ruff finds no unused import, undefined name or unsorted import in any of them."""
    checkpoint = ("checkpoint", ["save_checkpoint", "load_checkpoint", "full_state_dict"])
    number = 0
    for part, wanted in (SHARDING, SCHEDULER, STEP, LOSS_SCALE, checkpoint):
        text = (PARTS / f"{part}.py").read_text(encoding="utf-8")
        own = [flag for flag in FLAGS if flag in text]
        for values in product((False, True), repeat=len(own)):
            flags = FLAGS | dict(zip(own, values, strict=True))
            wrong = "loaded_dtype" if flags["MIXED_PRECISION"] else ""
            chosen = [
                name for name in wanted if name not in (wrong, "" if flags["FROZEN_WHOLE"] else "frozen")
            ]
            scaler = [LOSS_SCALE] if flags["DYNAMIC"] and part != "loss_scale" else []
            code = emit("x", [*scaler, (part, chosen)], flags, CONSTANTS)
            compile(code, "module", "exec")
            assert not names(code) & set(FLAGS)
            (tmp_path / f"m{number}.py").write_text(code, encoding="utf-8")
            number += 1
    assert number == 2**7 + 2**3 + 2**6 + 2 + 2
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--extend-select",
        "I,UP,B",
        "--target-version",
    ]
    done = subprocess.run([*ruff, "py310", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
