"""Which files a run is about: the named ones, and in folders those that look like DeepSpeed configs.

`.gitignore` files count as git reads them, those above the folder too, up to the top of its repository.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dsconf.config.context import Context
from dsconf.config.tables import Spec
from dsconf.document.json_scanner import scan
from dsconf.document.source import Unusable, read_text
from dsconf.formats.deepspeed.keys import load_keys
from dsconf.lint.engine import opener
from dsconf.lint.pieces import Skipped, is_yaml
from dsconf.lint.recognise import STRONG, format_of, shaped_like_deepspeed

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SUFFIXES = (".json", ".hjson", ".jsonc", ".yaml", ".yml")
"""The names that a folder is searched for."""
LARGEST = 2**20
"""Bytes. A larger file in a folder is data."""
_NEVER = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "wandb"})
"""Folders that hold other people's files, or what programs wrote. Hidden ones are passed over, too."""


class Found(NamedTuple):
    """What a list of paths comes to."""

    files: list[str]
    empty: list[str]
    """Folders in which no config was found."""


class _Ignore(NamedTuple):
    base: str
    spec: GitIgnoreSpec


Excluded = Callable[[str], tuple[str, Sequence[str]]]
"""For a folder: patterns as in a .gitignore that leave files out of it, after the folder where they begin."""


def _nothing(_: str) -> tuple[str, Sequence[str]]:
    return "", ()


def discover(paths: Iterable[str], excluded: Excluded = _nothing) -> Found:
    """The files of `paths` in the order given, each once; those of a folder sorted by name.

    A named file is taken whatever it is. Raises Unusable for a folder that can't be read.
    """
    files: dict[str, None] = {}
    empty = []
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112  pathlib costs start-up time
            files[path] = None
            continue
        inside = [name for name in _walk(path, *excluded(path)) if _is_config(name)]
        files.update(dict.fromkeys(inside))
        if not inside:
            empty.append(path)
    return Found(list(files), empty)


def _walk(folder: str, root: str, patterns: Sequence[str]) -> Iterator[str]:
    """Every file below a folder with one of `SUFFIXES` that no pattern leaves out."""
    from pathspec import GitIgnoreSpec  # only a folder needs it

    own = [_Ignore(root, GitIgnoreSpec.from_lines(patterns))] if patterns else []
    stack: list[tuple[str, list[_Ignore]]] = [(folder, own + _ignores_above(folder))]
    while stack:
        here, ignores = stack.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            if here == folder:
                raise Unusable("unreadable-file", message) from None
            continue
        ignores = [*ignores, *_ignores_of(here)]
        below = []
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if (is_folder and (entry.name.startswith(".") or entry.name in _NEVER)) or _ignored(
                entry.path, is_folder, ignores
            ):
                continue
            if is_folder:
                below.append((entry.path, ignores))
            elif entry.name.lower().endswith(SUFFIXES) and entry.is_file():
                yield _shown(entry.path, folder)
        stack.extend(reversed(below))


def _shown(path: str, folder: str) -> str:
    """Without the "./" that the present folder would put before every name."""
    return path[2:] if folder == "." else path


def _ignores_above(folder: str) -> list[_Ignore]:
    """What is ignored by the folders above, outermost first, in a git repository."""
    above: list[_Ignore] = []
    place = os.path.abspath(folder)  # noqa: PTH100
    while not os.path.exists(os.path.join(place, ".git")):  # noqa: PTH110, PTH118
        parent = os.path.dirname(place)  # noqa: PTH120
        if parent == place:
            return []
        above = [*_ignores_of(parent), *above]
        place = parent
    return above


def _ignores_of(folder: str) -> list[_Ignore]:
    from pathspec import GitIgnoreSpec

    try:
        with open(os.path.join(folder, ".gitignore"), encoding="utf-8", errors="replace") as handle:  # noqa: PTH118, PTH123
            return [_Ignore(os.path.abspath(folder), GitIgnoreSpec.from_lines(handle))]  # noqa: PTH100
    except (OSError, ValueError):
        return []


def _ignored(path: str, is_folder: bool, ignores: Sequence[_Ignore]) -> bool:
    """Whether the innermost .gitignore that speaks of a path leaves it out."""
    place = os.path.abspath(path)  # noqa: PTH100
    for base, spec in reversed(ignores):
        inside = os.path.relpath(place, base)
        verdict = spec.check_file(inside + "/" if is_folder else inside).include
        if verdict is not None:
            return verdict
    return False


def _is_config(path: str) -> bool:
    try:
        if os.stat(path).st_size > LARGEST:  # noqa: PTH116
            return False
        text = read_text(path)
        return looks_like_yaml_config(path, text) if is_yaml(path) else looks_like_config(text, load_keys())
    except (Unusable, OSError):
        return False


def looks_like_yaml_config(path: str, text: str) -> bool:
    """Whether a YAML file that nobody named is the config of a launcher or trainer with FSDP or DeepSpeed in it."""
    try:
        return bool(opener(Context()).pieces(path, text, recognise=True))
    except (Unusable, Skipped):
        return False


def looks_like_config(text: str, table: Spec) -> bool:
    """Whether a JSON file that nobody named is a config that lint reads, by its content.

    What does not parse is one if it names a key that only DeepSpeed has.
    """
    if (
        not any(f'"{key}"' in text for key in table["keys"])
        and "fsdp" not in text
        and "distributed_type" not in text
    ):
        return False
    try:
        document = scan("", text)
        return shaped_like_deepspeed(document, table) or format_of(document)[0] not in (None, "deepspeed")
    except Unusable:
        return any(f'"{key}"' in text for key in STRONG)
