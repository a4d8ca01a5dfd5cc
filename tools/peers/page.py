"""The page docs/peers.md: everything is run, and written down."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from .faults import FAULTS, FOLDER, Fault
from .losses import FSDP1, LOSSES, MESH, ORIGINALS, STARTS, Loss, launched, to_fsdp2, translate, translation
from .rivals import CONVERTED, RIVALS, WORDS, Verdict, run, verdict

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"
_VERSIONS = ("deepspeed", "accelerate", "transformers", "torch")

INTRODUCTION = """\
# dsconf beside other tools

What tells you that a config is wrong, before the model is loaded? Below are small configs with one fault each, and what
became of each one in the tools that read it. All of it was run by `./dev peers --write`, with {versions}.
`./dev peers` runs it again and shows the page.

To try it, after `pip install .` for dsconf and `pip install -e '.[verify]'` for the others, in a copy, since some of
the commands below change files:

```console
$ cp -r fixtures/peers /tmp && cd /tmp/peers
$ export DS_ACCELERATOR=cpu
$ dsconf lint 01_typo.json --output-format concise
{commands}
```

The first `accelerate launch` with DeepSpeed compiles an operator, which takes a minute. The scripts are a few lines
each: DeepSpeedConfig as each rank builds it; TrainingArguments with DeepSpeed's values held against them, as before
training; `Accelerator()` in one process on the CPU. None of them builds a model. Once there is one, DeepSpeed's engine
refuses 05 and 06 as well, and Accelerate refuses 12 when it prepares it.
"""

TABLE = """\
## Faults

