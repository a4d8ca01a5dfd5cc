"""deepspeed.initialize in this one process, and what lint says of the same config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from configs import config_of

from dsconf.config.context import Consumer
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .judge import Config, deepspeed, torch

RULES = load_rules()
BASE: Config = {"train_micro_batch_size_per_gpu": 1}
NO_KERNEL = "This op had not been implemented on CPU backend"
"""What DeepSpeed says of a class that only a GPU can build, when it has accepted all of its arguments."""


def findings(config: Config, consumer: Consumer | None = None) -> list[Finding]:
    """All that lint says."""
    return lint_config(config_of({**BASE, **config}, consumer), RULES).findings


def finding(rule: str, config: Config) -> Finding | None:
    """What lint says by one rule, None where that is silent."""
    found = [each for each in findings(config) if each.rule == rule]
    assert len(found) <= 1
    return found[0] if found else None


def errors(config: Config) -> list[Finding]:
    """The errors that lint has for a config."""
    return [each for each in findings(config) if each.severity == "error"]


def initialize(config: Config, model: Any = None, optimizer: Callable[[Any], Any] | None = None) -> Any:
    """The engine for a model, a small one by default, or the exception; `optimizer` makes one of the script's own."""
    model = torch.nn.Linear(4, 4) if model is None else model
    try:
        return deepspeed.initialize(
            model=model,
            config={**BASE, **config},
            model_parameters=list(model.parameters()),
            optimizer=None if optimizer is None else optimizer(model.parameters()),
        )[0]
    except Exception as error:
        return error


def refused(engine: object) -> bool:
    """Whether deepspeed.initialize raised for the config, and not for want of a GPU."""
    return isinstance(engine, Exception) and NO_KERNEL not in str(engine)
