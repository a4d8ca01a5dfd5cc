"""The name that a misspelt one most likely means."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_ALIKE = 0.88
"""The Jaro-Winkler similarity from which on a name is suggested."""
_FAR = 0.45
"""How many letters may differ, as a part of the longer name."""
_SHORTEST = 0.55
"""How long a name has to be, measured against the other one; a common beginning alone says little."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely a misspelling of, or None. Case and dashes don't matter."""
    return _nearest(name, tuple(known))


@lru_cache(maxsize=256)  # the files of a project have their mistakes in common
def _nearest(name: str, names: tuple[str, ...]) -> str | None:
    import jellyfish  # only needed for a misspelt name

    text = _plain(name)
    if "_" in text:
        # People forget the first words of a long name: hpz_partition_size.
        longer = [candidate for candidate in names if _plain(candidate).endswith("_" + text)]
        if len(longer) == 1:
            return longer[0]
    best, alike = None, _ALIKE
    for candidate in names:
        if min(len(candidate), len(text)) < _SHORTEST * max(len(candidate), len(text)):
            continue
        # A common beginning weighs too much in the similarity: most of the letters have to be the same.
        if jellyfish.damerau_levenshtein_distance(text, _plain(candidate)) > _FAR * max(
            len(text), len(candidate)
        ):
            continue
        similarity = jellyfish.jaro_winkler_similarity(text, _plain(candidate))
        if similarity > alike or (similarity == alike and best is None):
            best, alike = candidate, similarity
    return best


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    # All known names are ASCII. What is not may look like it, and half a surrogate is no text to jellyfish.
    name = name.encode("ascii", "replace").decode("ascii")
    return name.lower().replace("-", "_").replace(" ", "_")
