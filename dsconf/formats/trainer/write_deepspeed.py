"""From a DeepSpeed config to training arguments with it: inline, or by the name of its file."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from dsconf.document.node import UNKNOWN
from dsconf.formats.outcome import Landing, Outcome
from dsconf.formats.trainer.file import NEEDS, land_launch, text_of
from dsconf.formats.training.draft import Draft
from dsconf.formats.training.write_optimizer import write_optimizer
from dsconf.formats.training.write_schedule import write_end, write_length, write_schedule
from dsconf.formats.writing import Request, Writing
from dsconf.formats.yaml_lines import Line
from dsconf.plan import Plan, TrainerSchedule, Unresolved

_MATCHED = {
    "optimizer.params.lr": ("learning_rate", "optimizer.lr"),
    "optimizer.params.eps": ("adam_epsilon", "optimizer.eps"),
    "optimizer.params.weight_decay": ("weight_decay", "optimizer.weight_decay"),
    "gradient_clipping": ("max_grad_norm", "clipping.max_norm"),
    "scheduler.params.warmup_num_steps": ("warmup_steps", "schedule.warmup_steps"),
    "scheduler.params.total_num_steps": ("max_steps", "schedule.total_steps"),
}
"""Keys that Trainer compares with one argument, and stops where they differ: the argument, and the field of both."""
_RATE, _PEAK = "optimizer.params.lr", "scheduler.params.warmup_max_lr"
_ZERO, _STEPS = "zero_optimization", "gradient_accumulation_steps"
_MICRO, _TOTAL = "train_micro_batch_size_per_gpu", "train_batch_size"
_GATHER = "stage3_gather_16bit_weights_on_model_save"
_OVERWRITTEN = (
    f"{_PEAK} sets the rate from the first step on: {_RATE} is the same, since Trainer compares both"
)


def write_deepspeed(
    plan: Plan,
    request: Request,
    settings: Mapping[str, Any],
    landings: Mapping[str, Landing],
    path: str | None = None,
) -> Writing:
    """Write the YAML of training arguments under which DeepSpeed trains as `settings` say.

    `landings` are what became of the Plan in these; `path` is the file that holds them already, which is kept where
    Trainer takes it as it is. An optimizer or a schedule that is Trainer's own is said by arguments, not in there.
    """
    return _Writer(plan, request, settings, landings).run(path)


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without what a template leaves open: what is left of that changes no training."""
    return {
        key: _known(value) if isinstance(value, Mapping) else copy.deepcopy(value)
        for key, value in settings.items()
        if value is not UNKNOWN
    }


