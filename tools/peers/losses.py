"""What `accelerate to-fsdp2` loses, on files of fixtures/peers/to_fsdp2, beside what dsconf makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .faults import FOLDER
from .rivals import CONVERTED, ONE_PROCESS, error_of, run, shown

ORIGINALS = FOLDER / "to_fsdp2"
STARTS = "starts"
FSDP1 = "starts as FSDP1, which needs a GPU"
MESH = "starts, up to a mesh for which one process is too few"


class Loss(NamedTuple):
    """A file of FSDP1, and what of it is lost."""

    file: str
    about: str


LOSSES = (
    Loss(
        "hybrid_shard.yaml",
        "HYBRID_SHARD on two machines is a copy of the model on each: `to-fsdp2` leaves the copies out, and without"
        " `parallelism_config` FSDP2 divides the model over all 16 GPUs, gathered over the network in each step.",
    ),
    Loss(
        "no_shard.yaml",
        "NO_SHARD divides nothing; `to-fsdp2` writes what divides everything between steps.",
    ),
    Loss(
        "lower_case.yaml",
        "Accelerate takes the names of strategies in lower case as well; `to-fsdp2` leaves the text, and the run"
        " ends at it.",
    ),
    Loss("integer.yaml", "The same with the number of a strategy, 2 for SHARD_GRAD_OP."),
    Loss(
        "without_prefix.yaml",
        "Accelerate takes keys without `fsdp_`, too; `to-fsdp2` knows none of them, and adds a second version."
        " The run is still one of FSDP1.",
    ),
    Loss(
        "local_state_dict.yaml",
        "FSDP2 has no LOCAL_STATE_DICT; `to-fsdp2` leaves it, and the run ends at it.",
    ),
    Loss(
        "two_strategies.yaml",
        "FSDP1 goes by `fsdp_sharding_strategy`, and does not read the other key; `to-fsdp2` goes by whichever"
        " comes last.",
    ),
    Loss(
        "version_2_with_fsdp1_keys.yaml",
        "A file that says version 2 already, with a strategy that FSDP2 does not read: `to-fsdp2` writes the file as"
        " it is; dsconf asks which of the two is meant.",
    ),
    Loss("comments.yaml", "Comments and the order of keys are lost; dsconf changes the lines that differ."),
)


def to_fsdp2(file: str) -> tuple[str, ...]:
    """The command that converts one of the files."""
    return (
        "accelerate",
        "to-fsdp2",
        "--config_file",
        f"to_fsdp2/{file}",
        "--output_file",
        CONVERTED,
        "--overwrite",
    )


def translate(file: str) -> tuple[str, ...]:
    """How dsconf is asked for the same."""
    return ("dsconf", "translate", f"to_fsdp2/{file}", "--to", "accelerate-fsdp2", "--in-place")


def launched(file: str, folder: Path) -> str:
    """What becomes of a config under `accelerate launch`, in one process: STARTS, FSDP1, MESH, or the error."""
    command = ("accelerate", "launch", "--config_file", file, *ONE_PROCESS, "accelerator.py")
    done = run(command, folder)
    if "no available devices" in done.output:
        return FSDP1
    if "Mesh should not be bigger than default world size" in done.output:
        return MESH
    return shown(error_of(done.output)) if done.status else STARTS


def translation(file: str, status: int, text: str, report: str) -> str:
    """The part of the page about what dsconf makes of a file, given what it left in it and said on stderr."""
    remarks = [line for line in report.splitlines() if not line.startswith("  exact")]
    said = "\n".join(line.rstrip() for line in remarks).strip()
    lines = ["```console", f"$ {' '.join(translate(file))}", said, "```"]
    if not status:
        lines += ["", f"`{file}` then:", "", "```yaml", text.rstrip("\n"), "```"]
    return "\n".join(lines)
