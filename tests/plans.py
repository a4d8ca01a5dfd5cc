"""Plans by chance, for tests: every field that a writer may find filled, and fields of two Plans that differ."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from dsconf.plan import (
    OPTIMIZERS,
    Batch,
    Checkpoint,
    Clipping,
    Launch,
    Length,
    LossScaling,
    Momentum,
    Offload,
    OneCycle,
    Optimizer,
    Parallelism,
    Plan,
    Precision,
    RangeTest,
    Schedule,
    Sharding,
    TorchSchedule,
    TrainerSchedule,
    Unresolved,
    Warmup,
    WarmupCosine,
    Wrapping,
)


class Difference(NamedTuple):
    """A field in which two Plans differ."""

    field: str
    """As landings call it: the arguments of an optimizer and of a schedule stand beside their name."""
    one: object
    other: object


def differences(one: Plan, other: Plan) -> list[Difference]:
    """The fields in which two Plans differ."""
    found = _leaves("", one.model_dump(), other.model_dump())
    return [Difference(field.replace(".arguments.", "."), *values) for field, *values in found]


def effective(plan: Plan) -> Plan:
    """The same Plan with its defaults written out: what means the same is the same."""
    precision, sharding, optimizer = plan.precision, plan.sharding, plan.optimizer
    dtypes = {
        "reduce": precision.reduce or precision.compute,
        "accumulate": precision.accumulate or precision.compute,
        "moments": precision.moments or precision.masters,
    }
    known = {name: dtype for name, dtype in dtypes.items() if not isinstance(dtype, Unresolved)}
    if sharding.partition != "parameters":
        sharding = sharding.model_copy(update={"own_linear": None})
    if optimizer is not None:
        on = {name: value for name, value in optimizer.arguments.items() if value is not False}
        optimizer = optimizer.model_copy(update={"arguments": on})
    update = {
        "precision": precision.model_copy(update=known),
        "sharding": sharding,
        "optimizer": optimizer,
    }
    return plan.model_copy(update=update)


def _leaves(path: str, one: object, other: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys([*one, *other]):
            yield from _leaves(f"{path}.{name}".lstrip("."), one.get(name), other.get(name))
    elif one != other and path.rpartition(".")[2] != "key":  # what is open has another name in each format
        yield path, one, other


def random_plan(random: Random) -> Plan:
    """A Plan that some code could have: its fields may stand together, whether DeepSpeed has them all or not."""
    partition: Any = random.choice(("nothing", "optimizer", "gradients", "parameters"))
    whole = partition != "parameters"
    precision = _precision(random, partition)
    autocast = precision.autocast == "fp16"
    own_linear = None if whole else random.choice((None, True, False))
    return Plan(
        batch=Batch(micro=random.choice((1, 4)), accumulation=random.choice((1, 3))),
        precision=precision,
        sharding=Sharding(
            partition=partition,
            reshard_after_forward=False if whole else random.choice((True, True, 2)),
            group=random.choice((None, None, None, 2)),
            sums_gradients=random.random() < 0.2,
            own_linear=own_linear,
            keeps_gathered=own_linear is False and random.random() < 0.5,
        ),
        offload=random.choice(
            (
                Offload(),
                Offload(optimizer=True, pinned=random.random() < 0.5),
                Offload(parameters=True, optimizer=True, pinned=random.random() < 0.5),
            )
        ),
        optimizer=_optimizer(random),
        schedule=_schedule(random),
        clipping=Clipping(
            max_norm=None if autocast else random.choice((None, 0.5, 1.0)),
            skips_not_finite=random.choice((None, True, False)),
        ),
        wrapping=random.choice((Wrapping(), Wrapping(block_classes=("Block",)), Wrapping(min_params=10**6))),
        parallelism=random.choice((Parallelism(), Parallelism(), Parallelism(tensor=2))),
        launch=random.choice((Launch(), Launch(world_size=8, gpus_per_node=4, machines=2))),
        checkpoint=random.choice((Checkpoint(), Checkpoint(weights="full"), Checkpoint(weights="sharded"))),
        recompute=random.choice((None, True, False)),
        length=random.choice((Length(), Length(steps=100), Length(epochs=2))),
    )


def _precision(random: Random, partition: str) -> Precision:
    kind: Any = random.choice(("fp32", "bf16", "bf16", "fp16", "autocast", "narrow"))
    if kind == "autocast":
        dtype: Any = random.choice(("bf16", "fp16"))
        scaling = (
            LossScaling(scale=65536.0, window=2000, hysteresis=1, refill=False, minimum=1.0)
            if dtype == "fp16"
            else None
        )
        reduce: Any = random.choice(("fp32", dtype))
        return Precision(autocast=dtype, reduce=reduce, scaling=scaling)
    if kind == "narrow":
        wide: tuple[Any, ...] = (None, "fp32")
        return Precision(compute="bf16", masters="bf16", moments=random.choice(wide))
    if kind == "fp16":
        dynamic = LossScaling(
            scale=2.0 ** random.randint(4, 16),
            window=random.choice((100, 1000)),
            hysteresis=random.choice((1, 2)),
            refill=random.random() < 0.5,
            minimum=1.0,
        )
        scaling = random.choice((dynamic, LossScaling(scale=128.0)))
        return Precision(compute="fp16", scaling=scaling, casts_inputs=random.random() < 0.5)
    dtypes: tuple[Any, ...] = (None, "fp32", "bf16")
    return Precision(
        compute=kind,
        reduce=random.choice(dtypes),
        accumulate=random.choice(dtypes),
        units_cast=random.choice(("none", "model", "all")) if kind == "bf16" else "none",
        buffers=random.choice(dtypes) if kind == "bf16" else None,
        fp32_buffers=random.choice(((), ("rotary",))) if kind == "bf16" else (),
        rounded_masters=kind == "fp32" or random.random() < 0.5,
        steps_before=kind == "bf16" and partition == "nothing" and random.random() < 0.3,
    )


def _optimizer(random: Random) -> Optimizer | None:
    values: dict[str, Any] = {
        "lr": 1e-3,
        "betas": (0.9, 0.95),
        "eps": 1e-7,
        "weight_decay": 0.1,
        "momentum": 0.9,
        "alpha": 0.9,
        "rho": 0.8,
    }
    name = random.choice((None, "AdamW", "AdamW", "Adam", *OPTIMIZERS))
    if name is None:
        return None
    arguments = {argument: values[argument] for argument in OPTIMIZERS[name] if argument in values}
    kernel = name in ("AdamW", "Adam") and random.random() < 0.5
    return Optimizer(
        name=name,
        arguments=arguments,
        own_kernel=kernel or name in ("Lion", "Muon"),
        spares_norms=random.random() < 0.2,
        bias_correction=not (kernel and random.random() < 0.2),
    )


def _schedule(random: Random) -> Schedule | None:
    shape: Any = random.choice(("log", "linear"))
    peak = random.choice((None, 1e-3, 2e-3))
    stairs = random.choice((0, 3))
    momentum = random.choice((None, Momentum(low=0.85, high=0.95, decay=0.1)))
    schedules: tuple[Schedule | None, ...] = (
        None,
        Warmup(name="WarmupLR", min_lr=0.0, max_lr=peak, warmup_steps=10, warmup=shape),
        Warmup(
            name="WarmupDecayLR", min_lr=1e-5, max_lr=peak, warmup_steps=10, warmup=shape, total_steps=100
        ),
        WarmupCosine(min_ratio=0.1, final_ratio=0.01, warmup_steps=10, warmup=shape, total_steps=100),
        OneCycle(
            min_lr=1e-4,
            max_lr=1e-3,
            first_steps=10,
            second_steps=random.choice((10, 20)),
            first_stairs=stairs,
            second_stairs=random.choice((0, 2)),
            decay_steps=random.choice((0, 5)),
            decay=0.5,
            momentum=momentum,
        ),
        RangeTest(min_lr=1e-5, interval=5, rate=2.0, staircase=random.random() < 0.5),
        TorchSchedule(name="StepLR", arguments={"step_size": 3, "gamma": 0.5}),
        TrainerSchedule(name="cosine", warmup_steps=10, total_steps=100),
    )
    return random.choice(schedules)
