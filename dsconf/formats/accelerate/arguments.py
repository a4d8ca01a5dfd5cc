"""Arguments of `accelerate launch` that a key of a section may overwrite: the launcher copies all keys onto them."""

from __future__ import annotations

PREFIXES = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""By section what the launcher puts before a key that does not begin with it."""
ARGUMENTS = frozenset({
    "aws_access_key_id", "aws_secret_access_key", "config_file", "cpu", "debug", "downcast_bf16",
    "enable_cpu_affinity", "env", "gpu_ids", "log_dir", "machine_rank", "main_process_ip",
    "main_process_port", "main_training_function", "max_restarts", "mixed_precision", "module",
    "monitor_interval", "mpirun_hostfile", "multi_gpu", "no_python", "num_cpu_threads_per_process",
    "num_machines", "num_processes", "quiet", "rdzv_backend", "rdzv_conf", "role", "same_network",
    "tee", "tpu", "tpu_use_cluster", "tpu_use_sudo", "use_deepspeed", "use_fsdp", "use_megatron_lm",
    "use_parallelism_config", "vm",
})  # fmt: skip
"""Those that belong to no section, but for `OWN`.

What stands in a section comes before the top level, and after the command line.
"""

OWN = {"mpirun_config": "mpirun_hostfile"}
"""By section the argument that is a key of it, as `accelerate config` writes it."""


def overwritten(section: str, name: str) -> str | None:
    """The argument that a key of a section overwrites though it is none of its own; None where it does nothing.

    `name` is a key that the table does not declare in the section.
    """
    prefix = PREFIXES.get(section, "")
    # The launcher looks for "fsdp" and "fp8" without the line after it.
    written = prefix.rstrip("_") if section != "dynamo_config" else prefix
    argument = name if name.startswith(written) else prefix + name
    return argument if argument in ARGUMENTS and argument != OWN.get(section) else None
