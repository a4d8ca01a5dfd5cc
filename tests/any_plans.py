"""Plans of any kind, by a seed: what no single source would say together, too."""

from __future__ import annotations

from random import Random
from typing import Any

from dsconf.plan import (
    Batch,
    Checkpoint,
    Clipping,
    Launch,
    Length,
    LossScaling,
    Offload,
    Optimizer,
    Parallelism,
    Plan,
    Precision,
    Sharding,
    TorchSchedule,
    TrainerSchedule,
    Unresolved,
    Warmup,
    Wrapping,
)

OPEN = Unresolved(key="some.key")


def any_plan(seed: int) -> Plan:
    """A Plan whose sizes fit together."""
    return _Drawn(Random(seed)).plan()


class _Drawn:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.one_of: Any = random.choice

    def plan(self) -> Plan:
        tensor, context = self.one_of(((1, 1), (1, 1), (1, 1), (2, 1), (1, 2)))
        copies, shards = self.one_of((1, 1, 2, 4)), self.one_of((2, 4, 8))
        world = copies * shards * context * tensor
        partition = self.one_of(("nothing", "optimizer", "gradients", "parameters", "parameters"))
        sharding = Sharding(
            partition=partition,
            reshard_after_forward=partition == "parameters" and self.one_of((True, True, False, 2)),
            group=shards * context if copies > 1 and partition != "nothing" else None,
            sums_gradients=self.one_of((False, False, True)),
            own_linear=self.one_of((None, True, False)),
        )
        return Plan(
            batch=self._batch(),
            precision=self._precision(),
            sharding=sharding,
            offload=Offload(
                parameters=self.one_of((False, True)),
                optimizer=self.one_of((False, True)),
                pinned=self.one_of((False, True)),
            ),
            optimizer=self._optimizer(),
            schedule=self._schedule(),
            clipping=Clipping(
                max_norm=self.one_of((None, 1.0, OPEN)), skips_not_finite=self.one_of((None, True))
            ),
            wrapping=self._wrapping(),
            parallelism=Parallelism(tensor=tensor, context=context),
            launch=Launch(world_size=world, machines=self.one_of((1, 1, 2))),
            checkpoint=Checkpoint(
                weights=self.one_of((None, "full", "sharded", "local")),
                loads_on_rank_0=self.one_of((None, True, False)),
            ),
            recompute=self.one_of((None, True, False)),
            length=self.one_of((Length(), Length(steps=100), Length(epochs=2))),
        )

    def _batch(self) -> Batch:
        return Batch(micro=self.one_of((None, 4, OPEN)), accumulation=self.one_of((None, 1, 8, OPEN)))

    def _precision(self) -> Precision:
        compute = self.one_of(("fp32", "bf16", "bf16", "fp16", OPEN))
        scaling = None
        if compute == "fp16":
            dynamic = LossScaling(scale=65536.0, window=1000, hysteresis=2, refill=False, minimum=1.0)
            scaling = self.one_of((LossScaling(scale=128.0), dynamic))
        return Precision(
            compute=compute,
            reduce=self.one_of((None, "fp32", "bf16")),
            accumulate=self.one_of((None, "fp32")),
            autocast=self.one_of((None, None, "bf16")),
            masters="bf16" if compute == "bf16" and self.one_of((False, False, True)) else "fp32",
            buffers=self.one_of((None, "fp32", "bf16", OPEN)),
            fp32_buffers=self.one_of(((), ("inv_freq",))),
            scaling=scaling,
            rounded_masters=self.one_of((True, False)),
        )

    def _optimizer(self) -> Optimizer | None:
        arguments = {"lr": self.one_of((1e-3, OPEN)), "betas": (0.9, 0.95), "weight_decay": 0.1}
        name = self.one_of((None, "AdamW", "Lion", "Muon"))
        return None if name is None else Optimizer(name=name, arguments=arguments)

    def _schedule(self) -> Any:
        warmup = Warmup(
            name="WarmupLR", min_lr=0.0, max_lr=OPEN, warmup_steps=100, warmup="log", total_steps=None
        )
        torchs = TorchSchedule(name="StepLR", arguments={"step_size": 10})
        return self.one_of((None, warmup, torchs, TrainerSchedule(name="cosine", warmup_steps=0.1)))

    def _wrapping(self) -> Wrapping:
        blocks: tuple[str, ...] = self.one_of(((), ("LlamaDecoderLayer",), ("T5Block", "T5Stack")))
        kinds = (Wrapping(block_classes=blocks), Wrapping(min_params=10**6), Wrapping(root_only=True))
        kind: Wrapping = self.one_of(kinds)
        update = {
            "separate_ends": self.one_of((True, False)),
            "unused_parameters": self.one_of((False, False, True)),
        }
        return kind.model_copy(update=update)
