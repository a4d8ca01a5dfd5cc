"""The configs of fixtures/peers, the fault that each one has, and where dsconf finds it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "fixtures" / "peers"
_NOT_A_NUMBER = "(text|str|number|float|int)"


class Fault(NamedTuple):
    """A config with one fault."""

    file: str
    about: str
    found: tuple[str, ...]
    """What dsconf finds, as `line:column code`."""
    named: str
    """What a message says that names the fault: a regular expression, without regard to case."""
    options: tuple[str, ...] = ()
    """What dsconf has to know beside the file."""

    @property
    def number(self) -> str:
        """The number of the fault; those of one kind differ by a letter."""
        return self.file.partition("_")[0]

    @property
    def command(self) -> tuple[str, ...]:
        """How dsconf is asked."""
        return ("dsconf", "lint", self.file, *self.options, "--output-format", "concise")


FAULTS = (
    Fault("01_typo.json", "a typo in a key", ("3:3 DS104",), "gradient_cliping"),
    Fault("01b_typo_in_section.json", "a typo in a key of a section", ("5:38 DS105",), "overlap_com\\b"),
    Fault(
        "02_batch_sizes.json",
        "batch sizes that fit no number of GPUs",
        ("2:3 DS201",),
        "train_batch_size.*10",
    ),
    Fault(
        "03_two_precisions.json", "fp16 and bf16", ("3:13 DS301",), "(bf16|bfloat16) and fp16|fp16 and bf16"
    ),
    Fault(
        "04_offload_param_stage_2.json",
        "parameters are offloaded at ZeRO-2, which does not do that",
        ("5:38 DS501",),
        "offload_param",
    ),
    Fault(
        "05_nvme_without_path.json", "offload to NVMe without a path", ("5:61 DS502",), "nvme.*(path|where)"
    ),
    Fault("06_unknown_optimizer.json", "an optimizer that does not exist", ("4:18 DS601",), "AdamWW"),
    Fault(
        "07_duplicate_key.json",
        "a key written twice, with two values",
        ("4:3 DS102",),
        "duplicate.*gradient_clipping|gradient_clipping.*twice",
    ),
    Fault("08_deprecated_offload.json", "a deprecated key", ("5:38 DS108",), "cpu_offload"),
    Fault(
        "09_number_as_text.json",
        "a learning rate written as text",
        ("4:47 DS106",),
        f"lr\\b.*{_NOT_A_NUMBER}",
    ),
    Fault(
        "09b_batch_size_as_text.json",
        "a batch size written as text",
        ("2:3 DS106",),
        f"batch_size.*{_NOT_A_NUMBER}",
    ),
    Fault(
        "09c_bucket_as_text.json",
        "a number of elements written as text",
        ("5:38 DS106",),
        f"reduce_bucket_size.*{_NOT_A_NUMBER}",
    ),
    Fault(
        "10_fsdp1_keys_in_fsdp2.yaml",
        "five keys of FSDP1 under FSDP2",
        ("9:3 FS104", "10:3 FS104", "11:3 FS102", "12:3 FS104", "13:3 FS104"),
        "fsdp2.*(prefetch|sharding_strategy|sync_module_states|use_orig_params)"
        "|(prefetch|sharding_strategy|sync_module_states|use_orig_params).*fsdp2",
    ),
    Fault(
        "11_full_checkpoint_offload.yaml",
        "offload to the CPU, and checkpoints that gather the whole model there",
        ("11:3 FS112",),
        "FULL_STATE_DICT",
        ("--model", "llama_70b.json", "--host-memory", "512"),
    ),
    Fault(
        "12_space_between_classes.yaml",
        "a space in the list of layer classes",
        ("9:3 FS110",),
        "transformer_layer_cls_to_wrap|LlamaMLP",
    ),
)
