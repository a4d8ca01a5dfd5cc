"""From a DeepSpeed Config to the Plan, with the outcome of every key that has no place in it."""

from __future__ import annotations

from typing import Any, Literal

from dsconf.config.derive import facts_of
from dsconf.config.dtypes import short_name
from dsconf.config.effective import Config
from dsconf.document.node import UNKNOWN
from dsconf.formats.deepspeed.fate import FATES
from dsconf.formats.deepspeed.leftover import leftovers
from dsconf.formats.deepspeed.notes import Notes
from dsconf.formats.deepspeed.read_optimizer import read_optimizer
from dsconf.formats.deepspeed.read_schedule import read_schedule
from dsconf.formats.outcome import Item
from dsconf.formats.reading import Default, Reading, Remark
from dsconf.plan import Batch, Clipping, Plan, Precision, Sharding, Unresolved

FIELDS = {
    "train_batch_size": "batch.total",
    "train_micro_batch_size_per_gpu": "batch.micro",
    "gradient_accumulation_steps": "batch.accumulation",
    "bf16.enabled": "precision.compute",
    "fp16.enabled": "precision.compute",
    "communication_data_type": "precision.reduce",
    "data_types.grad_accum_dtype": "precision.accumulate",
    "zero_optimization.stage": "sharding.partition",
    "gradient_clipping": "clipping.max_norm",
    "optimizer.type": "optimizer.name",
    "scheduler.type": "schedule.name",
}
"""The field of the Plan that each key goes to; arguments of the optimizer and the schedule come later."""

_Partition = Literal["nothing", "optimizer", "gradients", "parameters"]
_FP16 = FATES["fp16.enabled"].note
_PARTITIONS: tuple[_Partition, ...] = ("nothing", "optimizer", "gradients", "parameters")


def read(config: Config) -> Reading:
    """Read a Config that lint has no error for.

    Unsupported settings are items of the Reading, not exceptions: their fields keep the Plan's defaults.
    """
    return _Reader(config, facts_of(config), FIELDS).run()


class _Reader(Notes):
    def run(self) -> Reading:
        optimizer = read_optimizer(self)
        schedule = read_schedule(self, optimizer)
        plan = Plan(
            batch=self._batch(),
            precision=self._precision(),
            sharding=self._sharding(),
            optimizer=optimizer,
            schedule=schedule,
            clipping=self._clipping(),
        )
        self._remark_on_rounding(plan)
        self.items += leftovers(self.config, plan, set(self.fields), self.items)
        return Reading(plan, self.fields, self.items, self.remarks, self.in_force)

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
        if compute == "fp16":
            self.unsupported("fp16.enabled", _FP16)
            compute = "fp32"
        if self.config.present("fp16.enabled") and self.config.value("fp16.enabled") is False:
            raw = self.config.raw("fp16.enabled")
            self.items.append(Item("fp16.enabled", raw, "no-effect", note="it is off"))
        reduce = self._dtype("communication_data_type", compute)
        accumulate = self._dtype("data_types.grad_accum_dtype", compute)
        return Precision(compute=compute, reduce=reduce, accumulate=accumulate)

    def _dtype(self, path: str, compute: object) -> Any:
        """A dtype of gradients: as the parameters, or fp32; None where it is not written."""
        value = self.config.value(path)
        if not isinstance(value, str):
            return None
        value = short_name(value)
        if value == "fp32" or value == compute:
            return value
        self.unsupported(path, f"{value} gradients of other than {value} parameters are not translated yet")
        return None

    def _sharding(self) -> Sharding:
        stage = self.config.value("zero_optimization.stage")
        if self.config.raw("zero_optimization") is True:
            stage = 1
        if stage == 3 and not isinstance(stage, bool):
            return Sharding(partition="parameters")
        if not isinstance(stage, int):
            note, stage = "the stage is not known", 0
        else:
            note = f"stage {int(stage)} is not translated yet: only stage 3 is"
        self.unsupported(
            "zero_optimization.stage", note, "--set zero_optimization.stage=3 translates it as ZeRO-3"
        )
        return Sharding(partition=_PARTITIONS[int(stage)])

    def _clipping(self) -> Clipping:
        path = "gradient_clipping"
        norm = self.value(path)
        if not self.config.present(path) and isinstance(norm, int | float) and norm > 0:
            self.in_force[path] = Default(
                norm, "DeepSpeed's default since 0.19.3; before that nothing was clipped"
            )
        if isinstance(norm, int | float):
            norm = float(norm) if norm > 0 else None
        return Clipping(max_norm=norm)

    def _remark_on_rounding(self, plan: Plan) -> None:
        """Roundings that DeepSpeed has and no PyTorch code repeats; figures are bounds that the parity runs hold."""
        if plan.precision.compute == "fp32":
            return
        path = "zero_optimization.memory_efficient_linear"
        if plan.sharding.partition == "parameters" and self.config.value(path) is not False:
            written = self.config.present(path)
            note = "DeepSpeed replaces F.linear by a version that rounds once more in bf16"
            self.items.append(Item(path, True, "close", note=note, written=written))
        steps = plan.batch.accumulation
        if steps != 1 and plan.precision.accumulate != "fp32":
            path = "data_types.grad_accum_dtype"
            note = "DeepSpeed adds up the gradients of the micro batches in bf16; FSDP2 does it in fp32"
            self.remarks[path] = Remark("close", note)
            if not self.config.present(path):
                self.in_force[path] = Default(None, "DeepSpeed's default is the dtype of the model")
