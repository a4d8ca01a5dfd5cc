"""Run the cells of a job, one after the other, in one process group.

    python -m torch.distributed.run --standalone --nproc-per-node 2 worker.py job.json output/

For each cell, rank 0 leaves `<number>.started` when the cell begins and `<number>.json` when it
ends: the record, or {"crash": text}.  A rank whose cell raises writes the record itself and ends its
process, since the other ranks may be inside a collective; the launcher restarts the job behind that
cell.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

CRASH_STATUS = 70  # what a rank ends with after it wrote a crash record; not a status of the module's own
COLLECTIVE_TIMEOUT = timedelta(seconds=60)
DEVICE = torch.device("cpu")
WAITS_FOR_ALL = (0, 19, 8)  # the first DeepSpeed that waits for all its all-gathers; see `finished`

# What torch's Adam classes take, and the two keys that DeepSpeed takes away before it builds one.
TORCH_ADAM_KEYS = {"lr", "betas", "eps", "weight_decay", "amsgrad", "foreach", "maximize", "capturable"} | {
    "differentiable",
    "fused",
    "torch_adam",
    "adam_w_mode",
}

Config = dict[str, Any]
LossFn = Callable[[nn.Module, Tensor], Tensor]


@dataclass(frozen=True)
class Job:
    """One cell, as the launcher wrote it."""

    role: str
    config: Config
    module: str | None
    workload: str
    steps: int
    load_dtype: str
    inf_at: int | None
    exact: bool
    freeze: list[str]


@dataclass
class Trace:
    """What a side has done so far."""

    losses: list[float] = field(default_factory=list)
    norms: list[float | None] = field(default_factory=list)
    lrs: list[float] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    moments: float = 0.0
    problems: list[str] = field(default_factory=list)


def load(path: str) -> ModuleType:
    """Import a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"parity_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def mean_over_ranks(value: Tensor | float) -> float:
    """Average in float64."""
    total = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def as_float(value: Any) -> float | None:
    """Return a number as a plain float, and nothing as nothing."""
    return None if value is None else float(value)


def moments_held(optimizer: torch.optim.Optimizer) -> float:
    """Count the elements of the first moments that an optimizer holds on all ranks together: copies count."""
    found = [state["exp_avg"] for state in optimizer.state.values() if "exp_avg" in state]
    local = [moment.to_local() if isinstance(moment, DTensor) else moment for moment in found]
    return mean_over_ranks(sum(moment.numel() for moment in local)) * dist.get_world_size()


