"""From the Plan to an FSDP2 module, with the outcome of every field."""

from __future__ import annotations

from dsconf.formats.fsdp2.draft import Draft
from dsconf.formats.fsdp2.emit import Constant, emit
from dsconf.formats.fsdp2.launch import launch_lines
from dsconf.formats.fsdp2.minimal import duties, reminders
from dsconf.formats.fsdp2.torch_names import ON_CPU, numbers
from dsconf.formats.fsdp2.write_optimizer import write_optimizer
from dsconf.formats.fsdp2.write_parallelism import batch_lines, write_parallelism
from dsconf.formats.fsdp2.write_precision import write_precision, write_scaling
from dsconf.formats.fsdp2.write_schedule import SCHEDULE_CONSTANTS, write_schedule
from dsconf.formats.fsdp2.write_sharding import BACKENDS, write_offload, write_sharding, write_units
from dsconf.formats.outcome import Landing
from dsconf.formats.writing import UNTRAINED, UP_TO_SCRIPT, Request, Writing
from dsconf.plan import OPTIMIZERS, Plan, Unresolved


def write(plan: Plan, request: Request) -> Writing:
    """Write a Plan as a module, or as its parallelize alone: what its script has to do stands in the docstring then,
    and as the action of each field.

    Fields that FSDP2 code can't express land as "unsupported", and the code goes without them.
    """
    return _Writer(plan, request.labels, request.torch).run(request)


