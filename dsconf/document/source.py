"""From a path to text, with an error for people where that can't be done."""

from __future__ import annotations

import os
import stat

from dsconf.document.node import Span

MAX_BYTES = 10 * 1024 * 1024
"""A configuration of a few hundred lines is some 10 kB; what is larger is data that was named by mistake."""


class Unusable(Exception):
    """A file that can't be read as what it should be.

    `rule` names the rule that the finding carries, `span` the place, and `text` what could be read so far (both
    None where nothing could).
    """

    def __init__(self, rule: str, message: str, span: Span | None = None, text: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.span = span
        self.text = text


def read_text(path: str) -> str:
    """The text of a UTF-8 file; a byte order mark is kept as U+FEFF.

    Raises Unusable where `path` is missing, not a regular file, unreadable, empty, larger than `MAX_BYTES`, or not
    UTF-8 text.
    """
    check_file(path)
    try:
        with open(path, "rb") as handle:  # noqa: PTH123  pathlib costs start-up time
            data = handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(error) from None
    return decode(data)


def check_file(path: str) -> None:
    """Raises Unusable where `path` is missing, not a regular file, or larger than `MAX_BYTES`."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if stat.S_ISDIR(status.st_mode):
        raise Unusable("unreadable-file", "this is a folder: name the files in it")
    if not stat.S_ISREG(status.st_mode):
        raise Unusable("unreadable-file", "this is not a regular file")
    if status.st_size > MAX_BYTES:
        size, most = status.st_size / 2**20, MAX_BYTES // 2**20
        message = f"the file has {size:.1f} MiB: a configuration has at most {most} MiB"
        raise Unusable("unreadable-file", message)


def _unreadable(error: OSError | ValueError) -> Unusable:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Unusable("unreadable-file", f"cannot be read: {reason}")


def decode(data: bytes) -> str:
    """UTF-8 bytes as text, with universal newlines kept as they are. Raises Unusable, naming what it is instead."""
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise Unusable("unreadable-file", "the file is empty")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data[:4]:
        raise Unusable("unreadable-file", "the text is UTF-16 or UTF-32: save it as UTF-8")
    if b"\x00" in data:
        raise Unusable("unreadable-file", "this is a binary file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {error.start} (line {line}) is not UTF-8: save the file as UTF-8"
        raise Unusable("unreadable-file", message) from None
    return text
