"""A translation from start to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from dsconf import __version__
from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.node import UNKNOWN
from dsconf.document.source import Unusable
from dsconf.formats.choices import Numerics, Style
from dsconf.formats.deepspeed.read import read
from dsconf.formats.fsdp2.write import Writing, write
from dsconf.formats.reading import Reading
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import lint_config, open_document, unusable_result
from dsconf.lint.finding import Result
from dsconf.lint.index import load_rules
from dsconf.plan import Launch
from dsconf.translate.numerics import difference, recommended
from dsconf.translate.refusals import stops, with_refusals
from dsconf.translate.report import Report, assemble
from dsconf.translate.wrapping import choose, divided


class Refused(Exception):
    """The meaning of the source can't be determined; `result` holds the findings that say why."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.file)
        self.result = result


class Translation(NamedTuple):
    """The code and the report; the code goes without what the report calls unsupported."""

    code: str
    report: Report


def translate(
    path: str,
    target: str,
    context: Context,
    overrides: Mapping[str, object],
    blocks: Sequence[str],
    *,
    numerics: Numerics = "deepspeed",
    style: Style = "module",
) -> Translation:
    """Translate a DeepSpeed JSON file.

    `overrides` are values by dotted path that count instead of the file's, `blocks` the class names of the modules to
    shard one by one; `numerics` says whether it trains as DeepSpeed does, or as PyTorch recommends; `style` whether
    the module has all that a run needs, or only parallelize. Raises Refused where the file is unreadable, or DeepSpeed
    would refuse it and its meaning is open.
    """
    rules = load_rules()
    try:
        document = open_document(path, context)
    except Unusable as problem:
        raise Refused(unusable_result(path, problem, rules, context)) from None
    config = config_of(document, context, overrides)
    result = lint_config(config, rules)
    errors = [finding for finding in result.findings if stops(config, finding)]
    if errors:
        raise Refused(result._replace(findings=errors, missing_context=()))
    reading = read(config)
    unfilled = _unfilled(config, reading)
    if unfilled is not None:
        refused = unusable_result(path, unfilled, rules, context)
        raise Refused(
            refused._replace(findings=[each._replace(severity="error") for each in refused.findings])
        )
    other = difference(reading.plan, numerics)
    if numerics == "pytorch":
        reading = recommended(reading)
    launch = Launch(world_size=context.world_size, gpus_per_node=context.gpus_per_node)
    chosen = choose(blocks, context, reading.plan.wrapping)
    parallelism, labels = divided(reading.plan.parallelism, chosen, context.model)
    update = {"wrapping": chosen.wrapping, "parallelism": parallelism, "launch": launch}
    plan = reading.plan.model_copy(update=update)
    labels = _labels(config, reading) | chosen.labels | labels

    def written(left_out: Sequence[str]) -> Writing:
        origin = _origin(path, left_out, numerics)
        return write(plan, origin, labels, style=style, torch=context.torch_version)

    writing = written(())
    report = assemble(config, reading, writing, target, numerics, other, chosen)
    left_out = [item.key for item in report.items if item.outcome == "unsupported"]
    if left_out:
        writing = written(left_out)
    items = with_refusals(report.items, config, result.findings)
    return Translation(writing.code, report._replace(items=items))


def _unfilled(config: Config, reading: Reading) -> Unusable | None:
    """Why a template can't be translated: the values that nothing settles, and that could change something."""
    settled = {item.key for item in reading.items if item.outcome in ("no-effect", "rejected-by-source")}
    open_ = [
        item
        for item in config.written
        if item.entry.node.plain() is UNKNOWN
        and item.path not in config.overrides
        and settled.isdisjoint(accumulate(item.path.split("."), "{}.{}".format))
    ]
    if not open_:
        return None
    paths = ", ".join(item.path for item in open_)
    it = "it" if len(open_) == 1 else "them"
    message = f"the file leaves {paths} open: say {it} with --set, or fill the template in first"
    return Unusable("template-placeholder", message, open_[0].entry.span, config.document.text)


def _origin(path: str, left_out: Sequence[str], numerics: Numerics) -> str:
    """The first lines of the docstring; a file may have any name, quotes and line ends included."""
    name = "".join(c if c.isprintable() and c not in '"\\' else "?" for c in Path(path).name)
    if left_out:
        keys = "\n".join(f"    {key}" for key in left_out)
        heading = f"FSDP2 for {name}, not as DeepSpeed trains with it. Left out by dsconf {__version__}:"
        return f"{heading}\n\n{keys}"
    if numerics == "pytorch":
        return f"Trains with {name} as PyTorch recommends for FSDP2. Written by dsconf {__version__}."
    return f"Trains as DeepSpeed does with {name}, on PyTorch FSDP2. Written by dsconf {__version__}."


def _labels(config: Config, reading: Reading) -> dict[str, str]:
    """For each field of the Plan the key that its value comes from."""
    backwards = list(reading.fields.items())[::-1]  # of several keys the first one names the field
    defaults = {field: f"{path}, not written: DeepSpeed's default" for path, field in backwards}
    written = {field: path for path, field in backwards if config.present(path)}
    return defaults | written | dict(reading.labels)
