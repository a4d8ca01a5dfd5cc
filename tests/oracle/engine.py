"""deepspeed.initialize in this one process, its first steps, and what lint says of the same config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from configs import config_of

from dsconf.config.context import Consumer, Context
from dsconf.lint.engine import lint_config
from dsconf.lint.finding import Finding
from dsconf.lint.index import load_rules

from .judge import Config, deepspeed, torch

RULES = load_rules()
BASE: Config = {"train_micro_batch_size_per_gpu": 1}
TORCH_ADAM: Config = {"type": "AdamW", "params": {"torch_adam": True}}
"""An optimizer that needs none of DeepSpeed's compiled operators."""
NO_KERNEL = "This op had not been implemented on CPU backend"
"""What DeepSpeed says of a class that only a GPU can build, when it has accepted all of its arguments."""
CPU: Config = {"device": "cpu", "pin_memory": False}


def findings(config: Config, context: Context | None = None) -> list[Finding]:
    """All that lint says."""
    settings = config_of({**BASE, **config})
    if context is not None:
        settings.context = context
    return lint_config(settings, RULES).findings


def finding(
    rule: str, config: Config, consumer: Consumer | None = None, world_size: int = 1
) -> Finding | None:
    """What lint says by one rule, None where that is silent."""
    result = lint_config(config_of({**BASE, **config}, consumer, world_size), RULES)
    found = [each for each in result.findings if each.rule == rule]
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


def step(engine: Any) -> Exception | None:
    """One optimizer step (of one micro batch), or the exception."""
    try:
        weights = next(engine.module.parameters())
        engine.backward(engine(torch.ones(1, 4, dtype=weights.dtype)).float().sum())
        engine.step()
    except Exception as error:
        return error
    return None


def train_step(engine: Any, value: float = 0.5) -> None:
    """One training step; `value` is the gradient of every weight. Raises what DeepSpeed does."""
    dtype = next(engine.module.parameters()).dtype
    engine.backward(engine(torch.full((1, 4), value, dtype=dtype)).sum())
    engine.step()


def moment(config: Config) -> tuple[str | None, str]:
    """When a run over one step breaks, and with which words; None where it does not."""
    engine = initialize(config)
    if isinstance(engine, Exception):
        return "init", str(engine)
    error = step(engine)
    return ("step", str(error)) if error else (None, "")


def refused(engine: object) -> bool:
    """Whether deepspeed.initialize raised for the config, and not for want of a GPU."""
    return isinstance(engine, Exception) and NO_KERNEL not in str(engine)
