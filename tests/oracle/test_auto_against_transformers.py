"""Which "auto" the real Trainer replaces, and by what."""

from __future__ import annotations

import copy
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from dsconf.config.tables import Spec, spec_at
from dsconf.formats.deepspeed.keys import load_keys

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.oracle

HIDDEN = 64
ARGUMENTS: dict[str, Any] = {
    "world_size": 4,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 5,
    "max_grad_norm": 0.7,
    "learning_rate": 2e-4,
    "adam_beta1": 0.8,
    "adam_beta2": 0.95,
    "adam_epsilon": 1e-7,
    "weight_decay": 0.3,
    "fp16": False,
    "fp16_full_eval": False,
    "bf16": True,
    "bf16_full_eval": False,
    "save_on_each_node": False,
    "optim": "adamw_torch",
    "get_warmup_steps": lambda steps: steps // 10,
}
STEPS = 200
EXPECTED = {
    "train_batch_size": 4 * 3 * 5,
    "train_micro_batch_size_per_gpu": 3,
    "gradient_accumulation_steps": 5,
    "gradient_clipping": 0.7,
    "optimizer.params.lr": 2e-4,
    "optimizer.params.betas": [0.8, 0.95],
    "optimizer.params.eps": 1e-7,
    "optimizer.params.weight_decay": 0.3,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 2e-4,
    "scheduler.params.warmup_num_steps": STEPS // 10,
    "scheduler.params.total_num_steps": STEPS,
    "fp16.enabled": False,
    "bf16.enabled": True,
    "zero_optimization.reduce_bucket_size": HIDDEN**2,
    "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * HIDDEN**2),
    "zero_optimization.stage3_param_persistence_threshold": 10 * HIDDEN,
}
"""What the formulas of the key table come to with these arguments."""
BY_THE_PLUGIN = {
    "zero_optimization.stage",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.offload_param.device",
    "zero_optimization.offload_param.nvme_path",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_optimizer.nvme_path",
    "steps_per_print",
}
"""Filled by Accelerate's DeepSpeedPlugin, which Trainer makes before the keys above are filled."""


def numbers_and_flags(node: Spec | None = None, above: str = "") -> list[str]:
    """The path of every declared key of the sections that "auto" is met in."""
    found = []
    for name, spec in (node or load_keys())["keys"].items():
        path = f"{above}.{name}" if above else name
        if "keys" in spec:
            found += numbers_and_flags(spec, path)
        elif "alias" not in spec and spec.get("status") != "removed":
            found.append(path)
    return found


def put(config: dict[str, Any], path: str, value: object) -> None:
    *above, last = path.split(".")
    for key in above:
        config = config.setdefault(key, {})
    config[last] = value


def get(config: dict[str, Any], path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


def filled(path: str) -> object:
    """What Trainer makes of a config in which only this key is "auto"."""
    module = importlib.import_module("transformers.integrations.deepspeed")
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 3,
        "optimizer": {"type": "AdamW", "params": {}},
        "scheduler": {"type": "WarmupDecayLR", "params": {}},
        "zero_optimization": {"stage": 3},
    }
    put(config, path, "auto")
    holder = module.HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    arguments = SimpleNamespace(**ARGUMENTS)
    holder.trainer_config_process(arguments)
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN))
    holder.trainer_config_finalize(arguments, model, STEPS)
    return get(holder.config, path)


@pytest.mark.parametrize("path", EXPECTED)
def test_trainer_puts_what_the_table_says(path: str) -> None:
    assert "trainer" in spec_at(load_keys(), path)[1]["filled_by"]
    assert filled(path) == EXPECTED[path]


def test_trainer_puts_nothing_elsewhere() -> None:
    """Every other key stays "auto", unless the table says that the plugin fills it."""
    left = [path for path in numbers_and_flags() if path not in EXPECTED and path != "optimizer.type"]
    assert len(left) > 200
    others = [path for path in left if not path.startswith(("optimizer.type", "scheduler.type"))]
    assert not [path for path in others if filled(path) != "auto" and "[]" not in path and "*" not in path]
    table = {path for path in left if "trainer" in spec_at(load_keys(), path)[1].get("filled_by", {})}
    assert table == BY_THE_PLUGIN
