"""A translation from start to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from dsconf import __version__
from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.edit import EditError
from dsconf.document.node import UNKNOWN
from dsconf.document.source import Unusable, read_text
from dsconf.formats.choices import Numerics, Style
from dsconf.formats.reading import Reading
from dsconf.formats.writing import Request, Writing
from dsconf.lint.engine import lint_config, opener, unusable_result
from dsconf.lint.finding import Finding, Result, place_of
from dsconf.lint.index import load_rules
from dsconf.lint.inside import language_of
from dsconf.lint.pieces import Piece, Skipped
from dsconf.lint.recognise import NO_KEYS
from dsconf.lint.selection import Rule
from dsconf.plan import Plan
from dsconf.translate.names import title
from dsconf.translate.numerics import difference, recommended
from dsconf.translate.readers import READ, is_code, is_older_code, left_open, read, read_code
from dsconf.translate.refusals import stops, with_refusals
from dsconf.translate.report import Report, assemble
from dsconf.translate.targets import in_place as change
from dsconf.translate.targets import reading_for, takes, write
from dsconf.translate.told import Told
from dsconf.translate.wrapping import Chosen, choose, divided


class Refused(Exception):
    """The meaning of the source can't be determined; `result` holds the findings that say why."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.file)
        self.result = result


class NoSuchKey(Exception):
    """A value was given for a key that the source can't have; the argument is the key."""


class _Source(NamedTuple):
    """A source as it was read."""

    told: Told
    config: Config | None
    """None for code."""
    findings: Sequence[Finding]
    """What lint says of the config."""
    overridden: frozenset[str]
    """The overrides that it takes."""


class Translation(NamedTuple):
    """What was written, without what the report calls unsupported, and the report."""

    text: str
    report: Report
    beside: Mapping[str, str]
    """By name the files that belong into the folder of `text`, which names them."""


def translate(
    path: str,
    target: str,
    context: Context,
    overrides: Mapping[str, object],
    blocks: Sequence[str],
    *,
    numerics: Numerics = "deepspeed",
    style: Style = "module",
    in_place: bool = False,
) -> Translation:
    """Translate a file of any format that can be read to a target.

    `overrides` are values by dotted path that count instead of the file's, `blocks` the class names of the modules to
    shard one by one; `numerics` says whether FSDP2 code trains as the source does, or as PyTorch recommends; `style`
    whether it has all that a run needs, or only parallelize. With `in_place` the text is that of the source, changed
    where it has to be: from an Accelerate config for FSDP1 to one for FSDP2.

    Raises Refused where the file is unreadable, or its own framework would refuse it and its meaning is open,
    NoSuchKey for an override that no config in the file takes, EditError where the source can't be changed to the
    target in place, and `lint.pieces.Skipped` where there is nothing to translate in it.
    """
    source = _open(path, context, overrides, load_rules())
    given = {key: value for key, value in overrides.items() if key not in source.overridden}
    for key in given:
        if in_place or not takes(target, key, context.deepspeed_version):
            raise NoSuchKey(key)
    reading = reading_for(target, source.told)
    compared = (reading.source, target) == ("deepspeed", "fsdp2")
    other = difference(reading.plan, numerics) if compared else ""
    if target == "fsdp2" and numerics == "pytorch":
        reading = recommended(reading)
    chosen = choose(
        blocks, context, reading.plan.wrapping, _labels(reading).get("wrapping.block_classes", "")
    )
    plan, labels = _completed(reading, chosen, context)
    if in_place:
        return _in_place(source, target, labels, chosen)

    def written(left_out: Sequence[str]) -> Writing:
        origin = _origin(path, reading.source, target, left_out, numerics)
        request = Request(origin, labels, style, context.torch_version)
        return write(target, source.told.deepspeed, reading, plan, request, given, context.deepspeed_version)

    writing = written(())
    report = assemble(path, reading, writing, target, context, numerics, other, chosen)
    left_out = [item.key for item in report.items if item.outcome == "unsupported"]
    if left_out:
        writing = written(left_out)
    return Translation(writing.text, _with_refusals(report, source), writing.beside)


def _in_place(source: _Source, target: str, labels: Mapping[str, str], chosen: Chosen) -> Translation:
    if target != "accelerate-fsdp2" or source.config is None or source.config.format != "accelerate":
        raise EditError("only an Accelerate config can be changed in place, to accelerate-fsdp2")
    config = source.config
    reading, writing = change(config, labels, chosen.wrapping.block_classes)
    report = assemble(config.document.path, reading, writing, target, config.context, "deepspeed", "", chosen)
    return Translation(writing.text, _with_refusals(report, source), {})


