"""The cells of the parity matrix: combinations of settings, each of them active, and how close a pair has to be.

Everything here is computed, and the same in every process: the cells from the dimensions by a seeded generator, the
tier of a cell from its settings.  No torch, no DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, islice, product
from random import Random
from typing import Any, Literal, NamedTuple, get_args

from .bench import Config
from .compare import EXACT, Tolerance

Stage = Literal[0, 1, 2, 3]
Precision = Literal["fp32", "bf16", "bf16 sum32", "bf16 all32", "fp16", "fp16 static"]
Optimizer = Literal["AdamW", "Adam", "Adam L2", "SGD", "Adagrad", "RMSprop"]
Scheduler = Literal["warmup", "linear", "decay", "cosine", "cycle", "range"]
Clip = Literal["off", "far", "active", "absent"]
Offload = Literal["none", "optimizer", "both"]
Kernels = Literal["torch", "DeepSpeed"]
Loaded = Literal["float32", "bfloat16"]


class Combination(NamedTuple):
    """The settings of a cell."""

    stage: Stage
    precision: Precision
    """bf16 adds gradients up and reduces them in bf16, as DeepSpeed does by default; `sum32` adds them up in fp32,
    `all32` reduces them in fp32, too.  The loss scale of fp16 is dynamic, or static."""
    accumulation: Literal[1, 3]
    optimizer: Optimizer
    """`Adam` is AdamW to DeepSpeed, `Adam L2` has adam_w_mode false."""
    scheduler: Scheduler
    clip: Clip
    """`far` is a bound that no norm reaches, `absent` DeepSpeed's default."""
    offload: Offload
    kernels: Kernels
    """Whether DeepSpeed runs torch's Adam and F.linear (torch_adam, memory_efficient_linear), or its own."""
    loaded: Loaded
    """The dtype of the model before either side gets it."""

    @property
    def id(self) -> str:
        """A name, unique among all combinations."""
        return " ".join(
            (
                f"stage{self.stage}",
                self.precision.replace(" ", "-"),
                f"gas{self.accumulation}",
                self.optimizer.replace(" ", "-"),
                self.scheduler,
                f"clip-{self.clip}",
                f"offload-{self.offload}",
                self.kernels,
                self.loaded,
            )
        )

    @property
    def half(self) -> bool:
        """Whether the precision section is one of 16 bits."""
        return self.precision != "fp32"


DIMENSIONS: Mapping[str, tuple[Any, ...]] = {
    "stage": get_args(Stage),
    "precision": get_args(Precision),
    "accumulation": (1, 3),
    "optimizer": get_args(Optimizer),
    "scheduler": get_args(Scheduler),
    "clip": get_args(Clip),
    "offload": get_args(Offload),
    "kernels": get_args(Kernels),
    "loaded": get_args(Loaded),
}
"""The values of each setting."""

STEPS = 8
NOT_FINITE = 3
"""The step whose loss is made infinite."""


class Exclusion(NamedTuple):
    """Settings that can't be compared together, and why."""

    settings: Mapping[str, tuple[Any, ...]]
    reason: str


EXCLUSIONS = (
    Exclusion(
        {"stage": (0,), "offload": ("optimizer", "both")},
        "DeepSpeed reads the offload sections with ZeRO only",
    ),
    Exclusion({"stage": (1, 2), "offload": ("both",)}, "DeepSpeed offloads parameters at stage 3 only"),
    Exclusion(
        {"stage": (0,), "precision": ("fp16", "fp16 static")},
        "DeepSpeed does not scale the loss there, and the emitted code does",
    ),
    Exclusion(
        {"stage": (0,), "precision": ("bf16 sum32", "bf16 all32")},
        "without ZeRO DeepSpeed adds gradients up in the dtype of the model only",
    ),
)


def excluded(settings: Mapping[str, Any]) -> str | None:
    """Why some settings, not necessarily all, can't stand together; None if they can."""
    for exclusion in EXCLUSIONS:
        if all(settings.get(name) in values for name, values in exclusion.settings.items()):
            return exclusion.reason
    return None


# ---- the config -------------------------------------------------------------------------------------------------

