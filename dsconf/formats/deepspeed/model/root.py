"""The top level of a DeepSpeed config."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.deepspeed.model.autotuning import Autotuning
from dsconf.formats.deepspeed.model.checkpoint import Checkpoint
from dsconf.formats.deepspeed.model.compiling import Compile, HybridEngine
from dsconf.formats.deepspeed.model.data import DataEfficiency
from dsconf.formats.deepspeed.model.expert import ExpertParallel
from dsconf.formats.deepspeed.model.memory import ActivationCheckpointing, Aio, WeightQuantization
from dsconf.formats.deepspeed.model.monitor import Comet, CsvMonitor, TensorBoard, Wandb
from dsconf.formats.deepspeed.model.optimizer import Optimizer
from dsconf.formats.deepspeed.model.parallel import Pipeline, TensorParallel
from dsconf.formats.deepspeed.model.precision import Bf16, DataTypes, Fp16, TorchAutocast
from dsconf.formats.deepspeed.model.profiling import CommsLogger, FlopsProfiler, Timers
from dsconf.formats.deepspeed.model.scheduler import Scheduler
from dsconf.formats.deepspeed.model.zero import Zero
from dsconf.formats.key import Fill, Key
from dsconf.formats.section import Reads, Section

# The order of dsconf.plan, as `typing` takes two literals of the same values for one in a union.
CommDtype = Literal["fp32", "bf16", "fp16"]


class DeepSpeedConfig(Section):
    """A DeepSpeed configuration file."""

    # Batch sizes.
    train_batch_size: Annotated[
        int | None,
        Key(
            unit="samples",
            auto=Fill(
                "world size x per_device_train_batch_size x gradient_accumulation_steps",
                "micro batch x accumulation x processes",
            ),
            quoted_fails="parse",
        ),
    ] = Field(None, gt=0)
    """Samples per optimizer step over all GPUs: the product of the two keys below and the number of ranks
    that get different data. What is left out is computed from the others."""
    train_micro_batch_size_per_gpu: Annotated[
        int | None,
        Key(
            unit="samples",
            auto=Fill("per_device_train_batch_size", "the smallest batch_size of the DataLoaders"),
            quoted_fails="parse",
        ),
    ] = Field(None, gt=0)
    """Samples per forward pass on one GPU. This key or train_batch_size is needed."""
    gradient_accumulation_steps: Annotated[
        int | None,
        Key(
            unit="passes",
            auto=Fill("gradient_accumulation_steps", "the gradient_accumulation_steps of the Accelerator"),
            quoted_fails="parse",
        ),
    ] = Field(None, gt=0)
    """Backward passes per optimizer step; 1 when it is left out and nothing else settles it."""
    managed_gradient_accumulation: Annotated[bool, Key()] = True
    """false lets the script decide: each call of step() then updates the weights."""

    # Gradients.
    gradient_clipping: Annotated[float, Key(auto=Fill("max_grad_norm", "1.0"), quoted_fails="step")] = 1.0
    """The largest norm of all gradients together; larger ones are scaled down to it. 0 turns clipping off,
    leaving the key out does not."""
    prescale_gradients: Annotated[bool, Key()] = False
    """Divide the gradients before they are added up over the ranks instead of afterwards."""
    gradient_predivide_factor: Annotated[float, Key(quoted_fails="step")] = 1.0
    """Split the division of the gradients: by this before they are added up, by the rest afterwards."""
    gradient_allreduce_op: Annotated[
        Literal["mean", "sum"], Key(), Reads(fails="parse", ignore_case=True)
    ] = "mean"
    """Whether gradients are averaged or added up over the ranks."""
    communication_data_type: Annotated[CommDtype | None, Key(), Reads(fails="parse", ignore_case=True)] = None
    """The number format in which gradients travel; null takes that of the model."""
    seq_parallel_communication_data_type: Annotated[
        CommDtype | None, Key(), Reads(fails="parse", ignore_case=True)
    ] = "fp32"
    """The same with sequence parallelism, where it replaces communication_data_type."""
    disable_allgather: Annotated[bool, Key(status="inert")] = False
    """Accepted, but nothing reads it."""

    # What is trained, and how.
    optimizer: Annotated[Optimizer | None, Key(), Reads(null=False)] = None
    """The optimizer that DeepSpeed builds; one passed by the script wins."""
    scheduler: Annotated[Scheduler | None, Key(), Reads(null=False)] = None
    """The learning rate schedule that DeepSpeed builds; one passed by the script wins."""
    fp16: Annotated[Fp16, Key()] = Field(default=Fp16())
    """Mixed precision in float16."""
    bf16: Annotated[Bf16 | None, Key(aliases=("bfloat16",)), Reads(null_in_alias=False)] = Field(
        default=Bf16()
    )
    """Mixed precision in bfloat16."""
    torch_autocast: Annotated[TorchAutocast | None, Key(), Reads(null=False)] = None
    """Mixed precision by torch.autocast."""
    data_types: Annotated[DataTypes, Key()] = Field(default=DataTypes())
    """Number formats apart from the one of the model."""
    zero_optimization: Annotated[Zero | bool, Key(), Reads(switches="stage")] = Field(default=Zero())
    """ZeRO: what is split over the GPUs. true, an old form, means stage 1."""
    zero_allow_untested_optimizer: Annotated[bool, Key()] = False
    """Let ZeRO run with an optimizer class that DeepSpeed has not been tested with."""
    zero_force_ds_cpu_optimizer: Annotated[bool, Key()] = True
    """With an offloaded optimizer, insist that an optimizer passed by the script is DeepSpeed's CPU Adam or
    Lion."""
    allgather_size: Annotated[
        int, Key(status="deprecated", replacement="zero_optimization.allgather_bucket_size", unit="elements")
    ] = 500_000_000
    """Only read together with the old form zero_optimization: true."""
    activation_checkpointing: Annotated[ActivationCheckpointing, Key()] = Field(
        default=ActivationCheckpointing()
    )
    """Recomputing activations; acts only through deepspeed.checkpointing.configure()."""
    compile: Annotated[Compile, Key()] = Field(default=Compile())
    """DeepCompile."""
    hybrid_engine: Annotated[HybridEngine, Key()] = Field(default=HybridEngine())
    """Switching between training and generation, for RLHF."""
    weight_quantization: Annotated[WeightQuantization | None, Key(), Reads(null=False)] = None
    """Quantized weights under zero.Init."""

    # Parallelism.
    tensor_parallel: Annotated[TensorParallel, Key()] = Field(default=TensorParallel())
    """Automatic tensor parallelism."""
    expert_parallel: Annotated[ExpertParallel | None, Key()] = None
    """Automatic expert parallelism of MoE models."""
    use_data_before_expert_parallelism: Annotated[bool, Key()] = False
    """The order of ranks with expert parallelism: data parallel ranks first."""
    pipeline: Annotated[Pipeline, Key()] = Field(default=Pipeline())
    """Settings of pipeline parallelism."""
    sequence_parallel_size: Annotated[
        int | None, Key(unit="ranks", quoted_fails="parse"), Reads(null=False)
    ] = Field(None, gt=0)
    """Ranks that share one sequence. It needs data_parallel_size beside it; alone it only changes the batch
    arithmetic."""
    data_parallel_size: Annotated[int | None, Key(unit="ranks", quoted_fails="init"), Reads(null=False)] = (
        None
    )
    """Ranks with different data; only read together with sequence_parallel_size. Their product is the number
    of processes."""

    # Data and checkpoints.
    data_efficiency: Annotated[DataEfficiency, Key()] = Field(default=DataEfficiency())
    """Curriculum learning, data sampling and token dropping."""
    dataloader_drop_last: Annotated[bool, Key()] = False
    """Drop the last incomplete batch in the data loader that DeepSpeed builds."""
    checkpoint: Annotated[Checkpoint, Key()] = Field(default=Checkpoint())
    """How checkpoints are written and loaded."""
    datastates_ckpt: Annotated[Any, Key()] = False
    """Checkpoints by the DataStates package; anything but false switches it on, null too."""
    aio: Annotated[Aio | None, Key()] = Field(default=Aio())
    """Asynchronous I/O with NVMe drives."""

    # Logs and measurements.
    steps_per_print: Annotated[
        float | None, Key(unit="steps", auto=Fill("infinity", "infinity"), quoted_fails="step")
    ] = None
    """Steps between two progress lines; null prints none, 0 fails in the first step."""
    wall_clock_breakdown: Annotated[bool, Key(), Reads(fails="parse")] = False
    """Time the forward pass, the backward pass and the step; slows training down."""
    memory_breakdown: Annotated[bool, Key()] = False
    """Log memory use around the forward pass, the backward pass and the step."""
    dump_state: Annotated[bool, Key()] = False
    """Print the state of DeepSpeed after initialization."""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"] | None,
        Key(),
        Reads(fails="init", ignore_case=True),
    ] = None
    """The level of DeepSpeed's own log."""
    disable_python_gc: Annotated[bool, Key()] = False
    """Turn Python's garbage collector off while training."""
    vocabulary_size: Annotated[int | None, Key(quoted_fails="parse")] = None
    """Only for a warning when it is not a multiple of 8."""
    flops_profiler: Annotated[FlopsProfiler, Key()] = Field(default=FlopsProfiler())
    """Counting floating-point operations per module."""
    comms_logger: Annotated[CommsLogger, Key()] = Field(default=CommsLogger())
    """Logging of the communication between ranks; present, even empty, it is on."""
    timers: Annotated[Timers, Key()] = Field(default=Timers())
    """Settings of DeepSpeed's timers."""
    tensorboard: Annotated[TensorBoard, Key()] = Field(default=TensorBoard())
    """Metrics for TensorBoard."""
    wandb: Annotated[Wandb, Key()] = Field(default=Wandb())
    """Metrics for Weights & Biases."""
    comet: Annotated[Comet, Key()] = Field(default=Comet())
    """Metrics for Comet."""
    csv_monitor: Annotated[CsvMonitor, Key()] = Field(default=CsvMonitor())
    """Metrics in CSV files."""
    autotuning: Annotated[Autotuning, Key()] = Field(default=Autotuning())
    """Search for a fast configuration; only by the deepspeed launcher with --autotuning."""

    # Gone: writing one of these, whatever its value, stops DeepSpeed.
    amp: Annotated[Any, Key(status="removed")] = None
    """Apex AMP was removed in DeepSpeed 0.19.8; use bf16, fp16 or torch_autocast."""
    compression_training: Annotated[Any, Key(status="removed")] = None
    """The compression library was removed in DeepSpeed 0.19.7."""
    curriculum_learning: Annotated[
        Any, Key(status="removed", replacement="data_efficiency.data_sampling.curriculum_learning")
    ] = None
    """Moved into data_efficiency; refused here since DeepSpeed 0.19.8."""
    eigenvalue: Annotated[Any, Key(status="removed")] = None
    """Eigenvalues for quantization were removed in DeepSpeed 0.19.8."""
    elasticity: Annotated[Any, Key(status="removed")] = None
    """Elastic training was removed in DeepSpeed 0.19.8; set the batch sizes themselves."""
    graph_harvesting: Annotated[Any, Key(status="removed")] = None
    """Graph harvesting was removed in DeepSpeed 0.19.8."""
    nebula: Annotated[Any, Key(status="removed")] = None
    """Nebula checkpoints were removed in DeepSpeed 0.19.7."""
    progressive_layer_drop: Annotated[Any, Key(status="removed")] = None
    """Progressive layer dropping was removed in DeepSpeed 0.19.8."""
    quantize_training: Annotated[Any, Key(status="removed")] = None
    """Mixture-of-Quantization was removed in DeepSpeed 0.19.7."""
    sparse_attention: Annotated[Any, Key(status="removed")] = None
    """Sparse attention was removed in DeepSpeed 0.19.7."""
    sparse_gradients: Annotated[Any, Key(status="removed")] = None
    """Removed in DeepSpeed 0.19.8; torch.nn.Embedding(sparse=True) needs no key."""