def geometry(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return micro batch size and accumulation steps, as DeepSpeed infers what is not given."""
    total = config.get("train_batch_size")
    micro = config.get("train_micro_batch_size_per_gpu")
    accum = config.get("gradient_accumulation_steps")
    world = dist.get_world_size()
    if accum is None:
        accum = total // (micro * world) if total and micro else 1
    if micro is None:
        micro = total // (accum * world) if total else 1
    return int(micro), int(accum)


def group_size(config: Mapping[str, Any]) -> int:
    """Return the number of ranks that divide the layers among them."""
    return max(int(config.get("tensor_parallel", {}).get("autotp_size", 1)), 1)


def data_place(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the rank and the number of ranks as far as data go: those of a tensor-parallel group see the same."""
    size = group_size(config)
    return dist.get_rank() // size, dist.get_world_size() // size


def loss_of_step(job: Job, workload: ModuleType, step: int) -> LossFn:
    """Return the loss function, made non-finite at the step the job names."""
    loss_fn = cast(LossFn, workload.loss_fn)
    if step != job.inf_at:
        return loss_fn
    return lambda model, batch: loss_fn(model, batch) * math.inf


def exact_config(config: Config) -> Config:
    """Turn off, in a copy, two roundings of DeepSpeed that torch cannot repeat.

    They are ZeRO-3's own F.linear, which rounds a bf16 product before it adds the bias, and the
    fused Adam kernels.
    """
    config = json.loads(json.dumps(config))
    zero = config.get("zero_optimization", {})
    if zero.get("stage") == 3:
        zero["memory_efficient_linear"] = False
    optimizer = config.get("optimizer", {})
    if optimizer.get("type", "").lower() in ("adam", "adamw"):
        given = {k: v for k, v in optimizer.get("params", {}).items() if k in TORCH_ADAM_KEYS}
        # Absent means 0 to the kernels, and 0.01 to torch.
        optimizer["params"] = {"weight_decay": 0.0, **given, "torch_adam": True}
        if zero.get("offload_optimizer"):
            config["zero_force_ds_cpu_optimizer"] = False
    return config


def master_weights(deepspeed: Any, engine: Any) -> dict[str, Tensor]:
    """Return the full fp32 parameters of an engine, on every rank."""
    optimizer = engine.optimizer
    # The optimizers of stage 0 in 16 bit hold one fp32 tensor for each parameter.
    pairs = zip(getattr(optimizer, "fp16_groups", ()), getattr(optimizer, "fp32_groups", ()), strict=False)
    masters = {id(low): high for lows, highs in pairs for low, high in zip(lows, highs, strict=True)}
    weights = {}
    for name, param in engine.module.named_parameters():
        full = deepspeed.utils.safe_get_full_fp32_param(param) if param.requires_grad else None
        if full is None and id(param) in masters:
            full = masters[id(param)]
        if full is None:
            with deepspeed.zero.GatheredParameters([param], enabled=hasattr(param, "ds_id")):
                full = param.detach().clone()
        weights[name] = full.detach().float()
    return weights


def loss_scale(engine: Any) -> list[float]:
    """Return the scale of the loss, if it has one."""
    optimizer = engine.optimizer
    first = getattr(engine, "torch_autocast_z0_gradscaler", None)  # older versions have neither
    scaler = first or getattr(optimizer, "torch_autocast_gradscaler", None)
    scale = scaler.get_scale() if scaler else getattr(optimizer, "loss_scale", None)
    return [] if scale in (None, 1.0) else [float(scale)]


def whole(divided: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], size: int) -> dict[str, Tensor]:
    """Put parameters together that DeepSpeed's AutoTP has divided over groups of `size` ranks."""
    weights = {}
    for name, part in divided.items():
        dims = [
            d for d, (mine, all_) in enumerate(zip(part.shape, shapes[name], strict=True)) if mine != all_
        ]
        weights[name] = part
        if dims:
            parts: list[Tensor] = [part] * dist.get_world_size()
            dist.all_gather_object(parts, part)  # their sizes may differ
            weights[name] = torch.cat(parts[:size], dims[0])
    return weights


def finished(gather: Callable[..., Any]) -> Callable[..., Any]:
    """Return an all-gather that is done when it returns, even if it is called as an asynchronous one.

    After each step, ZeRO-3 starts one for every small parameter, and before 0.19.8 it waits for the last one only.
    gloo ends them in any order, so that the next forward may read what torch.empty left in the others' memory:
    https://github.com/deepspeedai/DeepSpeed/pull/8539.
    """

    def all_gather(*args: Any, **kwargs: Any) -> Any:
        work = gather(*args, **kwargs)
        if work is not None:
            work.wait()
        return work

    return all_gather


def run_deepspeed(job: Job, workload: ModuleType, model: nn.Module, trace: Trace) -> dict[str, Tensor]:
    """Train with the real DeepSpeed."""
    deepspeed: Any = importlib.import_module("deepspeed")  # slow, and only this side needs it
    config = exact_config(job.config) if job.exact else job.config
    trainable = [p for p in model.parameters() if p.requires_grad]
    shapes = {name: param.shape for name, param in model.named_parameters()}
    linear, gather = F.linear, deepspeed.comm.all_gather_into_tensor
    version = deepspeed.__version_major__, deepspeed.__version_minor__, deepspeed.__version_patch__
    if version < WAITS_FOR_ALL:
        deepspeed.comm.all_gather_into_tensor = finished(gather)
    # DeepSpeed does not ask torch whether the CPU has fp16.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    try:
        # A schedule that no config holds is given by the script, as the function that builds it.
        scheduler = load(job.module).build_scheduler if job.module and "scheduler" not in config else None
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=trainable, config=config, lr_scheduler=scheduler
        )
        micro, accum = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
        for step in range(job.steps):
            trace.lrs.append(float(engine.optimizer.param_groups[0]["lr"]))
            skipped_before = engine.skipped_steps
            trace.scales += loss_scale(engine)
            loss_fn = loss_of_step(job, workload, step)
            for batch in workload.batches(step, *data_place(job.config), micro, accum):
                loss = loss_fn(engine, batch.to(DEVICE))
                trace.losses.append(mean_over_ranks(loss.detach()))
                engine.backward(loss)
                engine.step()
            trace.norms.append(as_float(engine.get_global_grad_norm()))
            trace.skipped.append(engine.skipped_steps > skipped_before)
        trace.moments = moments_held(engine.basic_optimizer)
        weights = whole(master_weights(deepspeed, engine), shapes, group_size(job.config))
        engine.destroy()
        return weights
    finally:
        F.linear = linear  # ZeRO-3 replaces it for the whole process
        deepspeed.comm.all_gather_into_tensor = gather
        if hasattr(deepspeed.runtime, "torch_autocast"):  # not in older versions
            deepspeed.runtime.torch_autocast.TORCH_AUTOCAST_INITIALIZED = False  # as this


