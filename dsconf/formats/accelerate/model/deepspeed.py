"""The section `deepspeed_config`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dsconf.formats.key import Key
from dsconf.formats.section import Reads, Section

Device = Literal["none", "cpu", "nvme"]


class DeepSpeed(Section):
    """DeepSpeed: a config file of its own, or a few settings of which Accelerate makes one."""

    reader = "environment"
    read_if = "deepspeed"

    deepspeed_config_file: Annotated[str | None, Key()] = None
    """DeepSpeed's own JSON file, from the working directory of the launch; the settings that it holds may
    not be written here too."""
    zero_stage: Annotated[Literal[0, 1, 2, 3] | None, Key(), Reads(way="integer")] = 2
    """What is split over the GPUs: nothing (0), optimizer states (1), gradients too (2), parameters too (3)."""
    offload_optimizer_device: Annotated[Device | None, Key(), Reads(way="device")] = "none"
    """Where the optimizer states are kept: none leaves them on the GPU."""
    offload_param_device: Annotated[Device | None, Key(), Reads(way="device")] = "none"
    """Stage 3: where the parameters are kept."""
    offload_optimizer_nvme_path: Annotated[str | None, Key(), Reads(way="unused")] = "none"
    """The folder for optimizer states on NVMe. The launcher of Accelerate 1.15 does not hand it on."""
    offload_param_nvme_path: Annotated[str | None, Key(), Reads(way="unused")] = "none"
    """The folder for parameters on NVMe. The launcher of Accelerate 1.15 does not hand it on."""
    gradient_accumulation_steps: Annotated[
        int | Literal["auto"] | None, Key(unit="micro batches"), Reads(way="steps")
    ] = Field("auto", ge=1)
    """Micro batches per optimizer step. "auto" is for scripts that use Trainer."""
    gradient_clipping: Annotated[float | Literal["auto"] | None, Key(), Reads(way="clipping")] = "auto"
    """The largest norm of all gradients; 0 does not clip."""
    zero3_init_flag: Annotated[bool | None, Key(), Reads(way="flag", unset=True)] = None
    """Stage 3: split the parameters as the model is built. Left out, it is true at stage 3."""
    zero3_save_16bit_model: Annotated[bool | None, Key(), Reads(way="true-word")] = False
    """Stage 3: gather the parameters when a model is saved. Without it saving fails, or writes pieces."""
    deepspeed_moe_layer_cls_names: Annotated[str | None, Key()] = None
    """Stage 3: classes that are gathered as a whole, with commas and no spaces between them."""
    deepspeed_hostfile: Annotated[str | None, Key(), Reads(read_if="machines")] = None
    """The file with the machines and their GPUs, for launchers that start all machines."""
    deepspeed_exclusion_filter: Annotated[str | None, Key(), Reads(read_if="machines")] = None
    """Machines and GPUs of the hostfile to leave out. It wins over an inclusion filter."""
    deepspeed_inclusion_filter: Annotated[str | None, Key(), Reads(read_if="machines")] = None
    """Machines and GPUs of the hostfile to use."""
    deepspeed_multinode_launcher: Annotated[
        Literal["pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"] | None,
        Key(),
        Reads(way="launcher", read_if="machines"),
    ] = "pdsh"
    """What starts the workers on several machines; with standard every machine is launched by hand."""
