"""Reads a settings file, and says with its line what is wrong in it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dsconf.document.source import Unusable, decode
from dsconf.lint.nearest import nearest
from dsconf.settings.table import KIND_NAMES, SETTINGS, Kind

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SECTION = ("tool", "dsconf")
"""Where a pyproject.toml has the settings."""
_KEY = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")


class SettingsError(ValueError):
    """A settings file that can't be used; the message begins with its place."""


class Settings:
    """What a settings file says, checked for its form; paths in it are relative to `root`."""

    __slots__ = ("file", "root", "section", "text", "values")

    def __init__(
        self, file: str, root: str, section: tuple[str, ...], values: dict[str, Any], text: str
    ) -> None:
        self.file = file
        self.root = root
        self.section = section
        self.values = values
        self.text = text

    def line(self, *keys: str, element: str | None = None) -> int:
        """The 1-based line of a key, or of an element of its list."""
        return line_of(self.text, (*self.section, *keys), element)

    def error(self, message: str, *keys: str, element: str | None = None) -> SettingsError:
        """An error about a key, with its place."""
        return SettingsError(f"{self.file}:{self.line(*keys, element=element)}: {message}")

    def relative(self, path: str) -> str | None:
        """A path as the globs see it, with forward slashes; None where it lies elsewhere."""
        inside = os.path.relpath(os.path.abspath(path), self.root).replace(os.sep, "/")  # noqa: PTH100
        return None if inside.startswith("../") else inside


def load(path: str, data: bytes, root: str) -> Settings | None:
    """The settings of a file with this content; None for a pyproject.toml without any. Raises SettingsError."""
    file = shown(path)
    try:
        text = decode(data).removeprefix("\ufeff") if data.strip() else ""
    except Unusable as problem:
        raise SettingsError(f"{file}:1: {problem.message}") from None
    try:
        values: Any = tomllib.loads(text)
    except ValueError as error:
        message, line = _toml_fault(str(error), text)
        raise SettingsError(f"{file}:{line}: {message}") from None
    section = SECTION if os.path.basename(path) == "pyproject.toml" else ()  # noqa: PTH119
    for key in section:
        if not isinstance(values, dict) or key not in values:
            return None
        values = values[key]
    settings = Settings(file, root, section, {}, text)
    if not isinstance(values, dict):
        raise settings.error(f"{'.'.join(section)} should be a table")
    for key, value in values.items():
        settings.values[key] = _checked(settings, key, value)
    return settings


def _checked(settings: Settings, key: str, value: object) -> object:
    if key not in SETTINGS:
        meant = nearest(key, SETTINGS)
        hint = f'did you mean "{meant}"?' if meant else f"there are {', '.join(SETTINGS)}"
        raise settings.error(f'unknown setting "{key}": {hint}', key)
    setting = SETTINGS[key]
    if not _is(setting.kind, value):
        wanted = KIND_NAMES[setting.kind]
        raise settings.error(f"{key} should be {wanted}, not {_show(value)}", key)
    if key in ("exclude", "per-file-ignores"):
        _check_globs(settings, key, value)
    if not setting.path:
        return value
    if isinstance(value, list):
        return [os.path.join(settings.root, path) for path in value]  # noqa: PTH118
    return os.path.join(settings.root, str(value))  # noqa: PTH118


def _check_globs(settings: Settings, key: str, value: Any) -> None:
    for pattern in value:
        try:
            patterns([split_key(pattern)[0] if key == "per-file-ignores" else pattern])
        except ValueError as error:
            raise settings.error(f'{key}: no pattern: "{pattern}" ({error})', key, element=pattern) from None


def patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Patterns as a .gitignore has them. Raises ValueError."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def split_key(pattern: str) -> tuple[str, str | None]:
    """`glob#key.path` in its parts; None where it names no key."""
    files, mark, key = pattern.rpartition("#")
    return (files, key or None) if mark else (pattern, None)


def _is(kind: Kind, value: object) -> bool:
    if kind == "text":
        return isinstance(value, str) and bool(value)
    if kind == "list":
        return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    if kind == "lists":
        return isinstance(value, dict) and all(_is("list", item) for item in value.values())
    number = int if kind == "integer" else (int, float)
    return isinstance(value, number) and not isinstance(value, bool)


def _show(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _toml_fault(message: str, text: str) -> tuple[str, int]:
    """tomllib's message without the place, and the line."""
    match = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if match is None:
        return message, 1
    return f"no TOML: {message[: match.start()]}", int(match[1]) if match[1] else text.count("\n") + 1


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, dotted))


def line_of(text: str, path: tuple[str, ...], element: str | None = None) -> int:
    """The 1-based line where a key stands in a TOML file, or else the nearest table around it.

    A file that tomllib reads is well-formed, so its lines tell enough: headers, keys, and after them the text of an
    element or of a key in an inline table.
    """
    table: tuple[str, ...] = ()
    line, depth = 1, 0
    lines = text.splitlines()
    for number, content in enumerate(lines, 1):
        header, assignment = _HEADER.match(content), _ASSIGNMENT.match(content)
        if header:
            table = here = _parts(header[1])
        elif assignment:
            here = (*table, *_parts(assignment[1]))
        else:
            continue
        if depth < len(here) and path[: len(here)] == here:
            line, depth = number, len(here)
    wanted = [*path[depth:], *([] if element is None else [element])]
    for number in range(line, len(lines) + 1):
        if wanted and re.search(rf"""["']{re.escape(wanted[-1])}["']""", lines[number - 1]):
            return number
    return line


def shown(path: str) -> str:
    """The path from the current folder where it lies below."""
    here = os.path.relpath(path)
    return path if here.startswith("..") else here
