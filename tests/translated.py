"""What the tests of readers and writers share: Configs of files, their Readings, and what lint says of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from dsconf.config.context import Context
from dsconf.config.effective import Config
from dsconf.document.json_scanner import scan
from dsconf.document.yaml_reader import scan_yaml
from dsconf.formats.accelerate.keys import table_for
from dsconf.formats.accelerate.read import read
from dsconf.formats.deepspeed.read import read as read_deepspeed
from dsconf.formats.reading import Reading
from dsconf.lint.consumer import config_of
from dsconf.lint.engine import lint_text
from dsconf.lint.index import load_rules

ANY = Context()


def accelerate_config(text: str, context: Context = ANY) -> Config:
    document = scan_yaml("accelerate.yaml", text)
    return Config(document, table_for(document, context), context, format="accelerate")


def accelerate_reading(text: str, context: Context = ANY) -> Reading:
    return read(accelerate_config(text, context))


def deepspeed_reading(text: str, context: Context = ANY) -> Reading:
    return read_deepspeed(config_of(scan("ds_config.json", text), context))


def labels_of(reading: Reading) -> Mapping[str, str]:
    """By field the key that it comes from."""
    return {field: key for key, field in list(reading.fields.items())[::-1]} | dict(reading.labels)


def unlanded(reading: Reading, landings: Mapping[str, Any]) -> list[str]:
    """Written keys of which neither a reader nor a writer says anything."""
    said = {item.key for item in reading.items}
    said |= {key for key, field in reading.fields.items() if field in landings}
    above = {key.rpartition(".")[0] for key in reading.written}
    missing = [key for key in reading.written if key not in said and key not in above]
    return [key for key in missing if said.isdisjoint(accumulate(key.split("."), "{}.{}".format))]


@cache
def _rules() -> list[dict[str, Any]]:
    return load_rules()


def complaints(name: str, text: str, context: Context = ANY) -> list[str]:
    """The errors and warnings of lint."""
    found = lint_text(name, text, _rules(), context).findings
    return [f"{each.code} {each.message}" for each in found if each.severity != "info"]


def is_refused(name: str, text: str, context: Context = ANY) -> bool:
    """Whether lint has an error."""
    found = lint_text(name, text, _rules(), context).findings
    return any(each.severity == "error" for each in found)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")
