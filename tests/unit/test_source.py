"""Reading files: one clear error for each kind that can't be read."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dsconf.document.source import MAX_BYTES, Unusable, check_file, decode, read_text


def error_of(path: Path | str) -> str:
    with pytest.raises(Unusable) as caught:
        read_text(str(path))
    assert caught.value.rule == "unreadable-file"
    assert caught.value.span is None
    assert caught.value.text is None
    return caught.value.message


def test_text_is_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes('\ufeff{\r\n"é": 1}\n'.encode())
    assert read_text(str(path)) == '\ufeff{\r\n"é": 1}\n'


def test_missing(tmp_path: Path) -> None:
    assert error_of(tmp_path / "a.json") == "cannot be read: No such file or directory"
    assert error_of("") == "cannot be read: No such file or directory"


def test_folder(tmp_path: Path) -> None:
    assert error_of(tmp_path) == "this is a folder: name the files in it"


def test_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("{}")
    assert error_of(tmp_path / "a" / "b.json") == "cannot be read: Not a directory"


def test_nul_in_the_path() -> None:
    assert error_of("a\0b.json") == "cannot be read: embedded null byte"


def test_a_name_that_is_too_long() -> None:
    assert error_of("x" * 5000) == "cannot be read: File name too long"


def test_fifo_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(10)
    try:
        assert error_of(path) == "this is not a regular file"
    finally:
        signal.alarm(0)


def test_device() -> None:
    assert error_of("/dev/null") == "this is not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    path.chmod(0)
    assert error_of(path) == "cannot be read: Permission denied"


def test_large(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as handle:
        handle.truncate(50 * 2**20)
    assert error_of(path) == "the file has 50.0 MiB: a configuration has at most 10 MiB"
    with pytest.raises(Unusable, match=r"50\.0 MiB"):
        check_file(str(path))


def test_the_largest(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"{" + b" " * (MAX_BYTES - 2) + b"}")
    assert len(read_text(str(path))) == MAX_BYTES


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\t\r\n", "the file is empty"),
        (b"\xef\xbb\xbf\n", "the file is empty"),
        ("{}".encode("utf-16-le"), "the text is UTF-16 or UTF-32: save it as UTF-8"),
        ("{}".encode("utf-16-be"), "the text is UTF-16 or UTF-32: save it as UTF-8"),
        ("{}".encode("utf-16"), "the text is UTF-16 or UTF-32: save it as UTF-8"),
        (b"\xfe\xff" + '{"é": 1}'.encode("utf-16-be"), "the text is UTF-16 or UTF-32: save it as UTF-8"),
        ("{}".encode("utf-32"), "the text is UTF-16 or UTF-32: save it as UTF-8"),
        ("{}".encode("utf-32-be"), "the text is UTF-16 or UTF-32: save it as UTF-8"),
        (b"PK\x03\x04....\x00\x00", "this is a binary file"),
        (b'{"a": "\x00"}', "this is a binary file"),
        (b'{\n "a": "\xe9"}', "byte 9 (line 2) is not UTF-8: save the file as UTF-8"),
        (b'{"a": 1}\xff', "byte 8 (line 1) is not UTF-8: save the file as UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "byte 7 (line 1) is not UTF-8: save the file as UTF-8"),
    ],
)
def test_encodings(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(Unusable) as caught:
        decode(data)
    assert caught.value.message == message
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert error_of(path) == message