def _meant(text: str) -> object:
    """A number, or a word for true or false, which DeepSpeed reads in text, and Trainer does not."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


class _Writer(Draft):
    def __init__(
        self, plan: Plan, request: Request, settings: Mapping[str, Any], landings: Mapping[str, Landing]
    ) -> None:
        super().__init__(plan, request.labels)
        self.request = request
        self.source = settings
        self.config: dict[str, Any] = _known(settings)
        self.landings = dict(landings)

    def run(self, path: str | None) -> Writing:
        before = dict(self.source)
        self._complete()
        self._own_optimizer()
        self._own_schedule()
        self._one_rate()
        self._batch()
        for key, (argument, field) in _MATCHED.items():
            self._match(key, argument, field)
        write_length(self)
        self._betas()
        self._precision()
        if self.plan.recompute is not None:
            self.set("activation_checkpointing", self.plan.recompute, "recompute")
        land_launch(self)
        label = self.request.labels.get("sharding.partition", "")
        kept = path is not None and before == self.config
        if not kept:
            self._gathers()
            self._leaves_out()
        value: object = path if kept else self.config
        text = text_of(self, self.request, [Line("deepspeed", value, label)], self._left())
        return Writing(text, self.landings, NEEDS)

    def _left(self) -> list[str]:
        """The arguments of which nothing is said, where Trainer makes the optimizer or the schedule of them."""
        parts = {"learning_rate": "optimizer", "optim": "optimizer", "lr_scheduler_type": "scheduler"}
        return [name for name in self.unsaid if name in parts and parts[name] not in self.config]

    def _at(self, key: str) -> Any:
        found: Any = self.config
        for name in key.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _complete(self) -> None:
        """What DeepSpeed has by default or derives, and Trainer wants to see; and words for true and false as such."""
        self.config.setdefault(_ZERO, {"stage": 0})
        if not {_MICRO, _TOTAL} & self.config.keys():
            self.config[_MICRO] = "auto" if self.plan.batch.micro is None else self.plan.batch.micro
        steps = self.plan.batch.accumulation
        if _STEPS not in self.config and isinstance(steps, int) and steps != 1:
            self.config[_STEPS] = steps
        elif _STEPS not in self.config and steps is None:
            self.config[_STEPS] = "auto"
        for path in (*_MATCHED, _PEAK, "bf16.enabled", "fp16.enabled"):
            above, _, name = path.rpartition(".")
            section = self._at(above) if above else self.config
            if isinstance(section, dict) and isinstance(section.get(name), str):
                section[name] = _meant(section[name])

    def _gathers(self) -> None:
        """At stage 3 Trainer can save a model only if its weights are gathered."""
        section = self.config.get(_ZERO)
        if not isinstance(section, dict) or section.get("stage") != 3 or section.get(_GATHER) is True:
            return
        section[_GATHER] = True
        kept = self.plan.checkpoint.weights in (None, "full")
        note = "else Trainer saves no model, only the shards of the ranks"
        outcome: Outcome = "exact" if kept else "approximate"
        self.landings["checkpoint.weights"] = Landing(outcome, f"{_GATHER}: true", note)

    def _leaves_out(self) -> None:
        """What does nothing at this stage."""
        section = self.config.get(_ZERO)
        if isinstance(section, dict) and section.get("stage") in (0, 1, 2):
            section.pop("offload_param", None)

    # ---- what is Trainer's own -----------------------------------------------------------------------

    def _own_optimizer(self) -> None:
        """AdamW that spares norms, which no optimizer of a DeepSpeed config does."""
        optimizer = self.plan.optimizer
        if optimizer is None or not optimizer.spares_norms:
            return
        self.config.pop("optimizer", None)
        write_optimizer(self)
        if self.plan.offload.optimizer:
            self.config["zero_force_ds_cpu_optimizer"] = False

    def _own_schedule(self) -> None:
        if isinstance(self.plan.schedule, TrainerSchedule):
            self.config.pop("scheduler", None)
            write_schedule(self)
        elif "scheduler" not in self.config and self.plan.schedule is None:
            write_schedule(self)

    def _one_rate(self) -> None:
        """Make the rates of optimizer and schedule one: Trainer compares both with the same argument."""
        rate, peak = self._at(_RATE), self._at(_PEAK)
        if peak is None or peak == "auto":
            return
        if rate is not None and rate not in ("auto", peak):
            self.config["optimizer"]["params"]["lr"] = peak
            self.landings["optimizer.lr"] = Landing("no-effect", f"learning_rate: {peak}", _OVERWRITTEN)
        self.put("learning_rate", peak, "schedule.max_lr")

    # ---- what Trainer compares -----------------------------------------------------------------------

    def _batch(self) -> None:
        micro, steps = self._at(_MICRO), self._at(_STEPS)
        total, world = self._at(_TOTAL), self.plan.world
        micro = self.plan.batch.micro if micro in (None, "auto") else micro
        steps = self.plan.batch.accumulation if steps in (None, "auto") else steps
        steps = 1 if steps is None else steps
        if micro is None and isinstance(total, int):
            fits = world is not None and isinstance(steps, int) and total % (world * steps) == 0
            micro = total // (world * steps) if world and isinstance(steps, int) and fits else None
            if micro is None:
                micro = Unresolved(key=_MICRO)
        if micro is not None:
            self._said("per_device_train_batch_size", micro, "batch.micro")
        self._said("gradient_accumulation_steps", steps, "batch.accumulation")
        if isinstance(total, int) and isinstance(micro, int):
            ranks = total // (micro * steps) if isinstance(steps, int) and steps else None
            action = f"start it on {ranks} GPUs" if ranks else None
            target = "per_device_train_batch_size x gradient_accumulation_steps x GPUs"
            self.landings["batch.total"] = Landing("exact", target, "", action)

    def _match(self, key: str, argument: str, field: str) -> None:
        value = self._at(key)
        if value is None:
            return
        if value == "auto" and argument == "max_steps":
            write_end(self, Unresolved(key=key))
        elif value == "auto":
            self._said(argument, Unresolved(key=key), field)
        elif isinstance(value, int | float) and argument not in self.settings:
            self._said(argument, value, field)

    def _said(self, argument: str, value: object, field: str) -> None:
        """Write an argument that the DeepSpeed config has, too; its landing stays as good as it was there."""
        before = self.landings.get(field)
        if isinstance(value, Unresolved):
            if self.name(argument) not in self.settings:
                self.leave_open(argument, value, field)
            return
        target = self.put(argument, value, field)
        self.landings[field] = Landing("exact", target) if before is None else before._replace(target=target)

    def _betas(self) -> None:
        betas = self._at("optimizer.params.betas")
        if betas == "auto":
            for argument in ("adam_beta1", "adam_beta2"):
                self._said(argument, Unresolved(key="optimizer.params.betas"), "optimizer.betas")
        elif isinstance(betas, list | tuple) and len(betas) == 2:
            for argument, beta in zip(("adam_beta1", "adam_beta2"), betas, strict=True):
                self._said(argument, beta, "optimizer.betas")

    def _precision(self) -> None:
        for word in ("bf16", "fp16"):
            on = self._at(f"{word}.enabled")
            if on == "auto":
                self._said(word, Unresolved(key=f"{word}.enabled"), "precision.compute")
            elif on is True:
                self._said(word, True, "precision.compute")