def _completed(reading: Reading, chosen: Chosen, context: Context) -> tuple[Plan, dict[str, str]]:
    """The Plan with what the circumstances add to it, and by field where its value comes from."""
    parallelism, more = divided(reading.plan.parallelism, chosen, context.model)
    launch = reading.plan.launch
    given = {"world_size": context.world_size, "gpus_per_node": context.gpus_per_node}
    launch = launch.model_copy(update={name: value for name, value in given.items() if value is not None})
    update = {"wrapping": chosen.wrapping, "parallelism": parallelism, "launch": launch}
    return reading.plan.model_copy(update=update), _labels(reading) | chosen.labels | more


def _with_refusals(report: Report, source: _Source) -> Report:
    if source.config is None:
        return report
    return report._replace(items=with_refusals(report.items, source.config, source.findings))


def _origin(path: str, source: str, target: str, left_out: Sequence[str], numerics: Numerics) -> str:
    """The first lines of what is written; a file may have any name, quotes and line ends included."""
    name = "".join(c if c.isprintable() and c not in '"\\' else "?" for c in Path(path).name)
    written = f"Written by dsconf {__version__}"
    if left_out:
        keys = "\n".join(f"    {key}" for key in left_out)
        trainer = "DeepSpeed" if source == "deepspeed" else title(source)
        heading = (
            f"{title(target)} for {name}, not as {trainer} trains with it. Left out by dsconf {__version__}:"
        )
        return f"{heading}\n\n{keys}"
    if target == "fsdp2" and numerics == "pytorch":
        return f"Trains with {name} as PyTorch recommends for FSDP2. {written}."
    if (source, target) == ("deepspeed", "fsdp2"):
        return f"Trains as DeepSpeed does with {name}, on PyTorch FSDP2. {written}."
    return f"{title(target)} for {name} ({title(source)}). {written}."


def _labels(reading: Reading) -> dict[str, str]:
    """For each field of the Plan the key that its value comes from."""
    backwards = list(reading.fields.items())[::-1]  # of several keys the first one names the field
    source = title(reading.source, short=True)
    owners = {path: "DeepSpeed" if path in reading.deepspeed else source for path in reading.fields}
    defaults = {field: f"{path}, not written: {owners[path]}'s default" for path, field in backwards}
    written = {field: path for path, field in backwards if path in reading.written}
    return defaults | written | dict(reading.labels)


def _open(path: str, context: Context, overrides: Mapping[str, object], rules: list[Rule]) -> _Source:
    try:
        text = read_text(path)
        if is_code(path, text):
            reading = read_code(path, text, overrides)
            filled = [
                key for key in overrides if reading.labels.get(reading.fields.get(key, "")) == f"--set {key}"
            ]
            return _Source(Told(reading), None, (), frozenset(filled))
        try:
            pieces = opener(context, overrides).pieces(path, text, recognise=False)
        except Skipped:
            if is_older_code(path, text):
                read_code(path, text, overrides)
            raise
        if len(pieces) > 1 and language_of(path) is not None:
            lines = ", ".join(str(_line(piece.config)) for piece in pieces)
            raise Skipped(
                f"it holds {len(pieces)} configs, at lines {lines}: put the one that is meant into a file"
            )
        return _of_config(pieces[0], rules)
    except Unusable as problem:
        raise Refused(_refusal(path, problem, rules, context)) from None


def _line(config: Config) -> int:
    """The line at which a config begins in its file."""
    document = config.document
    return place_of(document, document.root.span).line


def _of_config(piece: Piece, rules: list[Rule]) -> _Source:
    config = piece.config
    if config.written and config.context.consumer is None and not any(item.spec for item in config.written):
        raise Skipped(NO_KEYS)
    if config.format not in READ:
        raise Skipped("a config of LLaMA-Factory's own is linted, and not translated")
    result = lint_config(config, rules, piece.read)
    errors = [finding for finding in result.findings if stops(config, finding)]
    if errors:
        raise Refused(result._replace(findings=errors, missing_context=()))
    told = read(config)
    _check_filled(config, told.reading)
    overridden = [path for each in (config, *config.beside.values()) for path in each.overrides]
    return _Source(told, config, result.findings, frozenset(overridden))


def _refusal(path: str, problem: Unusable, rules: list[Rule], context: Context) -> Result:
    """The finding of an unusable file, which nobody can translate: always an error."""
    result = unusable_result(path, problem, rules, context)
    return result._replace(findings=[each._replace(severity="error") for each in result.findings])


def _check_filled(config: Config, reading: Reading) -> None:
    """Raise Unusable for a template with values that nothing settles, and that could change something."""
    settled = {item.key for item in reading.items if item.outcome in ("no-effect", "rejected-by-source")}
    open_ = [
        item.path
        for item in config.written
        if item.entry.node.plain() is UNKNOWN
        and item.path not in config.overrides
        and settled.isdisjoint(accumulate(item.path.split("."), "{}.{}".format))
    ]
    if open_:
        raise left_open(config, open_)
