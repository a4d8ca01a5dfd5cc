"""From the Plan to an FSDP2 module, with the outcome of every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsconf.formats.fsdp2.draft import Draft
from dsconf.formats.fsdp2.emit import Alias, Constant, Needed, emit
from dsconf.formats.fsdp2.launch import launch_lines
from dsconf.formats.fsdp2.write_optimizer import write_optimizer
from dsconf.formats.fsdp2.write_schedule import SCHEDULE_CONSTANTS, write_schedule
from dsconf.formats.outcome import Landing
from dsconf.plan import OPTIMIZERS, Plan, Unresolved

TORCH = "2.9"
"""The oldest torch on which the parity runs hold (2.9.1, on gloo; 2.7.1 sums gradients there instead of averaging)."""

_DTYPES = {"fp32": "torch.float32", "bf16": "torch.bfloat16"}
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


class _Writer(Draft):
    def run(self, origin: str) -> Writing:
        self._batch()
        self._sharding()
        self._precision()
        self._clipping()
        loaded = [] if self.flags["MIXED_PRECISION"] else ["loaded_dtype"]
        functions = [("sharding", ["find_blocks", *loaded, "prepare", "parallelize"])]
        if self.plan.optimizer is not None:
            functions += write_optimizer(self, self.plan.optimizer)
        functions += write_schedule(self, self.plan.schedule)
        functions.append(("step", ["train_step", "evaluate"]))
        functions.append(("checkpoint", ["save_checkpoint", "load_checkpoint", "full_state_dict"]))
        return Writing(emit(self._docstring(origin), functions, self.flags, self.constants), self.landings)

    # ---- one field -----------------------------------------------------------------------------------

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
        self.set(
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
        if sharding.partition == "parameters" and sharding.reshard_after_forward:
            target = "fully_shard(block, reshard_after_forward=True), then the root"
            self.landings["sharding.partition"] = Landing("exact", target)
        else:
            note = "only sharded parameters (ZeRO-3) are written yet"
            self.landings["sharding.partition"] = Landing("unsupported", "", note)

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
        reduce = precision.reduce or precision.compute
        if isinstance(reduce, Unresolved):
            self.constants["REDUCE_DTYPE"] = Alias("PARAM_DTYPE")
            self.landings["precision.reduce"] = Landing("exact", "reduce_dtype=param_dtype")
        else:
            self.constants["REDUCE_DTYPE"] = Constant(_DTYPES[reduce], self.labels["precision.reduce"])
            self.landings["precision.reduce"] = Landing("exact", f"reduce_dtype={_DTYPES[reduce]}")
        fp32_sum = precision.accumulate == "fp32" or precision.compute == "fp32"
        once = self.plan.batch.accumulation == 1
        if reduce == "fp32" and not fp32_sum:
            note = "without fp32 accumulation DeepSpeed rounds the reduced gradient back to bf16"
            self.landings["precision.reduce"] = Landing("close", f"reduce_dtype={_DTYPES['fp32']}", note)
        self.landings["precision.accumulate"] = (
            Landing("exact", "", _CLOSE_SUM if not once else "one micro batch: nothing is added up")
            if fp32_sum or once
            else Landing("close")
        )

    def _clipping(self) -> None:
        norm = self.plan.clipping.max_norm
        self.flags["CLIPPED"] = norm is not None
        field = "clipping.max_norm"
        if norm is None:
            self.landings[field] = Landing("exact", "get_total_norm(), no clipping")
            return
        self.set("CLIP_NORM", field, norm, "float", "clip_grad_norm_(model.parameters(), {})")
        landing = self.landings[field]
        if landing.outcome == "exact":
            note = "where it acts, its factor rounds differently"
            self.landings[field] = landing._replace(outcome="close", note=note)

    # ---- docstring -----------------------------------------------------------------------------------

    def _docstring(self, origin: str) -> str:
        batch = self.plan.batch
        steps = batch.accumulation if isinstance(batch.accumulation, int) else "gradient_accumulation_steps"
        size = f" of {batch.micro} samples" if isinstance(batch.micro, int) else ""
        batches = "one micro batch" if steps == 1 else f"{steps} micro batches"
        optimizer = "optimizer = build_optimizer(model{})"
        if self.plan.optimizer is None:
            optimizer = "optimizer = ...  # the config has none: build yours here, from model.parameters()"
        lines = [
            origin,
            "",
            f"For torch >= {TORCH}, on CUDA (nccl) and CPU (gloo). In a script that torchrun starts, on every rank:",
            "",
            "    dist.init_process_group()",
            f"    model = parallelize(model, device{self.given('PARAM_DTYPE')})",
            f"    {optimizer.format(self.given(*_OPTIMIZER))}",
            f"    scheduler = build_scheduler(optimizer{self.given(*SCHEDULE_CONSTANTS)})",
            f"    train_step(model, optimizer, scheduler, micro_batches, loss_fn{self.given(*_STEP)})",
            "",
            f"Each call of train_step takes {batches}{size} per rank.",
            *launch_lines(self.plan),
            "",
        ]
        return "\n".join(lines)


_OPTIMIZER = dict.fromkeys(argument.upper() for taken in OPTIMIZERS.values() for argument in taken)
_STEP = ("GRADIENT_ACCUMULATION_STEPS", "CLIP_NORM")
