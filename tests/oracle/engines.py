"""Engines of the real DeepSpeed for a small model on this CPU, and what lint says of the same config."""

from __future__ import annotations

from typing import Any

from configs import config_of

from dsconf.config.context import Context
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .judge import Config, deepspeed, torch

RULES = load_rules()
BASE: Config = {"train_micro_batch_size_per_gpu": 1}


def findings(config: Config, context: Context | None = None) -> list[Finding]:
    """All that lint says."""
    settings = config_of(config)
    if context is not None:
        settings.context = context
    return lint_config(settings, RULES).findings


def finding(rule: str, config: Config) -> Finding | None:
    """What lint says by one rule, None where that is silent."""
    found = [each for each in findings(config) if each.rule == rule]
    assert len(found) <= 1
    return found[0] if found else None


def initialize(config: Config) -> Any:
    """The engine for a small model, or the exception."""
    model = torch.nn.Linear(4, 4)
    try:
        return deepspeed.initialize(
            model=model, config={**BASE, **config}, model_parameters=list(model.parameters())
        )[0]
    except Exception as error:
        return error


def step(engine: Any, value: float = 0.5) -> None:
    """One training step; `value` is the gradient of every weight."""
    dtype = next(engine.module.parameters()).dtype
    engine.backward(engine(torch.full((1, 4), value, dtype=dtype)).sum())
    engine.step()
