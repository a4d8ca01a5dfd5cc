"""Every key of a settings file: what TOML writes it as, and what it does."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["text", "list", "lists", "integer", "number"]
KIND_NAMES: dict[Kind, str] = {
    "text": "a string",
    "list": "a list of strings",
    "lists": "a table of lists of strings",
    "integer": "an integer",
    "number": "a number",
}


class Setting(NamedTuple):
    """One key."""

    kind: Kind
    help: str = ""
    """Empty where the option of the same name says it."""
    path: bool = False
    """Whether the value names a file or folder, from the folder of the settings file."""


SETTINGS: dict[str, Setting] = {
    "select": Setting("list", "Rules to run: codes, beginnings of codes, names, or ALL (the default)."),
    "ignore": Setting("list", "Rules to leave out; against `select` the more exact one counts."),
    "per-file-ignores": Setting(
        "lists", "For a glob of files, or `glob#key.path`: rules to leave out there."
    ),
    "exclude": Setting(
        "list", "Globs of files and folders that are not looked into when a folder is linted."
    ),
    "rules": Setting("list", "Folders with rules of your own.", path=True),
    "baseline": Setting("text", "A baseline file: what it lists is known, and hidden.", path=True),
    "consumer": Setting("text"),
    "world-size": Setting("integer"),
    "deepspeed-version": Setting("text"),
    "gpus-per-node": Setting("integer"),
    "gpu": Setting("text"),
    "gpu-memory": Setting("number"),
    "host-memory": Setting("number"),
    "resume-world-size": Setting("integer"),
    "model": Setting("text", path=True),
    "training-args": Setting("text", path=True),
    "launch-config": Setting("text", path=True),
    "torch-version": Setting("text"),
    "accelerate-version": Setting("text"),
    "transformers-version": Setting("text"),
}
"""Those from `consumer` on are the options of the same name, for when the command line does not give them."""
