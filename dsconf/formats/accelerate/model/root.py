"""The top level of a config of Accelerate."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dsconf.formats.accelerate.model.deepspeed import DeepSpeed
from dsconf.formats.accelerate.model.fsdp import Fsdp
from dsconf.formats.accelerate.model.other import Backend, Dynamo, Fp8
from dsconf.formats.accelerate.model.parallelism import Parallelism
from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

Distributed = Literal[
    "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU",
    "MULTI_HPU", "MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM",
]  # fmt: skip
_Passed = Reads(way="section")


class AccelerateConfig(Section):
    """A config of Accelerate: the file that `accelerate config` writes and `accelerate launch` reads."""

    reader = "environment"
    unknown = "raises"

    compute_environment: Annotated[
        Literal["LOCAL_MACHINE", "AMAZON_SAGEMAKER"], Key(), Reads(way="place")
    ] = "LOCAL_MACHINE"
    """Where the training runs."""
    distributed_type: Annotated[Distributed, Key(), Reads(way="enum", unset=True)] = "NO"
    """How the training is distributed. It decides which of the sections below counts; FSDP2 is FSDP with
    fsdp_version 2."""
    mixed_precision: Annotated[Literal["no", "fp16", "bf16", "fp8"] | None, Key(), Reads(way="precision")] = (
        "no"
    )
    """The number format to compute in. Write "no" with quotes: YAML takes it for false without."""
    num_processes: Annotated[int, Key(), Reads(way="processes", unset=True, read_if="workers")] = Field(
        1, ge=1
    )
    """Processes of all machines together, one per GPU."""
    num_machines: Annotated[int, Key(), Reads(way="machines")] = 1
    """The number of machines."""
    machine_rank: Annotated[int, Key(), Reads(way="kept")] = 0
    """The number of this machine, from 0 on."""
    gpu_ids: Annotated[str | None, Key(), Reads(way="ids")] = "all"
    """The GPUs to use: all, or their numbers with commas in between, in quotes."""
    main_process_ip: Annotated[str | None, Key(), Reads(way="kept")] = None
    """The address of the machine of rank 0."""
    main_process_port: Annotated[int | None, Key(), Reads(way="port", read_if="workers")] = None
    """The port at which the processes meet; 0 takes a free one."""
    rdzv_backend: Annotated[str | None, Key(), Reads(way="unused")] = "static"
    """How the processes of several machines meet. The launcher of Accelerate 1.15 does not take it from a
    file."""
    same_network: Annotated[bool | None, Key(), Reads(way="unused")] = False
    """Whether all machines are in one local network. The launcher of Accelerate 1.15 does not take it from a
    file."""
    use_cpu: Annotated[bool, Key(), Reads(way="cpu", read_if="one_process")] = False
    """Train on the CPU only."""
    debug: Annotated[bool | None, Key(), Reads(way="kept")] = False
    """Check the shapes in collective operations."""
    enable_cpu_affinity: Annotated[bool | None, Key(), Reads(way="unused")] = False
    """Bind each process to the CPU cores nearest to its GPU. The launcher of Accelerate 1.15 does not take
    it from a file."""
    main_training_function: Annotated[str | None, Key(), Reads(way="kept")] = "main"
    """TPU: the function of the script to run."""
    downcast_bf16: Annotated[bool | str | None, Key(), Reads(way="unused")] = False
    """TPU: store float and double as bfloat16. The launcher of Accelerate 1.15 does not take it from a file."""
    tpu_name: Annotated[str | None, Key(), Reads(way="kept")] = None
    """TPU pod: its name."""
    tpu_zone: Annotated[str | None, Key(), Reads(way="kept")] = None
    """TPU pod: its zone."""
    tpu_use_cluster: Annotated[bool | None, Key(), Reads(way="kept")] = False
    """TPU pod: start the training on all its machines."""
    tpu_use_sudo: Annotated[bool | None, Key(), Reads(way="unused")] = False
    """TPU pod: with administrator rights. The launcher of Accelerate 1.15 does not take it from a file."""
    command_file: Annotated[str | None, Key(), Reads(way="kept")] = None
    """TPU pod: a file of commands to run first."""
    commands: Annotated[list[str] | None, Key(), Reads(way="kept")] = None
    """TPU pod: commands to run first."""
    tpu_vm: Annotated[list[str] | None, Key(), Reads(way="kept")] = None
    """TPU pod: the machines."""
    tpu_env: Annotated[list[str] | None, Key(), Reads(way="kept")] = None
    """TPU pod: environment variables."""

    deepspeed_config: Annotated[DeepSpeed | None, Key(), Reads(way="keys")] = DeepSpeed()
    """The settings that count where distributed_type is DEEPSPEED."""
    fsdp_config: Annotated[Fsdp | None, Key(), _Passed] = Fsdp()
    """The settings that count where distributed_type is FSDP."""
    megatron_lm_config: Annotated[dict[str, Any] | None, Key(), _Passed] = Field({})
    """The settings that count where distributed_type is MEGATRON_LM."""
    parallelism_config: Annotated[Parallelism | None, Key(), _Passed] = Parallelism()
    """How the processes are laid out, for FSDP2 and others."""
    dynamo_config: Annotated[Dynamo | None, Key(), _Passed] = Dynamo()
    """The settings of torch.compile."""
    fp8_config: Annotated[Fp8 | None, Key(), _Passed] = Fp8()
    """The settings that count where mixed_precision is fp8."""
    mpirun_config: Annotated[dict[str, Any] | None, Key(), _Passed] = Field({})
    """The settings of mpirun, for several machines without GPUs."""

    fp16: Annotated[Any, Key(status="deprecated", replacement="mixed_precision")] = None
    """true means mixed_precision fp16 where that is left out."""
    dynamo_backend: Annotated[
        Backend | None,
        Key(status="deprecated", replacement="dynamo_config.dynamo_backend"),
        Reads(way="backend", read_if="dynamo"),
    ] = None
    """What dynamo_config.dynamo_backend is now; a section dynamo_config beside it does not count."""
