"""The section fsdp_config of training arguments."""

from __future__ import annotations

from dsconf.formats.fsdp_section import BY_SIZE, NO_WRAP, TRANSFORMER, Section
from dsconf.formats.reading import Default, Remark
from dsconf.formats.trainer.notes import SECTION, Notes

_NAMES = {"offload_params": "cpu_offload"}
"""What Trainer calls settings of a section, where that is something else."""
_OFFLOAD_WORD = "fsdp has the word offload"
_ALWAYS = "FSDP1 in Trainer divides parameters, gradients and optimizer, whatever strategy is written"


def read_section(notes: Notes) -> Section:
    """The settings, with what becomes of each key; `fsdp` itself, and its words, say some of them."""
    version = notes.facts.value("fsdp_version")
    classes = notes.value(f"{SECTION}.transformer_layer_cls_to_wrap")
    words = notes.facts.value("fsdp_words")
    policy = notes.value(f"{SECTION}.auto_wrap_policy")
    state = notes.facts.value("state_dict_type")
    smallest = notes.value(f"{SECTION}.min_num_params")
    section = Section(
        version=version if isinstance(version, int) else 2,
        reshard=_reshards(notes, words),
        offload=notes.facts.value("fsdp_offload") is True,
        policy=policy if policy in (TRANSFORMER, BY_SIZE, NO_WRAP) else TRANSFORMER,
        classes=tuple(classes.split(",") if isinstance(classes, str) else classes or ()),
        min_params=smallest if isinstance(smallest, int) else 0,
        state_dict=state if isinstance(state, str) else None,
        loads_on_rank_0=notes.value(f"{SECTION}.cpu_ram_efficient_loading") is True,
        syncs=notes.value(f"{SECTION}.sync_module_states") is not False,
        recompute=_recomputes(notes),
    )
    _place(notes, section, words)
    _leave(notes, section)
    return section


def _reshards(notes: Notes, words: object) -> bool:
    path = f"{SECTION}.reshard_after_forward"
    if notes.config.present(path):
        return notes.value(path) is not False
    return not (isinstance(words, list) and "shard_grad_op" in words)


def _recomputes(notes: Notes) -> bool | None:
    """Whether units are computed again; None where nothing says it."""
    path = f"{SECTION}.activation_checkpointing"
    return notes.value(path) is True if notes.config.present(path) else None


def _place(notes: Notes, section: Section, words: object) -> None:
    """The fields that keys go to, and defaults that change training or its memory."""
    arguments = notes.arguments
    arguments.fields["fsdp"] = "sharding.partition"
    if section.version == 1:
        arguments.remarks["fsdp"] = Remark("exact", _ALWAYS)
    for name, field in section.fields().items():
        path = f"{SECTION}.{_NAMES.get(name, name)}"
        if notes.config.knows(path):
            arguments.fields[path] = field
    version, policy = f"{SECTION}.version", f"{SECTION}.auto_wrap_policy"
    for path, value in ((version, section.version), (policy, section.policy)):
        if not notes.config.present(path):
            arguments.in_force[path] = Default(value, "Trainer's default")
    offload = f"{SECTION}.cpu_offload"
    if section.offload and not notes.config.present(offload):
        arguments.in_force[offload] = Default(True, _OFFLOAD_WORD)
    if isinstance(words, list) and words and section.version == 2:
        note = "words in it are deprecated: fsdp: true, and fsdp_config for the rest"
        arguments.remarks["fsdp"] = Remark("exact", note)


def _leave(notes: Notes, section: Section) -> None:
    """Keys that go to no field."""
    told = set()
    for name, fate in section.fates():
        path = f"{SECTION}.{name}"
        if notes.config.knows(path):
            told.add(path)
            notes.item(path, fate.outcome, fate.note, fate.action)
    if notes.config.present(f"{SECTION}.xla_fsdp_grad_ckpt"):
        notes.item(f"{SECTION}.xla_fsdp_grad_ckpt", "no-effect", "it is for TPUs")
    for item in notes.in_section:
        if item.path in notes.arguments.fields or item.path in told:
            continue
        name = item.path.rpartition(".")[2]
        if name.startswith("xla"):
            notes.item(item.path, "no-effect", "it is for TPUs")
        elif item.spec is None:
            notes.item(item.path, "no-effect", f"Trainer reads no {name} in {SECTION}")
