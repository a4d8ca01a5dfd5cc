"""The named checks over a file of `accelerate launch`, also together with the DeepSpeed JSON that it names."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.effective import Config, Facts
from dsconf.document.node import Span
from dsconf.formats.accelerate.arguments import overwritten
from dsconf.formats.accelerate.problems import CONTAINERS
from dsconf.lint.checks import fsdp
from dsconf.lint.checks.files import file_missing
from dsconf.lint.checks.launch import INLINE
from dsconf.lint.event import Event, Needs
from dsconf.lint.words import Words

_FILE = "deepspeed_config.deepspeed_config_file"


def _names_a_file(config: Config, facts: Facts) -> bool:
    return facts.value("live_section") == "deepspeed_config" and isinstance(config.raw(_FILE), str)


def file_conflict(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Fields that may not stand beside the name of a DeepSpeed JSON."""
    if not _names_a_file(config, facts):
        return
    # A key of the section is refused whatever it says, null included.
    paths = [f"deepspeed_config.{name}" for name in INLINE]
    if config.raw("mixed_precision") is not None:
        paths.append("mixed_precision")
    entries = [(path, entry) for path in paths if (entry := config.entry(path))]
    if not entries:
        return
    ds = config.beside.get("ds")
    elsewhere = tuple(
        (ds.document, entry.span, f"where {path.rpartition('.')[2]} belongs")
        for path, _ in entries
        if ds is not None and (entry := ds.entry(INLINE.get(path.rpartition(".")[2], "")))
    )
    names = [path.rpartition(".")[2] for path, _ in entries]
    named = config.entry(_FILE)
    assert named is not None
    others = [(named.span, "the file"), *((entry.span, "refused beside it") for _, entry in entries[1:])]
    key = {"fields": Words(", ".join(names)), "many": len(names) > 1, "launch": None, "known": True}
    path, entry = entries[0]
    yield Event("accelerate-ds-file-conflict", path, entry.span, key, tuple(others), elsewhere)


def needs_zero_block(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """A named DeepSpeed JSON without zero_optimization."""
    ds, entry = config.beside.get("ds"), config.entry(_FILE)
    if ds is None or not _names_a_file(config, facts):
        return
    assert entry is not None
    root = ds.document.root
    if not (ds.present("zero_optimization") or ds.may_hold("zero_optimization")):
        elsewhere = (
            (ds.document, Span(root.span.start, root.span.start + 1), "no zero_optimization in here"),
        )
        yield Event(
            "accelerate-needs-zero-block", _FILE, entry.span, {"file": config.raw(_FILE)}, (), elsewhere
        )


def key_overwrites(config: Config, facts: Facts) -> Iterator[Event | Needs]:
    """Keys of a section that overwrite an argument of the launcher, unless they say the same as the top level."""
    if facts.value("sagemaker") is not False:
        return
    for section in CONTAINERS:
        above = config.entry(section)
        for entry in above.node.members().values() if above and above.node.kind == "object" else ():
            argument, value = overwritten(section, entry.key), entry.node.plain()
            if (
                argument is None
                or value is None
                or (config.present(argument) and config.raw(argument) == value)
            ):
                continue
            key = {
                "name": entry.key, "section": section, "argument": argument, "value": value,
                "top": argument in config.table["keys"], "differs": config.present(argument),
            }  # fmt: skip
            same = config.entry(argument) if config.present(argument) else None
            others = ((same.span, "not read"),) if same else ()
            yield Event("accelerate-key-overwrites", f"{section}.{entry.key}", entry.span, key, others)


CHECKS = {
    **fsdp.CHECKS,
    "accelerate-ds-file-conflict": file_conflict,
    "accelerate-needs-zero-block": needs_zero_block,
    "accelerate-ds-file-missing": file_missing,
    "accelerate-key-overwrites": key_overwrites,
}