class _Writer(Draft):
    def run(self, request: Request) -> Writing:
        self._batch()
        write_units(self)
        write_sharding(self)
        divided = write_parallelism(self)
        write_offload(self)
        write_precision(self)
        write_scaling(self)
        self._clipping()
        self._launch()
        blocks = [] if self.flags["ROOT_ONLY"] else ["find_blocks"]
        blocks += ["find_units"] if self.flags["SEPARATE_ENDS"] else []
        blocks += ["recomputed"] if self.flags["RECOMPUTED"] else []
        loaded = [] if self.flags["MIXED_PRECISION"] else ["loaded_dtype"]
        kept = ["frozen"] if self.flags["FROZEN_WHOLE"] else []
        functions = [*divided, ("sharding", [*blocks, *loaded, "prepare", *kept])]
        self.flags["FINISHED"] = any(self.flags[flag] for flag in _FINISHED)
        if self.flags["FINISHED"]:
            cast = ["cast_inputs"] if self.flags["INPUTS_CAST"] else []
            functions.append(("finish", [*cast, "finish"]))
        functions.append(("sharding", ["parallelize"]))
        alone = list(functions)
        if self.plan.optimizer is not None:
            functions += write_optimizer(self, self.plan.optimizer)
        functions += write_schedule(self, self.plan.schedule)
        if self.flags["DYNAMIC"]:
            functions.append(("loss_scale", ["LossScaler", "loss_scaler"]))
        functions.append(("step", ["train_step", "evaluate"]))
        functions.append(("checkpoint", ["save_checkpoint", "load_checkpoint", "full_state_dict"]))
        if request.style == "minimal":
            code = emit(self._short_docstring(request.origin), alone, self.flags, self.constants)
        else:
            code = emit(self._docstring(request.origin), functions, self.flags, self.constants)
        return Writing(code, self.landings, f"torch >= {self.oldest_torch}")

    # ---- one field -----------------------------------------------------------------------------------

    def _batch(self) -> None:
        batch = self.plan.batch
        self.flags["FIXED_WORLD"] = self.plan.ranks is not None
        if self.plan.ranks is not None:
            self.constants["WORLD_SIZE"] = Constant(str(self.plan.ranks), self.labels["batch.total"])
            self.landings["batch.total"] = Landing("exact", f"parallelize() wants {self.plan.ranks} ranks")
        elif isinstance(batch.total, Unresolved):
            self.landings["batch.total"] = Landing("needs-value", "", "micro batch x accumulation x ranks")
        else:
            self.landings["batch.total"] = Landing("exact", "", "micro batch x accumulation x ranks")
        loader = "the batch_size of your DataLoader"
        if isinstance(batch.micro, Unresolved):
            self.landings["batch.micro"] = Landing("needs-value", loader, "", "choose it in your DataLoader")
        else:
            self.landings["batch.micro"] = Landing("exact", f"{loader}: {batch.micro or 'any'}")
        if isinstance(batch.total, int) and self.plan.ranks is None:
            label = self.labels["batch.total"]
            self.constants["TRAIN_BATCH_SIZE"] = Constant(str(batch.total), label, kept=True)
        if isinstance(batch.micro, int):
            self.constants["MICRO_BATCH_SIZE"] = Constant(
                str(batch.micro), self.labels["batch.micro"], kept=True
            )
        self.set(
            "GRADIENT_ACCUMULATION_STEPS",
            "batch.accumulation",
            Unresolved(key="") if batch.accumulation is None else batch.accumulation,
            "int",
            "(loss / {}).backward() per micro batch",
        )

    def _clipping(self) -> None:
        norm = self.plan.clipping.max_norm
        self.flags["CLIPPED"] = norm is not None
        wanted = self.plan.clipping.skips_not_finite is not False
        self.flags["SKIPS"] = wanted or self.flags["DYNAMIC"]
        what = "left out" if self.flags["SKIPS"] else "taken"
        note = f"a step whose norm is not finite is {what}"
        if self.flags["SKIPS"] and not wanted:
            note = f"{note}, as a scale that adjusts itself needs it"
        self.landings["clipping.skips_not_finite"] = Landing(
            "exact" if self.flags["SKIPS"] == wanted else "approximate", "", note
        )
        field = "clipping.max_norm"
        if norm is None:
            self.landings[field] = Landing("exact", "get_total_norm(), no clipping")
            return
        clip = "clip_grad_norm_(model.parameters(), {})"
        if self.flags["TENSOR_PARALLEL"]:
            clip = "clip_grads_with_norm_(model.parameters(), {}, gradient_norm(model))"
        self.set("CLIP_NORM", field, norm, "float", clip)

    # ---- docstrings ----------------------------------------------------------------------------------

    def _where(self) -> str:
        if numbers(self.oldest_torch) < numbers(ON_CPU):
            return f", on CUDA (nccl); on CPU (gloo) from {ON_CPU}"
        return ", on CUDA (nccl) and CPU (gloo)"

    def _backends(self) -> str:
        """The arguments of init_process_group: norms of offloaded gradients are summed in CPU memory."""
        return f'("{BACKENDS}")' if self.flags["OFFLOADED"] else "()"

    def _short_docstring(self, origin: str) -> str:
        """The docstring of a module with parallelize alone; what is left to the script becomes actions, too."""
        left = duties(self)
        for field, duty in left.items():
            self.landings[field] = self.landings[field]._replace(action=f"in your script: {duty}")
        lines = [
            origin,
            "",
            f"For torch >= {self.oldest_torch}{self._where()}. On every rank:",
            "",
            f"    dist.init_process_group{self._backends()}",
            f"    model = parallelize(model, device{self.given('PARAM_DTYPE')})",
            "",
            "The rest is the script's:",
            "",
            *(f"    {self.labels[field]}: {duty}" for field, duty in left.items()),
            "",
            *reminders(self),
            *batch_lines(self),
            *launch_lines(self.plan),
            "",
        ]
        return "\n".join(lines)

    def _launch(self) -> None:
        launch = self.plan.launch
        target = "torchrun, as the docstring says" if launch_lines(self.plan) else "torchrun"
        for field in ("world_size", "gpus_per_node", "machines"):
            if getattr(launch, field) is not None:
                self.landings[f"launch.{field}"] = Landing("exact", target)
        self.landings |= UNTRAINED | UP_TO_SCRIPT

    def _docstring(self, origin: str) -> str:
        batch = self.plan.batch
        steps = batch.accumulation if isinstance(batch.accumulation, int) else "gradient_accumulation_steps"
        size = ""
        if isinstance(batch.micro, int):
            size = " of MICRO_BATCH_SIZE samples, the batch_size of the DataLoader"
        batches = "one micro batch" if steps == 1 else f"{steps} micro batches"
        optimizer = "optimizer = build_optimizer(model{})"
        if self.plan.optimizer is None:
            optimizer = "optimizer = ...  # the config has none: build yours here, from model.parameters()"
        lines = [
            origin,
            "",
            f"For torch >= {self.oldest_torch}{self._where()}. In a script that torchrun starts, on every rank:",
            "",
            f"    dist.init_process_group{self._backends()}",
            f"    model = parallelize(model, device{self.given('PARAM_DTYPE')})",
            f"    {optimizer.format(self.given(*_OPTIMIZER))}",
            f"    scheduler = build_scheduler(optimizer{self.given(*SCHEDULE_CONSTANTS)})",
            f"    train_step(model, optimizer, scheduler, micro_batches, loss_fn{self.given(*_STEP)})",
            "",
            f"Each call of train_step takes, per rank, {batches}{size}.",
            *batch_lines(self),
            *launch_lines(self.plan),
            "",
        ]
        return "\n".join(lines)


_OPTIMIZER = dict.fromkeys(argument.upper() for taken in OPTIMIZERS.values() for argument in taken)
_FINISHED = ("AUTOCAST", "INPUTS_CAST", "BUFFERS_CAST", "BUFFERS_KEPT", "SUMMED", "UNUSED_PARAMETERS")
_STEP = ("GRADIENT_ACCUMULATION_STEPS", "CLIP_NORM")
