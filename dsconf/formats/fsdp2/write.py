"""From the Plan to an FSDP2 module, with the outcome of every field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dsconf.formats.fsdp2.emit import Alias, Constant, Needed, emit
from dsconf.formats.outcome import Landing
from dsconf.plan import Optimizer, Plan, Schedule, Unresolved

TORCH = "2.9"
"""The oldest torch on which the parity runs hold (2.9.1, on gloo; 2.7.1 sums gradients there instead of averaging)."""

_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}
_BACKENDS = "cpu:gloo,cuda:nccl"
_ONCE = "weights are gathered once per optimizer step"
_TRAFFIC = {
    "nothing": "gradients are reduced on the last micro batch only",
    "optimizer": f"{_ONCE}, gradients reduced on the last micro batch only",
    "gradients": f"{_ONCE}, gradients reduced on each micro batch",
    "parameters": "",
}
_CLOSE_SUM = "FSDP2 adds up sharded gradients in fp32"


class Writing(NamedTuple):
    """The emitted module and what became of each field of the Plan."""

    code: str
    landings: dict[str, Landing]


def write(plan: Plan, origin: str, labels: Mapping[str, str]) -> Writing:
    """Write a Plan as a module.

    `origin` is the first line of its docstring; `labels` says for each field of the Plan where its value comes from,
    for the comments. Fields that FSDP2 code can't express land as "unsupported", and the code goes without them.
    """
    return _Writer(plan, labels).run(origin)


class _Writer:
    def __init__(self, plan: Plan, labels: Mapping[str, str]) -> None:
        self.plan = plan
        self.labels = labels
        self.flags: dict[str, bool] = {}
        self.constants: dict[str, Constant | Needed | Alias] = {}
        self.landings: dict[str, Landing] = {}

    def run(self, origin: str) -> Writing:
        self._batch()
        self._sharding()
        self._offload()
        self._precision()
        self._scaling()
        self._clipping()
        loaded = [] if self.flags["MIXED_PRECISION"] else ["loaded_dtype"]
        kept = ["frozen"] if self.flags["FROZEN_WHOLE"] else []
        functions = [("sharding", ["find_blocks", *loaded, "prepare", *kept, "parallelize"])]
        if self.plan.optimizer is not None:
            self._optimizer(self.plan.optimizer)
            functions.append(("optimizer", ["build_optimizer"]))
        if self.plan.schedule is not None:
            self._schedule(self.plan.schedule)
            functions.append(("scheduler", ["AbsoluteLR", "build_scheduler"]))
        else:
            functions.append(("no_scheduler", ["build_scheduler"]))
        if self.flags["DYNAMIC"]:
            functions.append(("loss_scale", ["LossScaler", "loss_scaler"]))
        functions.append(("step", ["train_step", "evaluate"]))
        functions.append(("checkpoint", ["save_checkpoint", "load_checkpoint", "full_state_dict"]))
        return Writing(emit(self._docstring(origin), functions, self.flags, self.constants), self.landings)

    # ---- one field -----------------------------------------------------------------------------------

    def _set(
        self, name: str, field: str, value: object, annotation: str, target: str, note: str = ""
    ) -> None:
        """Give a constant its value, or make it a parameter; the field lands exactly."""
        if isinstance(value, Unresolved):
            self.constants[name] = Needed(annotation)
            action = f"pass {name.lower()}, or translate with --set {value.key}=VALUE"
            self.landings[field] = Landing("needs-value", f"{target.format('...')}", note, action)
        else:
            self.constants[name] = Constant(_source(value), self.labels[field])
            self.landings[field] = Landing("exact", target.format(value), note)

    def _batch(self) -> None:
        batch = self.plan.batch
        self.flags["FIXED_WORLD"] = batch.world_size is not None
        if batch.world_size is not None:
            self.constants["WORLD_SIZE"] = Constant(str(batch.world_size), self.labels["batch.total"])
            self.landings["batch.total"] = Landing("exact", f"parallelize() wants {batch.world_size} ranks")
        elif isinstance(batch.total, Unresolved):
            self.landings["batch.total"] = Landing("needs-value", "", "micro batch x accumulation x ranks")
        else:
            self.landings["batch.total"] = Landing("exact", "", "micro batch x accumulation x ranks")
        loader = "the batch_size of your DataLoader"
        if isinstance(batch.micro, Unresolved):
            self.landings["batch.micro"] = Landing("needs-value", loader, "", "choose it in your DataLoader")
        else:
            self.landings["batch.micro"] = Landing("exact", f"{loader}: {batch.micro or 'any'}")
        self._set(
            "GRADIENT_ACCUMULATION_STEPS",
            "batch.accumulation",
            batch.accumulation,
            "int",
            "(loss / {}).backward() per micro batch",
        )

    def _sharding(self) -> None:
        self.flags["NAMED_BLOCKS"] = bool(self.plan.wrapping.block_classes)
        if self.plan.wrapping.block_classes:
            self.constants["BLOCK_CLASSES"] = Constant(repr(self.plan.wrapping.block_classes), "--blocks")
        sharding = self.plan.sharding
        whole = sharding.partition != "parameters"
        counted = whole and self.plan.batch.accumulation != 1
        last = sharding.partition in ("nothing", "optimizer")
        self.flags.update(
            REPLICATED=sharding.partition == "nothing",
            FROZEN_WHOLE=whole,
            COUNTED=counted,
            REDUCED_LAST=last,
            LEFT_GATHERED=sharding.reshard_after_forward is not True,
        )
        group = not isinstance(sharding.reshard_after_forward, bool)
        field = "sharding.reshard_after_forward" if group else "sharding.partition"
        value = repr(sharding.reshard_after_forward)
        self.constants["RESHARD_AFTER_FORWARD"] = Constant(value, self.labels[field])
        target = f"fully_shard(block, reshard_after_forward={value}), then the root"
        mesh = "fully_shard over a mesh of (ranks, 1): every rank holds the whole training state"
        self.landings["sharding.partition"] = Landing(
            "exact",
            mesh if sharding.partition == "nothing" else target,
            _TRAFFIC[sharding.partition] if counted else "",
        )
        if group:
            note = f"after the forward pass each group of {value} ranks keeps the weights, divided among them"
            self.landings[field] = Landing("close", f"reshard_after_forward={value}", note)

    def _offload(self) -> None:
        offload = self.plan.offload
        both = offload.parameters and offload.optimizer
        self.flags["OFFLOADED"] = offload.parameters or offload.optimizer
        if not self.flags["OFFLOADED"]:
            return
        self.constants["PIN_MEMORY"] = Constant(repr(offload.pinned), self.labels["offload.pinned"])
        target = f"CPUOffloadPolicy(pin_memory={offload.pinned})"
        rest = "parameters and gradients" if offload.optimizer else "optimizer state and step"
        note = "" if both else f"{rest} move to CPU memory as well: it is all or nothing; no number changes"
        group = f'start with dist.init_process_group("{_BACKENDS}")'
        landing = Landing("exact" if both else "approximate", target, note, group)
        self.landings["offload.parameters"] = self.landings["offload.optimizer"] = landing
        self.landings["offload.pinned"] = Landing("exact", target)

    def _precision(self) -> None:
        precision = self.plan.precision
        mixed = precision.compute != "fp32"
        any_ = isinstance(precision.compute, Unresolved)
        self.flags.update(MIXED_PRECISION=mixed, ANY_PRECISION=any_)
        if isinstance(precision.compute, Unresolved):
            self.constants["PARAM_DTYPE"] = Needed("torch.dtype")
            action = (
                f"pass param_dtype (torch.float32 or torch.bfloat16), or --set {precision.compute.key}=true"
            )
            target = "MixedPrecisionPolicy(param_dtype=param_dtype)"
            self.landings["precision.compute"] = Landing("needs-value", target, "", action)
        elif mixed:
            dtype = _DTYPES[precision.compute]
            self.constants["PARAM_DTYPE"] = Constant(dtype, self.labels["precision.compute"])
            target = f"MixedPrecisionPolicy(param_dtype={dtype}, cast_forward_inputs=False)"
            note = f"fp32 masters (.float()) from weights rounded to {precision.compute}"
            self.landings["precision.compute"] = Landing("exact", target, note)
        else:
            target = "MixedPrecisionPolicy(reduce_dtype=torch.float32)"
            note = "nothing is cast: forward and backward run in the dtype that the model was loaded in"
            self.landings["precision.compute"] = Landing("exact", target, note)
        self._gradient_dtypes()

    def _gradient_dtypes(self) -> None:
        precision = self.plan.precision
        steps = self.plan.batch.accumulation
        reduce = precision.reduce or precision.compute
        wide = precision.accumulate == "fp32"
        label = self.labels["precision.reduce"]
        if self.flags["REDUCED_LAST"] and wide and reduce != "fp32" and steps not in (1, 2):
            # Gradients are added up in the dtype in which they are reduced.
            reduce, label = "fp32", self.labels["precision.accumulate"]
        if isinstance(reduce, Unresolved):
            self.constants["REDUCE_DTYPE"] = Alias("PARAM_DTYPE")
            self.landings["precision.reduce"] = Landing("exact", "reduce_dtype=param_dtype")
        else:
            self.constants["REDUCE_DTYPE"] = Constant(_DTYPES[reduce], label)
            self.landings["precision.reduce"] = Landing("exact", f"reduce_dtype={_DTYPES[reduce]}")
        self.landings["precision.accumulate"] = self._accumulation(reduce)
        if reduce == "fp32" and precision.compute != "fp32" and not wide:
            note = (
                f"without fp32 accumulation DeepSpeed rounds the reduced gradient back to {precision.compute}"
            )
            self.landings["precision.reduce"] = Landing("close", f"reduce_dtype={_DTYPES['fp32']}", note)

    def _accumulation(self, reduce: str | Unresolved) -> Landing:
        precision = self.plan.precision
        model = precision.compute if isinstance(precision.compute, str) else "the dtype of the model"
        wide = "fp32" in (precision.accumulate, precision.compute)
        if self.plan.batch.accumulation == 1:
            return Landing("exact", "", "one micro batch: nothing is added up")
        if not self.flags["REDUCED_LAST"]:
            if wide:
                return Landing("exact", "", _CLOSE_SUM)
            note = f"DeepSpeed adds up the gradients of the micro batches in {model}; FSDP2 does it in fp32"
            return Landing("close", "", note)
        if wide and reduce == "fp32" and "fp32" not in (precision.reduce, precision.compute):
            note = f"they are reduced in fp32, too; DeepSpeed rounds them to {model} before it reduces them"
            return Landing("close", "reduce_dtype=torch.float32", note)
        if not wide and reduce == "fp32":
            return Landing("close", "", f"in fp32, as they are reduced; DeepSpeed adds them up in {model}")
        return Landing("exact", "", "gradients are added up in the dtype in which they are reduced")

    def _scaling(self) -> None:
        scaling = self.plan.precision.scaling
        self.flags.update(SCALED=scaling is not None, DYNAMIC=False, REFILLED=False)
        if scaling is None:
            return
        root = "precision.scaling"
        self.flags.update(DYNAMIC=scaling.dynamic, REFILLED=bool(scaling.refill))
        self.landings[root] = Landing(
            "exact", "the loss is multiplied by it, the gradients are divided by it"
        )
        if not scaling.dynamic:
            self.constants["LOSS_SCALE"] = Constant(_source(scaling.scale), self.labels[root])
            return
        self.landings[root] = Landing("exact", "LossScaler", "the scale adjusts itself")
        self.landings[f"{root}.refill"] = Landing("exact", "LossScaler")
        for field, name in (
            ("scale", "LOSS_SCALE"),
            ("window", "SCALE_WINDOW"),
            ("hysteresis", "HYSTERESIS"),
            ("minimum", "MIN_LOSS_SCALE"),
        ):
            value = getattr(scaling, field)
            self.constants[name] = Constant(_source(value), self.labels[f"{root}.{field}"])
            self.landings[f"{root}.{field}"] = Landing("exact", f"LossScaler: {value:g}")
        note = (
            "at the step where the scale doubles, DeepSpeed halves the gradients; the emitted code does not"
        )
        target = f"LossScaler: {scaling.window}"
        self.landings[f"{root}.window"] = Landing("approximate", target, note)

    def _clipping(self) -> None:
        norm = self.plan.clipping.max_norm
        self.flags["CLIPPED"] = norm is not None
        field = "clipping.max_norm"
        if norm is None:
            self.landings[field] = Landing("exact", "get_total_norm(), no clipping")
            return
        self._set("CLIP_NORM", field, norm, "float", "clip_grad_norm_(model.parameters(), {})")
        landing = self.landings[field]
        if landing.outcome == "exact":
            note = "where it acts, its factor rounds differently"
            self.landings[field] = landing._replace(outcome="close", note=note)

    # ---- optimizer and schedule -------------------------------------------------------------------

    def _optimizer(self, optimizer: Optimizer) -> None:
        self.landings["optimizer.name"] = Landing("exact", "torch.optim.AdamW", "decoupled weight decay")
        self._set("LR", "optimizer.lr", optimizer.lr, "float", "lr={}")
        self._set("BETAS", "optimizer.betas", optimizer.betas, "tuple[float, float]", "betas={}")
        self._set("EPS", "optimizer.eps", optimizer.eps, "float", "eps={}")
        note = "written out: torch's own default is 0.01"
        self._set(
            "WEIGHT_DECAY", "optimizer.weight_decay", optimizer.weight_decay, "float", "weight_decay={}", note
        )

    def _schedule(self, schedule: Schedule) -> None:
        decays = schedule.name == "WarmupDecayLR"
        self.flags.update(
            DECAYS=decays, LINEAR=schedule.warmup == "linear", OWN_MAX_LR=schedule.max_lr is not None
        )
        note = "stepped once per applied optimizer step"
        self.landings["schedule.name"] = Landing("exact", "build_scheduler()", note)
        self.landings["schedule.warmup"] = Landing("exact", f"{schedule.warmup} warm-up")
        self._set("WARMUP_MIN_LR", "schedule.min_lr", schedule.min_lr, "float", "from {}")
        if schedule.max_lr is None:
            self.landings["schedule.max_lr"] = Landing("exact", "the lr of each parameter group")
        else:
            self._set("WARMUP_MAX_LR", "schedule.max_lr", schedule.max_lr, "float", "to {}")
        self._set("WARMUP_STEPS", "schedule.warmup_steps", schedule.warmup_steps, "int", "over {} steps")
        if decays:
            self._set("TOTAL_STEPS", "schedule.total_steps", schedule.total_steps, "int", "to 0 at step {}")

    # ---- docstring -----------------------------------------------------------------------------------

    def _docstring(self, origin: str) -> str:
        batch = self.plan.batch
        steps = batch.accumulation if isinstance(batch.accumulation, int) else "gradient_accumulation_steps"
        size = f" of {batch.micro} samples" if isinstance(batch.micro, int) else ""
        batches = "one micro batch" if steps == 1 else f"{steps} micro batches"
        optimizer = "optimizer = build_optimizer(model{})"
        if self.plan.optimizer is None:
            optimizer = "optimizer = ...  # the config has none: build yours here, from model.parameters()"
        backends = f'"{_BACKENDS}"' if self.flags["OFFLOADED"] else ""
        lines = [
            origin,
            "",
            f"For torch >= {TORCH}, on CUDA (nccl) and CPU (gloo). In a script that torchrun starts, on every rank:",
            "",
            f"    dist.init_process_group({backends})",
            f"    model = parallelize(model, device{self._given('PARAM_DTYPE')})",
            f"    {optimizer.format(self._given('LR', 'BETAS', 'EPS', 'WEIGHT_DECAY'))}",
            f"    scheduler = build_scheduler(optimizer{self._given(*_SCHEDULE)})",
            f"    train_step(model, optimizer, scheduler, micro_batches, loss_fn{self._given(*_STEP)})",
            "",
            f"Each call of train_step takes {batches}{size} per rank.",
            "",
        ]
        return "\n".join(lines)

    def _given(self, *names: str) -> str:
        needed = [name.lower() for name in names if isinstance(self.constants.get(name), Needed)]
        return "".join(f", {name}=..." for name in needed)


def _source(value: object) -> str:
    """A value as Python; JSON numbers may be too large for a float."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


_SCHEDULE = ("WARMUP_MIN_LR", "WARMUP_MAX_LR", "WARMUP_STEPS", "TOTAL_STEPS")
_STEP = ("GRADIENT_ACCUMULATION_STEPS", "CLIP_NORM")
