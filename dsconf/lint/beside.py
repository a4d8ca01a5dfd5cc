"""The DeepSpeed config that belongs to a file: the one that it names, or that stands in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from dsconf.config.context import Consumer, Context
from dsconf.config.effective import Config
from dsconf.document.node import Document, Reading
from dsconf.document.source import Unusable, read_text

NAMED_BY: dict[str, tuple[str, Consumer]] = {
    "accelerate": ("deepspeed_config.deepspeed_config_file", "accelerate"),
    "trainer": ("deepspeed", "trainer"),
    "axolotl": ("deepspeed", "trainer"),
    "llamafactory": ("dist_config.config_file", "accelerate"),
}
"""By format the key that names or holds a DeepSpeed config, and who reads that."""


def file_named(config: Config) -> tuple[str, str | None] | None:
    """The DeepSpeed config that a file names: the path as written, and where it is; None for that where it is not.

    A path counts from the folder where the run is started, which nobody knows here: this folder is tried, then that of
    the file. None where no path is named.
    """
    key = NAMED_BY.get(config.format)
    name = config.raw(key[0]) if key else None
    if not isinstance(name, str) or name.lstrip().startswith("{"):
        return None
    folder = os.path.dirname(config.document.path)  # noqa: PTH120
    for path in (name, os.path.join(folder, name)):  # noqa: PTH118
        if os.path.isfile(path):  # noqa: PTH113
            return name, path
    return name, None


def configs_beside(
    config: Config, scan: Callable[..., Document], config_of: Callable[[Document, Context], Config]
) -> Mapping[str, Config]:
    """The DeepSpeed config as `ds`, where there is one that can be read.

    `scan` reads JSON, and `config_of` makes the Config of what it reads.
    """
    document = _document(config, scan)
    if document is None:
        return {}
    context = config.context._replace(consumer=NAMED_BY[config.format][1], guess=None)
    return {"ds": config_of(document, context)}


def _document(config: Config, scan: Callable[..., Document]) -> Document | None:
    entry = config.entry(NAMED_BY[config.format][0]) if config.format in NAMED_BY else None
    if entry is not None and entry.node.kind == "object":
        document = config.document
        return Document(
            document.path, document.text, Reading(entry.node, [], [], []), language=document.language
        )
    named = file_named(config)
    if named is None or named[1] is None:
        return None
    try:
        return scan(named[1], read_text(named[1]), reader="json")
    except Unusable:
        return None