_OPTIMIZERS: Mapping[Optimizer, tuple[str, Config]] = {
    "AdamW": ("AdamW", {"betas": [0.9, 0.95]}),
    "Adam": ("Adam", {"betas": [0.9, 0.95]}),
    "Adam L2": ("Adam", {"betas": [0.9, 0.95], "adam_w_mode": False}),
    "SGD": ("SGD", {"momentum": 0.9}),
    "Adagrad": ("Adagrad", {}),
    "RMSprop": ("RMSprop", {"momentum": 0.5}),
}
_SCHEDULERS: Mapping[Scheduler, tuple[str, Config]] = {
    "warmup": ("WarmupLR", {"warmup_min_lr": 1e-3, "warmup_max_lr": 1e-2, "warmup_num_steps": 5}),
    "linear": ("WarmupLR", {"warmup_max_lr": 2e-2, "warmup_num_steps": 5, "warmup_type": "linear"}),
    "decay": ("WarmupDecayLR", {"warmup_max_lr": 1e-2, "warmup_num_steps": 3, "total_num_steps": 8}),
    "cosine": ("WarmupCosineLR", {"warmup_num_steps": 3, "total_num_steps": 7, "warmup_min_ratio": 0.1}),
    "cycle": (
        "OneCycle",
        {
            "cycle_min_lr": 1e-3,
            "cycle_max_lr": 2e-2,
            "cycle_first_step_size": 3,
            "cycle_second_step_size": 2,
            "decay_step_size": 1,
            "decay_lr_rate": 0.5,
        },
    ),
    "range": ("LRRangeTest", {"lr_range_test_min_lr": 1e-3, "lr_range_test_step_size": 2}),
}
CLIP_NORMS: Mapping[Clip, float] = {"off": 0.0, "far": 1e9, "active": 0.1, "absent": 1.0}
"""The bounds; that of `absent` is not written."""
_WIDE: Config = {"data_types": {"grad_accum_dtype": "fp32"}}
_SCALED = {"enabled": True, "initial_scale_power": 8}
_PRECISIONS: Mapping[Precision, Config] = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "bf16 sum32": {"bf16": {"enabled": True}, **_WIDE},
    "bf16 all32": {"bf16": {"enabled": True}, **_WIDE, "communication_data_type": "fp32"},
    "fp16": {"fp16": _SCALED},
    "fp16 static": {"fp16": {"enabled": True, "loss_scale": 256}},
}
_CPU = {"device": "cpu"}
_OFFLOADS: Mapping[Offload, Config] = {
    "none": {},
    "optimizer": {"offload_optimizer": _CPU},
    "both": {"offload_optimizer": _CPU, "offload_param": _CPU},
}


def config_of(cell: Combination) -> Config:
    """The DeepSpeed config of a cell; both sides run exactly this."""
    kind, params = _OPTIMIZERS[cell.optimizer]
    params = {"lr": 1e-2, "weight_decay": 0.1, **params}
    zero: Config = {"stage": cell.stage, **_OFFLOADS[cell.offload]}
    config: Config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": cell.accumulation,
        **({} if cell.clip == "absent" else {"gradient_clipping": CLIP_NORMS[cell.clip]}),
        **_PRECISIONS[cell.precision],
        "optimizer": {"type": kind, "params": params},
        "scheduler": dict(zip(("type", "params"), _SCHEDULERS[cell.scheduler], strict=True)),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
    }
    if cell.kernels == "torch":
        if kind in ("Adam", "AdamW"):
            params["torch_adam"] = True
        if cell.stage == 3:
            zero["memory_efficient_linear"] = False
    if cell.offload != "none" and (cell.kernels == "torch" or kind in ("SGD", "RMSprop")):
        config["zero_force_ds_cpu_optimizer"] = False
    return config


def not_finite_at(cell: Combination, older: bool = False) -> int | None:
    """The step with an infinite loss; None where DeepSpeed's training would not go on after it.

    `older` is for OLDER, which skips such a step in fp16 only.
    """
    if older:
        skips = cell.precision.startswith("fp16")
    elif not cell.half:
        skips = cell.stage == 3 or (cell.stage > 0 and cell.loaded == "float32")
    else:
        # What it adds up in fp32 for the CPU, it does not clear after a step that it skips: it skips all others, too.
        kept = cell.offload != "none" and cell.precision in ("bf16 sum32", "bf16 all32")
        skips = not (kept and cell.stage in (1, 2))
    return NOT_FINITE if skips else None


# ---- the tier ---------------------------------------------------------------------------------------------------

Tier = Literal["exact", "clipped", "as-is fp32", "as-is", "no masters", "approximate"]

TIERS: Mapping[Tier, Tolerance] = {
    "exact": EXACT,
    "clipped": Tolerance(loss=2e-6, update=1e-4, norm=1e-6),
    "as-is fp32": Tolerance(loss=2e-6, update=1e-4, norm=1e-5),
    "as-is": Tolerance(loss=5e-3, update=0.05, norm=2e-3),
    "no masters": Tolerance(loss=5e-3, update=2.0, norm=2e-3),
    "approximate": Tolerance(loss=0.25, update=0.6, norm=0.4),
}
"""How close a cell has to be, the closest first."""


def tier_of(cell: Combination, older: bool = False) -> Tier:
    """The tier of a cell: that of its least repeatable setting. `older` is for OLDER, which clips with a bound only."""
    rounds = cell.half or cell.loaded == "bfloat16"
    if cell.stage == 0 and cell.half:
        return "approximate"  # DeepSpeed's optimizer takes a step before the first one
    if cell.stage == 0 and rounds:
        return "no masters"  # DeepSpeed trains the bf16 weights, where small updates are lost
    casts_buffers = older and cell.half and cell.loaded == "float32"
    if casts_buffers or not _sums_alike(cell, older):
        return "as-is"
    if _has_own_kernels(cell):
        return "as-is" if rounds else "as-is fp32"
    if cell.clip == "active" or (cell.clip == "absent" and not older):
        return "as-is" if rounds else "clipped"
    return "exact"


