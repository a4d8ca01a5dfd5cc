"""From a DeepSpeed Config to the Plan, with the outcome of every key that has no place in it."""

from __future__ import annotations

from typing import Any, Literal

from dsconf.config.derive import facts_of
from dsconf.config.dtypes import short_name
from dsconf.config.effective import Config
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.fate import NVME
from dsconf.formats.deepspeed.leftover import leftovers
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.plan import (
    Batch,
    Clipping,
    LossScaling,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Schedule,
    Sharding,
    Unresolved,
)

FIELDS = {
    "train_batch_size": "batch.total",
    "train_micro_batch_size_per_gpu": "batch.micro",
    "gradient_accumulation_steps": "batch.accumulation",
    "bf16.enabled": "precision.compute",
    "fp16.enabled": "precision.compute",
    "communication_data_type": "precision.reduce",
    "data_types.grad_accum_dtype": "precision.accumulate",
    "fp16.loss_scale": "precision.scaling",
    "fp16.initial_scale_power": "precision.scaling.scale",
    "fp16.loss_scale_window": "precision.scaling.window",
    "fp16.hysteresis": "precision.scaling.hysteresis",
    "fp16.consecutive_hysteresis": "precision.scaling.refill",
    "fp16.min_loss_scale": "precision.scaling.minimum",
    "zero_optimization.stage": "sharding.partition",
    "zero_optimization.zero_hpz_partition_size": "sharding.reshard_after_forward",
    "zero_optimization.offload_param.device": "offload.parameters",
    "zero_optimization.offload_param.pin_memory": "offload.pinned",
    "zero_optimization.offload_optimizer.device": "offload.optimizer",
    "zero_optimization.offload_optimizer.pin_memory": "offload.pinned",
    "zero_optimization.cpu_offload": "offload.optimizer",
    "zero_optimization.cpu_offload_param": "offload.parameters",
    "gradient_clipping": "clipping.max_norm",
    "optimizer.type": "optimizer.name",
    "optimizer.params.adam_w_mode": "optimizer.name",
    "optimizer.params.lr": "optimizer.lr",
    "optimizer.params.betas": "optimizer.betas",
    "optimizer.params.eps": "optimizer.eps",
    "optimizer.params.weight_decay": "optimizer.weight_decay",
    "scheduler.type": "schedule.name",
    "scheduler.params.warmup_min_lr": "schedule.min_lr",
    "scheduler.params.warmup_max_lr": "schedule.max_lr",
    "scheduler.params.warmup_num_steps": "schedule.warmup_steps",
    "scheduler.params.warmup_type": "schedule.warmup",
    "scheduler.params.total_num_steps": "schedule.total_steps",
}
"""The field of the Plan that each key goes to."""

_NOT_FINITE = (
    "a step whose norm is not finite is left out, where DeepSpeed would take it and have NaN for its weights"
)
_SCALING = tuple(key for key, field in FIELDS.items() if field.startswith("precision.scaling"))
_Partition = Literal["nothing", "optimizer", "gradients", "parameters"]
_PARTITIONS: tuple[_Partition, ...] = ("nothing", "optimizer", "gradients", "parameters")


def read(config: Config) -> Reading:
    """Read a Config that lint has no error for.

    Unsupported settings are items of the Reading, not exceptions: their fields keep the Plan's defaults.
    """
    return _Reader(config).run()


