"""Hand-formatted YAML of arguments, with what is left to the user as comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsconf.formats import yaml_lines
from dsconf.formats.outcome import Landing

_START = "in your script: "


def open_lines(open_: Mapping[str, str], unsaid: Sequence[str] = ()) -> list[str]:
    """Comments on the arguments that the user has to write: those left open, and those of which nothing is said."""
    found = [f"# {name}: ...  # {key} is left open: write your own" for name, key in open_.items()]
    if unsaid:
        found += [
            "",
            f"# Not said by the source: {', '.join(unsaid)}. Write yours; else Trainer's defaults hold.",
        ]
    return found


def heading(origin: str, landings: Mapping[str, Landing], labels: Mapping[str, str]) -> list[str]:
    """The comment at the head: what the file is, and what the script has to do beside it."""
    told = {
        field: landing.action.removeprefix(_START)
        for field, landing in landings.items()
        if landing.action is not None and landing.action.startswith(_START)
    }
    # Of several fields with one duty the first one with a key names it.
    keys = {duty: labels[field] for field, duty in [*told.items()][::-1] if field in labels}
    duties = {duty: keys.get(duty, field.replace(".", " ").replace("_", " ")) for field, duty in told.items()}
    return [*yaml_lines.heading(origin, "In the script", [(what, duty) for duty, what in duties.items()]), ""]