def _sums_alike(cell: Combination, older: bool) -> bool:
    """Whether both sides round the sum of the gradients at the same places."""
    if not cell.half or cell.accumulation == 1:
        return True
    wide = cell.precision in ("bf16 sum32", "bf16 all32")
    if not wide or (older and cell.stage == 2):  # OLDER adds up in bf16 there, whatever is asked for
        return cell.stage == 1
    return cell.stage > 1 or cell.precision == "bf16 all32"


def _has_own_kernels(cell: Combination) -> bool:
    """Whether DeepSpeed computes something of this cell in its own way."""
    if cell.optimizer == "Adagrad" and cell.offload != "none":
        return True  # no setting takes DeepSpeed's away
    adam = cell.optimizer in ("AdamW", "Adam", "Adam L2")
    linear = cell.stage == 3 and (cell.half or cell.loaded == "bfloat16")
    return cell.kernels == "DeepSpeed" and (adam or linear)


OLDER = "0.16.9"
"""A version of DeepSpeed from before the clipping at 1.0."""

OLDER_CELLS = (
    Combination(0, "fp32", 3, "AdamW", "decay", "absent", "none", "torch", "float32"),
    Combination(1, "fp32", 3, "AdamW", "warmup", "absent", "none", "torch", "float32"),
    Combination(1, "bf16", 3, "AdamW", "cosine", "absent", "none", "torch", "bfloat16"),
    Combination(2, "bf16 sum32", 3, "SGD", "decay", "absent", "none", "torch", "float32"),
    Combination(3, "fp32", 3, "AdamW", "cycle", "absent", "none", "torch", "float32"),
    Combination(3, "bf16 sum32", 3, "AdamW", "decay", "absent", "none", "torch", "bfloat16"),
)
"""The cells that it is asked about, too."""

# ---- the covering array -----------------------------------------------------------------------------------------

Target = tuple[tuple[str, Any], ...]
"""Some settings that have to stand together in a cell."""

_SEED = 5
_CANDIDATES = 40


@cache
def ci_cells() -> tuple[Combination, ...]:
    """Cells with every pair of settings, and at every stage what only a few settings together show."""
    return tuple(_covering([*map(_target, _SHARP), *_tuples(2)], ()))


@cache
def cells(count: int) -> tuple[Combination, ...]:
    """The first `count` cells: those of `ci_cells`, then more with triples of settings."""
    first = ci_cells()
    return (*first, *islice(_covering(list(_tuples(3)), first), max(0, count - len(first))))[:count]


_PLAIN = {"precision": "fp32", "loaded": "float32"}
_SHARP: tuple[Mapping[str, Any], ...] = (
    # Every way of adding up gradients, beside nothing else that rounds.
    *(
        {"stage": stage, "precision": precision, "accumulation": steps, "kernels": "torch", "clip": "off"}
        for stage, precision, steps in product(get_args(Stage), get_args(Precision), (1, 3))
    ),
    # Clipping, and DeepSpeed's kernels, where nothing hides them.
    *({"stage": stage, **_PLAIN, "kernels": "torch", "clip": "active"} for stage in get_args(Stage)),
    *({"stage": stage, **_PLAIN, "kernels": "DeepSpeed", "optimizer": "AdamW"} for stage in get_args(Stage)),
)


def _tuples(size: int) -> Iterator[Target]:
    """Every choice of values for every `size` dimensions."""
    for names in combinations(DIMENSIONS, size):
        for values in product(*(DIMENSIONS[name] for name in names)):
            yield _target(dict(zip(names, values, strict=True)))


def _target(settings: Mapping[str, Any]) -> Target:
    return tuple(sorted(settings.items()))


def _covering(targets: Sequence[Target], have: Iterable[Combination]) -> Iterator[Combination]:
    """Cells that hold, together with those that there are, every target that a cell can hold."""
    random = Random(_SEED)
    missing = dict.fromkeys(targets)  # a set that keeps its order
    sizes = {len(target) for target in targets}

    def held(cell: Combination) -> list[Target]:
        settings = sorted(cell._asdict().items())
        return [target for size in sizes for target in combinations(settings, size) if target in missing]

    for cell in have:
        for target in held(cell):
            del missing[target]
    while missing:
        wanted = next(iter(missing))
        candidates = [found for _ in range(_CANDIDATES) if (found := _completed(wanted, random))]
        if not candidates:  # it can't stand in a cell
            del missing[wanted]
            continue
        best = max(candidates, key=lambda each: len(held(each)))
        for target in held(best):
            del missing[target]
        yield best


def _completed(target: Target, random: Random) -> Combination | None:
    """A cell with these settings and others by chance; None where these can't stand together."""
    settings = dict(target)
    if excluded(settings):
        return None
    for name in random.sample(sorted(DIMENSIONS.keys() - settings.keys()), len(DIMENSIONS) - len(settings)):
        fitting = [value for value in DIMENSIONS[name] if not excluded({**settings, name: value})]
        if not fitting:
            return None
        settings[name] = random.choice(fitting)
    return Combination(**settings)
