"""What the parity tests are made of: a base config, what may vary of it, and cases from emitted modules."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dsconf.config.context import Context
from dsconf.formats.choices import Numerics
from dsconf.translate.report import Report
from dsconf.translate.run import Translation, translate

from .compare import Tolerance
from .run import Case

NEEDS_DEEPSPEED = [
    pytest.mark.parity,
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs the extra verify"),
]

Config = dict[str, Any]
Edits = Mapping[str, str]
Translator = Callable[[str], Translation]
"""What makes a module of the path of a config."""

STEPS = 8
LLAMA = Path(__file__).parent / "llama.py"
ACTIVE_CLIP = Tolerance(loss=2e-6, update=1e-4, norm=1e-6)
AS_IS = {
    "fp32": Tolerance(loss=2e-6, update=1e-4, norm=1e-5),
    "bf16": Tolerance(loss=5e-3, update=0.05, norm=2e-3),
}
"""What the report of a translation says of an overall outcome "close"."""


TORCH_ADAMW = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1, "torch_adam": True}}
CLIPPED = {"gradient_clipping": 0.1}
USUAL: Config = {"gradient_clipping": 1.0, "data_types": {}}


def config(precision: str, steps: int, **changes: Any) -> Config:
    """ZeRO-3 with everything in motion: weight decay, a changing lr, an odd number of micro batches."""
    base: Config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": steps,
        "gradient_clipping": 1000.0,
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-2, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        },
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "warmup_min_lr": 1e-3,
                "warmup_max_lr": 1e-2,
                "warmup_num_steps": 4,
                "total_num_steps": 12,
            },
        },
        "zero_optimization": {"stage": 3},
    }
    if precision == "bf16":
        base["bf16"] = {"enabled": True}
        base["data_types"] = {"grad_accum_dtype": "fp32"}
    return base | deepcopy(changes)


def without(source: Config, key: str) -> Config:
    """A copy of a config without one key."""
    return {name: value for name, value in source.items() if name != key}


class Bench:
    """Translates configs into a folder and makes cases of them."""

    def __init__(
        self, folder: Path, context: Context | None = None, translation: Translator | None = None
    ) -> None:
        self.folder = folder
        self.context = context or Context()
        self.translation = translation
        self.reports: dict[str, Report] = {}

    @property
    def overall(self) -> dict[str, str]:
        """The overall outcome of each report."""
        return {name: report.overall for name, report in self.reports.items()}

    def emit(
        self, name: str, source: Config, edits: Edits, tail: str, numerics: Numerics = "deepspeed"
    ) -> Path:
        """Write the module of `source`, changed by `edits`, each of which has to apply exactly once."""
        stem = name.replace(" ", "-").replace("/", "-")
        origin = self.folder / f"{stem}.json"
        origin.write_text(json.dumps(source), encoding="utf-8")
        if self.translation is None:
            done = translate(str(origin), "fsdp2", self.context, {}, (), numerics=numerics)
        else:
            done = self.translation(str(origin))
        assert done.report.supported, [item for item in done.report.items if item.outcome == "unsupported"]
        self.reports[name] = done.report
        code = done.text
        for old, new in edits.items():
            assert code.count(old) == 1, f"{name}: {old!r} stands {code.count(old)} times in the module"
            code = code.replace(old, new)
        module = self.folder / f"{stem}.py"
        module.write_text(code + tail.replace("FOLDER", str(self.folder)), encoding="utf-8")
        return module

    def case(
        self,
        name: str,
        run: Config,
        source: Config | None = None,
        edits: Edits | None = None,
        tail: str = "",
        numerics: Numerics = "deepspeed",
        **settings: Any,
    ) -> Case:
        """A case that trains `run` with DeepSpeed, against the module of `source` (the same, if not given)."""
        module = self.emit(name, source or run, edits or {}, tail, numerics)
        return Case(id=name, config=run, module=module, **{"steps": STEPS, "exact": True, **settings})


RESUMED = """

_train_step, _done = train_step, []


def train_step(model, optimizer, scheduler, micro_batches, loss_fn):
    if len(_done) == 4:
        save_checkpoint("FOLDER/checkpoint", model, optimizer, scheduler, step=4)
        with torch.no_grad():
            for param in model.parameters():
                param.zero_()
                for state in optimizer.state[param].values():
                    state.fill_(7)
        scheduler.last_epoch = 0
        optimizer.param_groups[0]["lr"] = 123.0
        assert load_checkpoint("FOLDER/checkpoint", model, optimizer, scheduler) == 4
    _done.append(True)
    return _train_step(model, optimizer, scheduler, micro_batches, loss_fn)
"""

EVALUATED = """

_train_step = train_step


def train_step(model, optimizer, scheduler, micro_batches, loss_fn):
    losses = evaluate(model, micro_batches, loss_fn)
    result = _train_step(model, optimizer, scheduler, micro_batches, loss_fn)
    assert torch.equal(torch.stack(losses), torch.stack(result["losses"]))
    assert model.training
    return result
"""
