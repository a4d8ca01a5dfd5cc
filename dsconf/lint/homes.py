"""Where a key belongs that stands in a section without it."""

from __future__ import annotations

from collections.abc import Iterator

from dsconf.config.tables import Spec, per_table


def home_of(table: Spec, name: str, section: str) -> str | None:
    """The dotted canonical path that `name`, written in `section`, is meant for; None where that is open.

    It has to be the only key of that name. A name of one word may mean anything, so that it has to belong near
    `section`: to the top level, or to a section directly above, below or beside it.
    """
    homes = _homes(table).get(name, set())
    if len(homes) != 1:
        return None
    (home,) = homes
    place = home.rpartition(".")[0]
    above = section.rpartition(".")[0]
    near = place in ("", above) or place.rpartition(".")[0] in (section, above)
    return home if near or "_" in name else None


@per_table
def _homes(table: Spec) -> dict[str, set[str]]:
    """The canonical paths that each name stands for somewhere."""
    homes: dict[str, set[str]] = {}
    for name, path in _names(table, ""):
        homes.setdefault(name, set()).add(path)
    return homes


def _names(section: Spec, above: str) -> Iterator[tuple[str, str]]:
    """Each name of a key, other spellings too, with the canonical path that it stands for."""
    for name, spec in section["keys"].items():
        path = above + spec.get("alias", name)
        if spec.get("status") != "removed":
            yield name, path
        if "keys" in spec:
            yield from _names(spec, path + ".")