{words}. Every fault has its own words that name it (`tools/peers/faults.py`). dsconf exits with status 1 on each of the
configs, and names nothing else in them; all that it finds stands under [What they say](#what-they-say).
"""

TIME = """\
## Time

Wall time of a command, by that of `dsconf lint` on the same file, run in turn on the same machine: the median over the
files. It is almost wholly the time to import torch and the rest, which dsconf does without.
"""

LOSSES_HEAD = """\
## accelerate to-fsdp2

`accelerate to-fsdp2` turns a config of FSDP1 into one of FSDP2. It renames keys, and says nothing of what has another
meaning then. Beside it `dsconf translate --to accelerate-fsdp2 --in-place`; what its report marks `exact` is left out
here. `accelerate launch` was tried in one process, up to `Accelerator()`.
"""


class Answers(NamedTuple):
    """What the tools made of one config."""

    dsconf: str
    """stdout."""
    rivals: dict[str, Verdict]
    """By title."""
    times: dict[str, float]
    """By title: wall time, by that of dsconf."""


class Conversion(NamedTuple):
    """What became of one file of FSDP1."""

    converted: str
    said: str
    launched: str
    """What `accelerate launch` does with it."""
    translated: str
    """The part of the page about dsconf."""
    launched_translated: str


def measured() -> str:
    """The whole page, of today."""
    with tempfile.TemporaryDirectory() as operators:
        # What DeepSpeed compiles at its first launch is compiled here, before anything is timed.
        os.environ["TORCH_EXTENSIONS_DIR"] = operators
        answers = {}
        for fault in (FAULTS[0], *FAULTS):
            with workplace() as folder:
                answers[fault.file] = _ask(fault, folder)
        conversions = {}
        for loss in LOSSES:
            with workplace() as folder:
                conversions[loss.file] = _convert(loss, folder)
    return page(answers, conversions)


@contextmanager
def workplace() -> Iterator[Path]:
    """A copy of fixtures/peers, to work in."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(FOLDER, Path(folder) / "peers"))


def _ask(fault: Fault, folder: Path) -> Answers:
    mine = run(fault.command, folder)
    verdicts, times = {}, {}
    for rival in RIVALS:
        if command := rival.command(fault.file):
            done = run(command, folder)
            verdicts[rival.title] = verdict(done.status, done.output, fault)
            times[rival.title] = done.seconds / mine.seconds
        else:
            verdicts[rival.title] = Verdict("-", "")
    return Answers(mine.output, verdicts, times)


def _convert(loss: Loss, folder: Path) -> Conversion:
    place = f"to_fsdp2/{loss.file}"
    said = run(to_fsdp2(loss.file), folder).output.strip()
    converted = (folder / CONVERTED).read_text(encoding="utf-8")
    first = launched(CONVERTED, folder)
    done = run(translate(loss.file), folder)
    text = (folder / place).read_text(encoding="utf-8")
    second = "" if done.status else launched(place, folder)
    part = translation(loss.file, done.status, text, done.output)
    return Conversion(converted, said, first, part, second)


def page(answers: Mapping[str, Answers], conversions: Mapping[str, Conversion]) -> str:
    """The page for what was measured, by file."""
    versions = ", ".join(f"{name} {version(name).partition('+')[0]}" for name in _VERSIONS)
    parts = [
        INTRODUCTION.format(versions=versions, commands="\n".join(_commands())),
        TABLE.format(words="; ".join(f"**{word}**: {meaning}" for word, meaning in WORDS.items())),
        _table(
            ["", "fault", "dsconf", *(rival.title for rival in RIVALS)],
            [row(fault, answers[fault.file].dsconf, answers[fault.file].rivals) for fault in FAULTS],
        ),
        _counts(answers),
        TIME,
        _times(answers),
        "## What they say",
    ]
    for fault in FAULTS:
        parts += _said(fault, answers[fault.file])
    parts.append(LOSSES_HEAD)
    for loss in LOSSES:
        parts += _lost(loss, conversions[loss.file])
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _commands() -> Iterator[str]:
    """For each tool one command of each kind."""
    for rival in RIVALS:
        for file in (FAULTS[0].file, FAULTS[-1].file):
            if command := rival.command(file):
                yield f"$ {' '.join(command)}"


def row(fault: Fault, said: str, verdicts: Mapping[str, Verdict]) -> list[str]:
    """The row of a fault: number, what it is, what dsconf finds, and the words for the others."""
    words = [verdicts[rival.title].word for rival in RIVALS]
    return [fault.number, fault.about, findings(said), *words]


def findings(said: str) -> str:
    """The codes of what dsconf found by severity, from its concise output."""
    codes: dict[str, None] = {}
    for line in said.splitlines():
        parts = line.split(" ", 3)
        if len(parts) == 4 and parts[2].rstrip(":") in ("error", "warning", "info"):
            codes[f"{parts[2].rstrip(':')} {parts[1]}"] = None
    return ", ".join(codes)


def finding_block(fault: Fault, said: str) -> str:
    """What dsconf says of a config, as on a terminal."""
    return f"```console\n$ {' '.join(fault.command)}\n{said.strip()}\n```"


def _counts(answers: Mapping[str, Answers]) -> str:
    lines = []
    for rival in RIVALS:
        found = [each.rivals[rival.title].word for each in answers.values()]
        words = [f"{found.count(word)} {word}" for word in WORDS if word != "-" and word in found]
        lines.append(f"- {rival.title}: {', '.join(words)}")
    return "\n".join(["In all:", "", *lines])


def _times(answers: Mapping[str, Answers]) -> str:
    rows = []
    for rival in RIVALS:
        ratios = [each.times[rival.title] for each in answers.values() if rival.title in each.times]
        rows.append([rival.title, f"{statistics.median(ratios):.1f}", str(len(ratios))])
    return _table(["command", "times `dsconf lint`", "files"], rows)


def _said(fault: Fault, answers: Answers) -> Iterator[str]:
    yield f"### {fault.number}: {fault.about}"
    yield _listing(FOLDER / fault.file)
    yield finding_block(fault, answers.dsconf)
    messages = [
        f"- {title}, {each.word}: `{each.message}`" for title, each in answers.rivals.items() if each.message
    ]
    if messages:
        yield "\n".join(messages)


def _lost(loss: Loss, conversion: Conversion) -> Iterator[str]:
    yield f"### {loss.file}"
    yield loss.about
    yield _listing(ORIGINALS / loss.file)
    yield converted_block(loss, conversion.said, conversion.converted)
    yield f"`accelerate launch` of that: {outcome(conversion.launched)}."
    yield conversion.translated
    if conversion.launched_translated:
        yield f"`accelerate launch` of that: {outcome(conversion.launched_translated)}."


def converted_block(loss: Loss, said: str, converted: str) -> str:
    """What `accelerate to-fsdp2` says and writes."""
    command = "\n".join(line for line in ("```console", f"$ {' '.join(to_fsdp2(loss.file))}", said) if line)
    return f"{command}\n```\n\n`{CONVERTED}` then:\n\n```yaml\n{converted.strip()}\n```"


def outcome(text: str) -> str:
    """What `accelerate launch` makes of a file, as the page says it."""
    if text in (STARTS, FSDP1, MESH):
        return text
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _listing(path: Path) -> str:
    return f"```{path.suffix[1:]}\n{path.read_text(encoding='utf-8').strip()}\n```"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
