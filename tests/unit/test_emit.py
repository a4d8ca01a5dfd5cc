"""The assembly of modules from parts, on the real parts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from dsconf.formats.fsdp2 import emit as emit_module
from dsconf.formats.fsdp2.emit import Alias, Constant, Needed, Omitted, emit

PARTS = Path(emit_module.__file__).parent / "parts"
FLAGS = {
    "FIXED_WORLD": False,
    "MIXED_PRECISION": True,
    "ANY_PRECISION": False,
    "NAMED_BLOCKS": False,
    "REPLICATED": False,
    "GROUPED": False,
    "FROZEN_WHOLE": False,
    "ROUNDED_MASTERS": True,
    "SEPARATE_ENDS": False,
    "OFFLOADED": False,
    "WIDE_MASTERS": True,
    "FINISHED": False,
    "AUTOCAST": False,
    "INPUTS_CAST": False,
    "BUFFERS_CAST": False,
    "BUFFERS_KEPT": False,
    "SUMMED": False,
    "UNUSED_PARAMETERS": False,
    "TENSOR_PARALLEL": False,
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
    "STAIRS": False,
    "LR_DECAYS": True,
    "MOVES_MOMENTUM": True,
    "MOMENTUM_DECAYS": True,
    "STAIRCASE": True,
    "SIGN_BIT": True,
    "DECOUPLED": True,
    "SIZED_BLOCKS": False,
    "ROOT_ONLY": False,
    "RECOMPUTED": False,
    "UNITS_CAST": False,
    "ROOT_CASTS": False,
    "SKIPS": True,
    "WARMED_UP": True,
    "FALLS": True,
    "COSINE": False,
}
CONSTANTS: dict[str, Constant | Needed | Alias | Omitted] = {
    "WORLD_SIZE": Constant("8", "a"),
    "PARAM_DTYPE": Constant("torch.bfloat16", "b"),
    "REDUCE_DTYPE": Constant("torch.bfloat16", "c"),
    "BLOCK_CLASSES": Constant("('Block',)", "d"),
    "GROUP_SIZE": Constant("1", "q"),
    "MIN_PARAMS": Constant("1000", "w"),
    "AUTOCAST_DTYPE": Constant("torch.bfloat16", "r"),
    "BUFFER_DTYPE": Constant("torch.bfloat16", "s"),
    "FP32_BUFFERS": Constant("'router'", "t"),
    "RESHARD_AFTER_FORWARD": Constant("True", "k"),
    "PIN_MEMORY": Constant("True", "l"),
    "TENSOR_SIZE": Constant("2", "t"),
    "BLOCK_STYLES": Constant('{\n    "up": ColwiseParallel(),\n}', "u"),
    "ROOT_STYLES": Constant("{}", "v"),
    "FOREACH": Omitted(),
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
    **{
        name: Constant("1.0", "k")
        for name in (
            *("LR", "BETAS", "EPS", "WEIGHT_DECAY", "MIN_LR", "MAX_LR", "FIRST_STEPS", "SECOND_STEPS"),
            *("FIRST_STAIRS", "SECOND_STAIRS", "DECAY_STEPS", "DECAY_RATE", "MIN_MOMENTUM", "MAX_MOMENTUM"),
            *(
                "MOMENTUM_DECAY_RATE",
                "INTERVAL",
                "RATE",
                "MUON_LR",
                "ADAM_LR",
                "MOMENTUM",
                "WARMUP_MIN_RATIO",
                "COS_MIN_RATIO",
            ),
        )
    },
}
ABSOLUTE = ("absolute_lr", ["AbsoluteLR"])
SCHEDULER = ("warmup", ["build_scheduler"])
CYCLE = ("one_cycle", ["CycledMomentum", "build_scheduler"])
COSINE = ("warmup_cosine", ["build_scheduler"])
RANGE = ("range_test", ["build_scheduler"])
LION = ("lion", ["Lion", "build_optimizer"])
MUON = ("muon", ["MuonAndAdam", "build_optimizer"])
UNCORRECTED = ("uncorrected_adam", ["UncorrectedAdam", "build_optimizer"])
TRAINER = ("trainer_schedule", ["build_scheduler"])
SHARDING = (
    "sharding",
    ["find_blocks", "find_units", "recomputed", "loaded_dtype", "prepare", "frozen", "parallelize"],
)
FINISH = ("finish", ["cast_inputs", "finish"])
TENSOR = ("tensor_parallel", ["meshes", "gradient_norm"])
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
    code = emit("x", [SHARDING], FLAGS, CONSTANTS | {"REDUCE_DTYPE": Alias("torch.float32")})
    assert "reduce_dtype=torch.float32" in code


def test_an_argument_of_a_flag_is_there_or_left_out() -> None:
    plain = emit("x", [SHARDING], FLAGS, CONSTANTS)
    assert "offload" not in plain
    assert "            mp_policy=policy,\n            reshard_after_forward" in plain
    offloaded = emit("x", [SHARDING], FLAGS | {"OFFLOADED": True}, CONSTANTS)
    assert "            offload_policy=offload,\n" in offloaded
    assert "OffloadPolicy()" not in offloaded


def test_a_loop_over_one_of_two() -> None:
    assert "for module in [*find_blocks(model), model]:" in emit("x", [SHARDING], FLAGS, CONSTANTS)
    code = emit("x", [SHARDING], FLAGS | {"SEPARATE_ENDS": True}, CONSTANTS)
    assert "for module in [*find_units(model), model]:" in code


def test_a_part_may_use_a_variable_of_another() -> None:
    code = emit("x", [LOSS_SCALE, STEP], FLAGS | {"SCALED": True, "DYNAMIC": True}, CONSTANTS)
    assert "\n\n\nloss_scaler = LossScaler()\n\n\n" in code
    assert "dsconf" not in code


def test_an_omitted_argument_is_left_out() -> None:
    omitted: dict[str, Constant | Needed | Alias | Omitted] = {
        name: Omitted() for name in ("AMSGRAD", "MAXIMIZE", "FUSED")
    }
    constants = CONSTANTS | omitted | {"adamw": Alias("build_optimizer")}
    code = emit("x", [("optimizer", ["build_optimizer"])], FLAGS, constants)
    assert "AdamW(params, lr=LR, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY)" in code
    constants |= {"FUSED": Constant("True", "l"), "AMSGRAD": Constant("True", "l")}
    code = emit("x", [("optimizer", ["build_optimizer"])], FLAGS, constants)
    assert "        amsgrad=AMSGRAD,\n        fused=FUSED,\n    )\n" in code
    assert "MAXIMIZE" not in code


def test_parts_that_use_each_other_do_not_import_dsconf() -> None:
    assert "dsconf" not in emit("x", [ABSOLUTE, SCHEDULER], FLAGS, CONSTANTS)


def test_an_unknown_function_is_an_error() -> None:
    with pytest.raises(KeyError):
        emit("x", [("step", ["no_such_function"])], FLAGS, CONSTANTS)


NEEDS = {
    "ANY_PRECISION": "MIXED_PRECISION",
    "ROUNDED_MASTERS": "MIXED_PRECISION",
    "REPLICATED": "FROZEN_WHOLE",
    "UNITS_CAST": "MIXED_PRECISION",
    "ROOT_CASTS": "MIXED_PRECISION",
}
"""Flags that are on only where another one is."""


APART = (
    {"NAMED_BLOCKS", "SIZED_BLOCKS", "ROOT_ONLY"},
    {"ROOT_ONLY", "RECOMPUTED", "SEPARATE_ENDS"},
    {"UNITS_CAST", "ROOT_CASTS"},
)
"""Flags of which at most one is on."""


def possible(flags: dict[str, bool]) -> bool:
    """Whether the writer can set these flags together."""
    needed = all(flags[above] for flag, above in NEEDS.items() if flags[flag])
    needed = needed and all(sum(flags[flag] for flag in group) <= 1 for group in APART)
    needed = needed and (flags["WIDE_MASTERS"] or flags["ROUNDED_MASTERS"])
    if flags["GROUPED"] and (flags["FROZEN_WHOLE"] or flags["TENSOR_PARALLEL"]):  # ZeRO-3's MiCS
        return False
    if flags["TENSOR_PARALLEL"] and (flags["SIZED_BLOCKS"] or flags["ROOT_ONLY"]):
        return False
    return needed and not (flags["SEPARATE_ENDS"] and (flags["FROZEN_WHOLE"] or flags["TENSOR_PARALLEL"]))


def is_tried(flags: dict[str, bool]) -> bool:
    """Leaves out combinations of flags that have nothing to do with each other."""
    units = any(
        flags[flag] for flag in ("SIZED_BLOCKS", "ROOT_ONLY", "RECOMPUTED", "UNITS_CAST", "ROOT_CASTS")
    )
    if units and (flags["FIXED_WORLD"] or flags["ANY_PRECISION"] or flags["OFFLOADED"]):
        return False
    if flags["RECOMPUTED"] and flags["TENSOR_PARALLEL"]:
        return not (flags["NAMED_BLOCKS"] or flags["FINISHED"] or flags["UNITS_CAST"] or flags["ROOT_CASTS"])
    apart = units or flags["FIXED_WORLD"] or flags["NAMED_BLOCKS"] or flags["SCALED"]
    apart = apart or not flags["WIDE_MASTERS"]
    return not apart or not (flags["FINISHED"] or flags["TENSOR_PARALLEL"] or flags["GROUPED"])


TRIED = {
    **{"sharding": 584, "finish": 63, "step": 192, "warmup": 8, "one_cycle": 16, "trainer_schedule": 8},
    **dict.fromkeys(("warmup_cosine", "range_test", "lion", "uncorrected_adam", "muon", "loss_scale"), 2),
    "checkpoint": 2,
}
"""Combinations, by part."""


def test_every_combination_of_flags_is_clean_code(tmp_path: Path) -> None:
    """Compiles, and ruff finds no unused import, undefined name or unsorted import in any of them."""
    checkpoint = ("checkpoint", ["save_checkpoint", "load_checkpoint", "full_state_dict"])
    tried: Counter[str] = Counter()
    parts = (
        *(SHARDING, FINISH, SCHEDULER, CYCLE, COSINE, RANGE, TRAINER, LION, UNCORRECTED, MUON),
        *(STEP, LOSS_SCALE, checkpoint),
    )
    for part, wanted in parts:
        text = (PARTS / f"{part}.py").read_text(encoding="utf-8")
        own = [flag for flag in FLAGS if re.search(rf"\bif {flag}\b", text)]
        for values in product((False, True), repeat=len(own)):
            flags = FLAGS | dict(zip(own, values, strict=True))
            if not is_tried(flags) or (part == "sharding" and not possible(flags)):
                continue
            if part == "finish" and not any(values):  # it has nothing to do then
                continue
            dropped = {
                "cast_inputs": not flags["INPUTS_CAST"],
                "loaded_dtype": flags["MIXED_PRECISION"],
                "find_units": not flags["SEPARATE_ENDS"],
                "find_blocks": flags["ROOT_ONLY"],
                "recomputed": not flags["RECOMPUTED"],
                "frozen": not flags["FROZEN_WHOLE"],
                "CycledMomentum": not flags["MOVES_MOMENTUM"],
            }
            chosen = [name for name in wanted if not dropped.get(name)]
            above = [ABSOLUTE] if "AbsoluteLR" in text else []
            above += [LOSS_SCALE] if flags["DYNAMIC"] and part != "loss_scale" else []
            above += [FINISH] if flags["FINISHED"] and part != "finish" else []
            above += [TENSOR] if flags["TENSOR_PARALLEL"] else []
            code = emit("x", [*above, (part, chosen)], flags, CONSTANTS)
            compile(code, "module", "exec")
            assert not names(code) & set(FLAGS)
            (tmp_path / f"{part}{tried[part]}.py").write_text(code, encoding="utf-8")
            tried[part] += 1
    assert tried == TRIED
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
