"""The globs of settings files, as .gitignore has them."""

from __future__ import annotations

import re


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A glob as an expression for `fullmatch` over a path with forward slashes.

    `*`, `?` and `[...]` stay within one folder, `**` crosses folders; a pattern without a slash (but for one at its
    end) fits at any depth, others from the top on.
    """
    written = pattern
    pattern = pattern.removeprefix("./").rstrip("/")
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    pieces = []
    for part in re.findall(r"^/|\*\*/|/\*\*$|\*+|\?|\[!?\]?[^]]*\]|.", pattern, re.DOTALL):
        if part == "**/":
            pieces.append("(?:[^/]+/)*")
        elif part == "/**":
            pieces.append("/.+")
        elif part.startswith("*"):
            pieces.append("[^/]*" if part == "*" else ".*")
        elif part == "?":
            pieces.append("[^/]")
        elif part.startswith("[") and len(part) > 2:
            body = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            body = "^" + body[1:].replace("^", "\\^") if body.startswith("!") else body.replace("^", "\\^")
            pieces.append(f"(?!/)[{body}]")
        else:
            pieces.append(re.escape(part))
    if pattern.startswith("/"):
        pieces = pieces[1:]
    try:
        return re.compile("".join(pieces), re.DOTALL)
    except re.error as error:
        raise ValueError(f'no glob: "{written}" ({error.msg})') from None
