"""From a DeepSpeed Config to the Plan, with the outcome of every key that has no place in it."""

from __future__ import annotations

import math

from dsconf.config.derive import facts_of
from dsconf.config.effective import Config
from dsconf.formats.deepspeed.leftover import leftovers
from dsconf.formats.deepspeed.notes import Notes
from dsconf.formats.deepspeed.read_autocast import AUTOCAST_FIELDS, read_autocast
from dsconf.formats.deepspeed.read_clipping import read_clipping
from dsconf.formats.deepspeed.read_optimizer import read_optimizer
from dsconf.formats.deepspeed.read_parallelism import PARALLELISM_FIELDS, read_parallelism
from dsconf.formats.deepspeed.read_precision import PRECISION_FIELDS, read_precision, remark_on_rounding
from dsconf.formats.deepspeed.read_schedule import read_schedule
from dsconf.formats.deepspeed.read_sharding import SHARDING_FIELDS, read_offload, read_sharding
from dsconf.formats.reading import Reading
from dsconf.plan import Batch, Checkpoint, Plan, Unresolved

FIELDS = {
    "train_batch_size": "batch.total",
    "train_micro_batch_size_per_gpu": "batch.micro",
    "gradient_accumulation_steps": "batch.accumulation",
    **PRECISION_FIELDS,
    **AUTOCAST_FIELDS,
    **SHARDING_FIELDS,
    **PARALLELISM_FIELDS,
    "gradient_clipping": "clipping.max_norm",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "checkpoint.weights",
    "optimizer.type": "optimizer.name",
    "scheduler.type": "schedule.name",
}
"""The field of the Plan that each key goes to; arguments of the optimizer and the schedule come later."""


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
            precision=read_autocast(self, read_precision(self)),
            sharding=read_sharding(self),
            offload=read_offload(self),
            optimizer=optimizer,
            schedule=schedule,
            clipping=read_clipping(self),
            parallelism=read_parallelism(self),
            checkpoint=self._checkpoint(),
        )
        remark_on_rounding(self, plan)
        self.items += leftovers(self.config, plan, set(self.fields), self.items)
        told = (self.remarks, self.in_force, self.labels)
        return Reading(plan, self.fields, self.items, *told, "deepspeed", self.config.as_written)

    def _batch(self) -> Batch:
        def size(path: str, fact: str) -> int | Unresolved | None:
            value = self.facts.value(fact)
            if isinstance(value, int | float) and math.isfinite(value) and value == int(value):
                return int(value)
            open_ = self.config.raw(path) == "auto" or self.config.raw("train_batch_size") is not None
            return Unresolved(key=path) if open_ else None

        total = self.config.value("train_batch_size")
        micro = size("train_micro_batch_size_per_gpu", "micro_batch")
        steps = size("gradient_accumulation_steps", "accumulation_steps")
        world = None
        if isinstance(total, int | float) and math.isfinite(total):
            total = int(total)
            if isinstance(micro, int) and isinstance(steps, int):
                world = total // (micro * steps)
        else:
            total = (
                Unresolved(key="train_batch_size") if self.config.raw("train_batch_size") == "auto" else None
            )
        return Batch(micro=micro, accumulation=1 if steps is None else steps, total=total, world_size=world)

    def _checkpoint(self) -> Checkpoint:
        """Whether save_16bit_model gathers whole weights, where they are divided and somebody said it."""
        path = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
        gathers = self.config.value(path) if self.config.present(path) else None
        if self.config.value("zero_optimization.stage") != 3 or not isinstance(gathers, bool):
            self.leave(path)
            return Checkpoint()
        return Checkpoint(weights="full" if gathers else "sharded")
