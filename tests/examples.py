"""The fenced examples of the rule pages, and the lint report of one of them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from dsconf.cli import main

ROOT = Path(__file__).parents[1]
RULES = ROOT / "rules"
PAGES = sorted(RULES.glob("*/*.md"))

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r'(\w+)="([^"]*)"')


class Example(NamedTuple):
    """One fence: a file, and the options with which it is linted."""

    page: Path
    section: str
    number: int
    text: str
    args: tuple[str, ...]
    encoding: str
    sides: tuple[tuple[str, str], ...] = ()
    """The files that options or the example name: those of the page's fences with `file="NAME"`."""
    language: str = "json"

    @property
    def id(self) -> str:
        return f"{self.page.stem}-{self.section}-{self.number}"

    @property
    def file(self) -> str:
        """The name that a file of its language has."""
        return {"json": "ds_config.json", "yaml": "config.yaml", "python": "train.py"}[self.language]

    def write(self, path: Path) -> tuple[str, ...]:
        """Write the file, and beside it those that it or its options name. Returns the options."""
        path.write_bytes(self.text.encode(self.encoding))
        args = []
        sides = dict(self.sides)
        for name, text in sides.items():
            if name in self.text:
                (path.parent / name).write_text(text, encoding="utf-8")
        for arg in self.args:
            if arg in sides:
                side = path.parent / f"{self.id}-{arg}"
                side.write_text(sides[arg], encoding="utf-8")
                arg = str(side)
            args.append(arg)
        return tuple(args)


def sections(page: str) -> list[tuple[str, str]]:
    """The `## heading`s of a page with their text; headings inside of fences are none."""
    hidden = _FENCE.sub(lambda match: re.sub(r"[^\n]", "x", match.group()), page)
    marks = [
        (match.start(), match.end(), match.group(1))
        for match in re.finditer(r"^## (.*)$", hidden, re.MULTILINE)
    ]
    ends = [start for start, _, _ in marks[1:]] + [len(page)]
    return [(title, page[begin:end]) for (_, begin, title), end in zip(marks, ends, strict=True)]


def examples_of(path: Path) -> list[Example]:
    """The fences with examples of one page, in order, under the heading that they stand under."""
    found = []
    sides: list[tuple[str, str]] = []
    for title, text in sections(path.read_text(encoding="utf-8")):
        for number, match in enumerate(_FENCE.finditer(text), 1):
            language, _, rest = match["info"].partition(" ")
            options = dict(_OPTION.findall(rest))
            known = language in ("json", "yaml", "python")
            if not known or _OPTION.sub("", rest).strip() or set(options) - {"args", "encoding", "file"}:
                raise ValueError(f"{path.name}: a fence that is no example: {match['info']!r}")
            if "file" in options:
                sides.append((options["file"], match["text"]))
                continue
            args = tuple(shlex.split(options.get("args", "")))
            encoding = options.get("encoding", "utf-8")
            found.append(Example(path, title, number, match["text"], args, encoding, language=language))
    return [example._replace(sides=tuple(sides)) for example in found]


EXAMPLES = [example for page in PAGES for example in examples_of(page)]


def lint_json(path: Path | str, *args: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the report of `dsconf lint PATH --output-format json ARGS`."""
    result = CliRunner().invoke(main, ["lint", str(path), "--output-format", "json", *args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout)