def master_dtype(config: Config) -> torch.dtype:
    """Return the dtype of the parameters that the optimizer updates."""
    low = config.get("bf16", {}).get("bf16_master_weights_and_grads")
    # At stage 1 fp32 accumulation makes DeepSpeed take another optimizer, with fp32 masters in any case.
    wide = (
        config.get("zero_optimization", {}).get("stage") == 1
        and config.get("data_types", {}).get("grad_accum_dtype") == "fp32"
    )
    return torch.bfloat16 if low and not wide else torch.float32


def run_module(job: Job, workload: ModuleType, model: nn.Module, trace: Trace) -> dict[str, Tensor]:
    """Train with an emitted module."""
    assert job.module is not None
    module = load(job.module)
    micro, accum = geometry(job.config)
    names = {name for name, _ in model.named_parameters()}  # a tied weight is here once, in state dicts twice
    model = module.parallelize(model, DEVICE)
    optimizer = module.build_optimizer(model)
    scheduler = module.build_scheduler(optimizer)
    for step in range(job.steps):
        data = workload.batches(step, *data_place(job.config), micro, accum)
        loss_fn = loss_of_step(job, workload, step)
        result = module.train_step(model, optimizer, scheduler, [b.to(DEVICE) for b in data], loss_fn)
        trace.losses += [mean_over_ranks(loss) for loss in result["losses"]]
        trace.norms.append(as_float(result["grad_norm"]))
        trace.lrs.append(float(result["lr"]))
        trace.skipped.append(bool(result["skipped"]))
        if "loss_scale" in result:
            trace.scales.append(float(result["loss_scale"]))
    trace.moments = moments_held(optimizer)
    state = {name: tensor for name, tensor in module.full_state_dict(model).items() if name in names}
    masters = {n: t.dtype for n, t in state.items() if not n.startswith(tuple(job.freeze))}
    wrong = {name: dtype for name, dtype in masters.items() if dtype != master_dtype(job.config)}
    trace.problems += [f"full_state_dict has {name} in {dtype}" for name, dtype in wrong.items()]
    return state


def ranks_agree(trace: Trace) -> bool:
    """Tell whether all ranks report the same norms, learning rates and skips."""
    mine = json.dumps([trace.norms, trace.lrs, trace.skipped, trace.scales])
    everyone: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return len(set(everyone)) == 1


def flat(state: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Return the values of each tensor."""
    return {name: tensor.detach().float().flatten().tolist() for name, tensor in state.items()}


def run_cell(job: Job) -> dict[str, Any]:
    """Run one cell and return its record."""
    # A side that does not start from rank 0's weights shows; AutoTP takes them as they are within its groups.
    torch.manual_seed(data_place(job.config)[0])
    workload = load(job.workload)
    model: nn.Module = workload.build_model().to(getattr(torch, job.load_dtype))
    for name, param in model.named_parameters():
        param.requires_grad_(not any(name.startswith(prefix) for prefix in job.freeze))
    start = flat(dict(model.named_parameters()))
    trace = Trace()
    run = run_deepspeed if job.role == "deepspeed" else run_module
    params = run(job, workload, model, trace)
    if not ranks_agree(trace):
        trace.problems.append("the ranks report different norms, learning rates or skips")
    return {**vars(trace), "start": start, "params": flat(params)}


def publish(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record whole, unless another rank was first."""
    draft = path.with_suffix(f".draft{dist.get_rank()}")
    draft.write_text(json.dumps(record), encoding="utf-8")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def main() -> None:
    """Run the job named on the command line."""
    cells = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    output = Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=COLLECTIVE_TIMEOUT)
    for number, cell in cells:
        path = output / f"{number}.json"
        if dist.get_rank() == 0:
            path.with_suffix(".started").touch()
        try:
            record = run_cell(Job(**cell))
            dist.barrier()
        except BaseException:
            publish(path, {"crash": f"rank {dist.get_rank()}\n{traceback.format_exc()}"})
            sys.stderr.flush()
            os._exit(CRASH_STATUS)
        if dist.get_rank() == 0:
            publish(path, record)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