class _Reader:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.facts = facts_of(config)
        self.items: list[Item] = []
        self.remarks: dict[str, Remark] = {}
        self.in_force: dict[str, Default] = {}
        self.unused: set[str] = set()
        """Keys that act only beside others."""

    def run(self) -> Reading:
        optimizer, schedule = self._optimizer(), self._schedule()
        plan = Plan(
            batch=self._batch(),
            precision=self._precision(),
            sharding=self._sharding(),
            offload=self._offload(),
            optimizer=optimizer,
            schedule=schedule,
            clipping=self._clipping(),
        )
        self._remark_on_rounding(plan)
        fields = {key: field for key, field in FIELDS.items() if key not in self.unused}
        self.items += leftovers(self.config, plan, set(fields), self.items)
        return Reading(plan, fields, self.items, self.remarks, self.in_force)

    def _value(self, path: str) -> Any:
        """The effective value; Unresolved where it is left open ("auto", or missing without a default)."""
        value = self.config.value(path)
        return Unresolved(key=path) if value is UNKNOWN else value

    def _or_default(self, path: str, default: object) -> Any:
        """The value, or a default that changes training and depends on other keys."""
        if self.config.present(path) or default is UNKNOWN:
            return self._value(path)
        self.in_force[path] = Default(default, "DeepSpeed's default")
        return default

    def _unsupported(self, path: str, note: str, action: str | None = None) -> None:
        written = self.config.present(path)
        value = self.config.raw(path) if written else self.config.value(path)
        value = None if value is UNKNOWN else value
        self.items.append(Item(path, value, "unsupported", note=note, action=action, written=written))

    def _batch(self) -> Batch:
        def size(path: str, fact: str) -> int | Unresolved | None:
            value = self.facts.value(fact)
            if isinstance(value, int | float) and value == int(value):
                return int(value)
            open_ = self.config.raw(path) == "auto" or self.config.raw("train_batch_size") is not None
            return Unresolved(key=path) if open_ else None

        total = self.config.value("train_batch_size")
        micro = size("train_micro_batch_size_per_gpu", "micro_batch")
        steps = size("gradient_accumulation_steps", "accumulation_steps")
        world = None
        if isinstance(total, int | float):
            total = int(total)
            if isinstance(micro, int) and isinstance(steps, int):
                world = total // (micro * steps)
        else:
            total = (
                Unresolved(key="train_batch_size") if self.config.raw("train_batch_size") == "auto" else None
            )
        return Batch(micro=micro, accumulation=1 if steps is None else steps, total=total, world_size=world)

    def _precision(self) -> Precision:
        compute: Any = self.facts.value("precision")
        if compute is UNKNOWN:
            open_ = "bf16.enabled" if self.config.raw("bf16.enabled") == "auto" else "fp16.enabled"
            compute = Unresolved(key=open_)
        if self.config.present("fp16.enabled") and self.config.value("fp16.enabled") is False:
            raw = self.config.raw("fp16.enabled")
            self.items.append(Item("fp16.enabled", raw, "no-effect", note="it is off"))
        if compute == "bf16":
            self._overflow_check()
        scaling = self._scaling() if compute == "fp16" else None
        if scaling is None:
            self.unused.update(_SCALING)
        reduce = self._dtype("communication_data_type", compute)
        accumulate = self._dtype("data_types.grad_accum_dtype", compute)
        return Precision(compute=compute, reduce=reduce, accumulate=accumulate, scaling=scaling)

    def _overflow_check(self) -> None:
        path = "bf16.check_grad_overflow"
        looks_anyway = self.facts.value("zero_optimizer") in ("stage3", "bf16")
        if self.config.present(path) and self.config.value(path) is False and not looks_anyway:
            self.items.append(Item(path, self.config.raw(path), "approximate", note=_NOT_FINITE))

    def _scaling(self) -> LossScaling | None:
        values: list[Any] = [self.config.value(path) for path in _SCALING]
        static, *dynamic = values
        if UNKNOWN in values:
            self._unsupported("fp16.enabled", "the loss scale is left open", "--set fp16.loss_scale=0")
            return None
        if static > 0:
            self.unused.update(_SCALING[1:])
            return LossScaling(scale=static)
        for path in _SCALING:
            if not self.config.present(path):
                self.in_force[path] = Default(self.config.value(path), "DeepSpeed's default")
        power, window, hysteresis, refill, minimum = dynamic
        return LossScaling(
            scale=2.0**power, window=window, hysteresis=hysteresis, refill=refill, minimum=minimum
        )

    def _dtype(self, path: str, compute: object) -> Any:
        """A dtype of gradients: as the parameters, or fp32; None where it is not written."""
        value = self.config.value(path)
        if not isinstance(value, str):
            return None
        value = short_name(value)
        if value == "fp32" or value == compute:
            return value
        self._unsupported(path, f"{value} gradients of other than {value} parameters are not translated yet")
        return None

    def _sharding(self) -> Sharding:
        path, group = "zero_optimization.stage", "zero_optimization.zero_hpz_partition_size"
        stage, ranks = self.config.value(path), self.config.value(group)
        whole = self.config.raw("zero_optimization")
        if isinstance(whole, bool):
            stage, note = int(whole), f"it means stage {int(whole)}"
            self.items.append(Item("zero_optimization", whole, "exact", note=note))
            self.in_force[path] = Default(stage, "of zero_optimization")
        elif not isinstance(stage, int):
            self._unsupported(path, "the stage is not known", f"--set {path}=3 translates it as ZeRO-3")
            stage = 0
        elif not self.config.present(path):
            self.in_force[path] = Default(int(stage), "DeepSpeed's default")
        if stage == 0 and path not in {item.key for item in self.items}:
            self._remark_on_stage_0()
        partition = _PARTITIONS[int(stage)]
        if stage != 3 or not isinstance(ranks, int) or ranks <= 1:
            self.unused.add(group)
            return Sharding(partition=partition, reshard_after_forward=stage == 3)
        return Sharding(partition=partition, reshard_after_forward=ranks)

    def _remark_on_stage_0(self) -> None:
        """Without ZeRO, DeepSpeed's 16-bit optimizers have faults that the emitted code does not repeat."""
        path, precision = "zero_optimization.stage", self.facts.value("precision")
        if precision == "fp16":
            note = (
                "DeepSpeed 0.19.8 does not scale the loss at stage 0, but divides the gradients by the scale"
            )
            self._unsupported(path, note, f"--set {path}=1 trains as fp16 is meant to")
        elif precision == "fp32":
            self.remarks[path] = Remark("exact", _NOT_FINITE)
        else:
            note = (
                "DeepSpeed's optimizer takes a step with zero gradients before the first one: weights decay once, and "
                "Adam's bias correction is a step ahead (loss within 0.05 over 8 steps of the test model)"
            )
            self.remarks[path] = Remark("approximate", note)

    def _offload(self) -> Offload:
        def on(section: str, older: str) -> bool:
            prefix = f"zero_optimization.offload_{section}."
            device, flag = self.config.value(f"{prefix}device"), f"zero_optimization.{older}"
            if self.config.value(flag) is True:
                device = "cpu"
            else:
                self.unused.add(flag)
            # At stages 1 and 2 DeepSpeed itself takes CPU memory for "nvme".
            if device == "nvme" and (section == "param" or self.config.value("zero_optimization.stage") == 3):
                self._unsupported(f"{prefix}device", NVME, f"--set {prefix}device=cpu offloads to CPU memory")
            elif device in ("cpu", "nvme"):
                return True
            self.unused.update((f"{prefix}device", f"{prefix}pin_memory"))
            return False

        def pinned(section: str) -> bool:
            return self.config.value(f"zero_optimization.offload_{section}.pin_memory") is True

        parameters, optimizer = on("param", "cpu_offload_param"), on("optimizer", "cpu_offload")
        return Offload(
            parameters=parameters,
            optimizer=optimizer,
            pinned=(parameters and pinned("param")) or (optimizer and pinned("optimizer")),
        )

    def _clipping(self) -> Clipping:
        path = "gradient_clipping"
        norm = self._value(path)
        if not self.config.present(path) and isinstance(norm, int | float) and norm > 0:
            self.in_force[path] = Default(
                norm, "DeepSpeed's default since 0.19.3; before that nothing was clipped"
            )
        if isinstance(norm, int | float):
            norm = float(norm) if norm > 0 else None
        return Clipping(max_norm=norm)

    def _optimizer(self) -> Optimizer | None:
        name = self.config.value("optimizer.type")
        if name is UNKNOWN or name is None:
            return None
        lowered = str(name).lower()
        if lowered not in ("adam", "adamw"):
            self._unsupported("optimizer.type", f"{name} is not translated yet: Adam and AdamW are")
            return None
        if lowered == "adam":
            if self.config.value("optimizer.params.adam_w_mode") is False:
                self._unsupported(
                    "optimizer.params.adam_w_mode", "Adam with L2 regularisation is not translated yet"
                )
            self.remarks["optimizer.type"] = Remark(
                "exact", "DeepSpeed's Adam is AdamW unless adam_w_mode is false"
            )
        torch_adam = str(self.facts.value("optimizer_class")).startswith("torch.")
        betas = self._value("optimizer.params.betas")
        if isinstance(betas, list):
            good = len(betas) == 2 and all(isinstance(beta, int | float) for beta in betas)
            betas = tuple(betas) if good else Unresolved(key="optimizer.params.betas")
        if not torch_adam:
            note = "DeepSpeed's own Adam kernel rounds differently from torch.optim.AdamW"
            known = self.remarks.get("optimizer.type")
            self.remarks["optimizer.type"] = Remark("close", f"{known.note}; {note}" if known else note)
        return Optimizer(
            name="AdamW",
            lr=self._or_default("optimizer.params.lr", self.facts.value("learning_rate")),
            betas=betas,
            eps=self._value("optimizer.params.eps"),
            weight_decay=self._or_default("optimizer.params.weight_decay", self.facts.value("weight_decay")),
        )

    def _schedule(self) -> Schedule | None:
        name = self.config.value("scheduler.type")
        if name is UNKNOWN or name is None:
            return None
        if name not in ("WarmupLR", "WarmupDecayLR"):
            self._unsupported(
                "scheduler.type", f"{name} is not translated yet: WarmupLR and WarmupDecayLR are"
            )
            return None
        prefix = "scheduler.params."
        for key in ("warmup_min_lr", "warmup_max_lr"):
            if isinstance(self.config.value(prefix + key), list):
                self._unsupported(prefix + key, "one rate per parameter group is not translated yet")
                return None
        decays = name == "WarmupDecayLR"
        peak = self._value(f"{prefix}warmup_max_lr")
        if not self.config.present(f"{prefix}warmup_max_lr") and (decays or peak is not None):
            peak = 0.001
            note = f"{name}'s default, whatever the lr of the optimizer"
            self.in_force[f"{prefix}warmup_max_lr"] = Default(peak, note)
        return Schedule(
            name=name,
            min_lr=self._value(f"{prefix}warmup_min_lr"),
            max_lr=peak,
            warmup_steps=self._value(f"{prefix}warmup_num_steps"),
            warmup="linear" if self.config.raw(f"{prefix}warmup_type") == "linear" else "log",
            total_steps=self._total_steps(decays),
        )

    def _total_steps(self, decays: bool) -> Any:
        path = "scheduler.params.total_num_steps"
        if not decays:
            if self.config.present(path):
                note = "WarmupLR does not take it: deepspeed.initialize raises TypeError"
                self.items.append(
                    Item(path, self.config.raw(path), "rejected-by-source", note=note, action="remove it")
                )
            return None
        value = self._value(path)
        if value is None:
            value = Unresolved(key=path)
        if not self.config.present(path):
            self.in_force[path] = Default(None, "missing: WarmupDecayLR can't be built without it")
        return value

    def _remark_on_rounding(self, plan: Plan) -> None:
        """Roundings that DeepSpeed has and no PyTorch code repeats; figures are bounds that the parity runs hold."""
        compute = plan.precision.compute if isinstance(plan.precision.compute, str) else "bf16"
        if compute == "fp32":
            return
        path = "zero_optimization.memory_efficient_linear"
        if plan.sharding.partition == "parameters" and self.config.value(path) is not False:
            written = self.config.present(path)
            note = f"DeepSpeed replaces F.linear by a version that rounds once more in {compute}"
            self.items.append(Item(path, True, "close", note=note, written=written))
        path = "data_types.grad_accum_dtype"
        if plan.precision.accumulate is None and not self.config.present(path):
            self.in_force[path] = Default(None, "DeepSpeed's default is the dtype of the model")
