"""Keys of an Accelerate config that have no place in the Plan, and what a translation makes of each."""

from __future__ import annotations

from dsconf.config.tables import spec_at
from dsconf.formats.accelerate.arguments import overwritten
from dsconf.formats.accelerate.live import SECTIONS
from dsconf.formats.accelerate.notes import MEETING, SIZES, Notes
from dsconf.formats.fsdp_section import Fate
from dsconf.formats.outcome import Item
from dsconf.formats.writing import UNTRAINED

_TPU = Fate("no-effect", "it is for TPUs")
_UNREAD = Fate("no-effect", "the launcher hands it to no worker")
_COMPILE = Fate(
    "no-effect",
    "it compiles the model: other speed and rounding, the same training",
    "call torch.compile(model) in your script, before it is sharded",
)

FATES: dict[str, Fate] = {
    "compute_environment": Fate("no-effect", "a machine of one's own"),
    "gpu_ids": Fate("no-effect", "which GPUs of the machine are taken", "set CUDA_VISIBLE_DEVICES instead"),
    **{key: Fate("no-effect", UNTRAINED[f"launch.{name}"].note) for key, name in MEETING.items()},
    **dict.fromkeys(("rdzv_backend", "same_network", "downcast_bf16", "enable_cpu_affinity"), _UNREAD),
    "use_cpu": Fate("no-effect", "where it trains, not what"),
    "debug": Fate("no-effect", "it checks the shapes of what is communicated"),
    "main_training_function": Fate("no-effect", "only TPUs are started by it"),
    **dict.fromkeys(
        (
            "tpu_name",
            "tpu_zone",
            "tpu_use_cluster",
            "tpu_use_sudo",
            "tpu_vm",
            "tpu_env",
            "command_file",
            "commands",
        ),
        _TPU,
    ),
    "mpirun_config": Fate("no-effect", "how processes are started, not what they train"),
    "fp16": Fate("no-effect", "mixed_precision counts, where it is written"),
}
"""By path; a row for a section holds for all its keys."""

_LAYOUT = {
    "cp_backend": Fate("no-effect", "there is one only"),
    "cp_comm_strategy": Fate(
        "no-effect", "how keys and values travel between the ranks of a sequence: no number changes"
    ),
    "sp_backend": Fate("no-effect", "there is one only"),
    "sp_seq_length": Fate("no-effect", "it says how long sequences are, not what is trained on them"),
    "sp_seq_length_is_variable": Fate("no-effect", "it says whether sequences are of one length"),
    "sp_attn_implementation": Fate(
        "no-effect", "the kernel of the attention", "set attn_implementation where you load the model"
    ),
}


def leave_out(notes: Notes) -> None:
    """Say what becomes of each written key of which nothing is said yet."""
    _overwriting(notes)
    _sections(notes)
    _layout(notes)
    _compiling(notes)
    if notes.facts.value("mixed_precision") != "fp8":
        _whole(notes, "fp8_config", Fate("no-effect", "only mixed_precision: fp8 reads it"))
    else:
        _whole(notes, "fp8_config", Fate("unsupported", "8-bit training is not translated"))
    for path, fate in FATES.items():
        _whole(notes, path, fate)
    _unknown(notes)


def _overwriting(notes: Notes) -> None:
    """Keys of sections that the launcher takes for its own arguments, whether the section counts or not."""
    whole = notes.config.document.root.plain()
    sections = whole.items() if isinstance(whole, dict) else ()
    for section, content in sections:
        for name, value in content.items() if isinstance(content, dict) else ():
            argument, path = overwritten(section, name), f"{section}.{name}"
            if value is None or argument is None or _declared(notes, path) or path in notes.done:
                continue
            note = f"it takes the place of the launcher's {argument}, although it stands in {section}"
            notes.items.append(
                Item(path, value, "unsupported", note=note, action=f"write {argument} at the top level")
            )


def _sections(notes: Notes) -> None:
    """Sections that distributed_type does not make count."""
    live = notes.facts.value("live_section")
    for section in SECTIONS.values():
        if section != live:
            note = f"distributed_type is {notes.distributed}: nothing reads this section"
            _whole(notes, section, Fate("no-effect", note))
        elif section == "megatron_lm_config":
            _whole(notes, section, Fate("no-effect", "it belongs to distributed_type"))


def _layout(notes: Notes) -> None:
    if notes.facts.value("parallelism_on") is not True:
        note = f"the launcher of {notes.distributed} hands no layout on"
        _whole(notes, "parallelism_config", Fate("no-effect", note))
    for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp"):
        path = SIZES.format(name)
        if notes.config.value(path) == 1:
            notes.fields.pop(path, None)
            notes.item(path, "no-effect", "over one rank nothing is divided")
    for name, fate in _LAYOUT.items():
        notes.item(f"parallelism_config.parallelism_config_{name}", *fate)
    on, sharded = notes.size("dp_shard") > 1, notes.facts.value("fsdp_on") is True
    if on and not sharded and notes.distributed != "DEEPSPEED":
        path = SIZES.format("dp_shard")
        notes.fields.pop(path, None)
        notes.item(path, "no-effect", "without FSDP nothing is sharded")


def _compiling(notes: Notes) -> None:
    off = Fate("no-effect", "nothing is compiled")
    backend = notes.config.value("dynamo_config.dynamo_backend")
    old = notes.config.value("dynamo_backend")
    on = str(old if notes.config.present("dynamo_backend") else backend).lower() not in ("no", "none")
    fate = _COMPILE if on and notes.distributed != "DEEPSPEED" else off
    notes.item("dynamo_backend", *fate)
    notes.item("dynamo_config.dynamo_backend", *fate)
    _whole(notes, "dynamo_config", off if not on else Fate("no-effect", "how torch.compile works"))


def _whole(notes: Notes, path: str, fate: Fate) -> None:
    """A key, or all keys of a section of which nothing is said."""
    below = [item.path for item in notes.config.written if item.path.startswith(f"{path}.")]
    for inner in dict.fromkeys(below):
        notes.item(inner, *fate)
    if not below:
        notes.item(path, *fate)


def _unknown(notes: Notes) -> None:
    """Keys that Accelerate does not have."""
    for written in notes.config.written:
        path, node = written.path, written.entry.node
        if path in notes.done or (node.kind == "object" and node.entries):
            continue
        if node.kind == "object":
            notes.item(path, "no-effect", "it is empty")
        elif _declared(notes, path):
            notes.item(path, "no-effect", "nothing here reads it")
        else:
            notes.item(path, "no-effect", "Accelerate has no such key, and does not read it")


def _declared(notes: Notes, path: str) -> bool:
    try:
        spec_at(notes.config.table, path)
    except KeyError:
        return False
    return True
