"""What a writer of a format is given, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dsconf.formats.choices import Style
from dsconf.formats.outcome import Landing

UNTRAINED = dict.fromkeys(
    ("launch.host", "launch.port", "launch.machine_rank"),
    Landing("no-effect", "", "it says how processes find each other, not what they train"),
)
"""What becomes of the fields for that where they belong on the command line, and not into what is written."""

UP_TO_SCRIPT = dict.fromkeys(
    ("length.steps", "length.epochs"), Landing("no-effect", "", "how long to train is up to the script")
)
"""What becomes of the fields for that where a script has the loop over the data."""


class Request(NamedTuple):
    """What a writer needs beside the Plan."""

    origin: str
    """What the output is, for its head: one line, or more."""
    labels: Mapping[str, str]
    """By field of the Plan where its value comes from, for comments."""
    style: Style = "module"
    """Of code: a whole module, or the function that shards the model alone."""
    torch: str | None = None
    """The version of torch that has to have all names; None: the newest."""


class Writing(NamedTuple):
    """What is written, and what became of each field of the Plan."""

    text: str
    landings: Mapping[str, Landing]
    needs: str = ""
    """What it is for: "torch >= 2.9", "Accelerate 1.15"."""
    beside: Mapping[str, str] = {}
    """By name the other files that `text` names, in its folder."""
