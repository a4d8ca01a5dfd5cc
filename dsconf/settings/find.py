"""Which settings file counts for a path. It is on the way of every run, so it costs little where there is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsconf.settings.load import Settings

NAMES = ("dsconf.toml", "pyproject.toml")
"""In a folder with both the first counts."""


class Finder:
    """Looks each folder up once."""

    def __init__(self) -> None:
        self._found: dict[str, Settings | None] = {}

    def find(self, path: str) -> Settings | None:
        """The settings of the nearest file from `path` upwards that has some. Raises SettingsError."""
        return self._in(os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120  start-up time

    def _in(self, folder: str) -> Settings | None:
        if folder in self._found:
            return self._found[folder]
        settings = None
        for name in NAMES:
            settings = settings or _beside(os.path.join(folder, name), folder)  # noqa: PTH118
        above = os.path.dirname(folder)  # noqa: PTH120
        if settings is None and above != folder:
            settings = self._in(above)
        self._found[folder] = settings
        return settings


def _beside(path: str, root: str) -> Settings | None:
    """The settings of a file that may be there. Raises SettingsError."""
    if not os.path.isfile(path):  # noqa: PTH113
        return None
    data = _data(path)
    if path.endswith(NAMES[1]) and not _may_have_section(data):
        return None
    from dsconf.settings.load import load  # with tomllib, which costs time

    return load(path, data, root)


def _may_have_section(data: bytes) -> bool:
    """Whether a pyproject.toml may say something under tool.dsconf: many that depend on dsconf do not."""
    plain = data.translate(None, b" \t\"'")
    return b"dsconf" in data and any(form in plain for form in (b"tool.dsconf", b"[tool]", b"tool={"))


def _data(path: str) -> bytes:
    try:
        with open(path, "rb") as handle:  # noqa: PTH123
            return handle.read()
    except (OSError, ValueError) as error:
        from dsconf.settings.load import SettingsError

        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SettingsError(f"{path}: cannot be read: {reason}") from None


def read(path: str) -> Settings:
    """The settings of a file that is named; globs and paths in it begin in the current folder. Raises SettingsError."""
    from dsconf.settings.load import SECTION, SettingsError, load

    settings = load(path, _data(path), os.getcwd())  # noqa: PTH109
    if settings is None:
        raise SettingsError(f"{path}: it has no [{'.'.join(SECTION)}]")
    return settings
