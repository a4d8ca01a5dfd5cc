"""`dsconf translate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import click

from dsconf.cli.circumstances import Circumstances
from dsconf.cli.options import context_options
from dsconf.formats.choices import NUMERICS, STYLES, Numerics, Style
from dsconf.translate import TARGETS


@click.command("translate", short_help="Translate between DeepSpeed, FSDP2, Accelerate, Trainer and Axolotl.")
@click.argument("source", type=click.Path())
@click.option("--to", "target", required=True, type=click.Choice(TARGETS), help="What to write.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A value that counts instead of the file's."
)
@click.option("--blocks", multiple=True, metavar="CLASS", help="Class of the modules to shard one by one.")
@click.option(
    "--numerics",
    type=click.Choice(NUMERICS),
    default=NUMERICS[0],
    show_default=True,
    help="Train as DeepSpeed does, or as PyTorch recommends for a new run.",
)
@click.option(
    "--style",
    type=click.Choice(STYLES),
    default=STYLES[0],
    show_default=True,
    help="A whole module, or parallelize() alone.",
)
@click.option(
    "--report",
    "report_path",
    type=click.Path(dir_okay=False),
    help="Write the report to a file, too: Markdown where it ends in .md, else JSON.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="Write to this file instead of stdout, and files that it names beside it.",
)
@click.option(
    "--in-place", is_flag=True, help="Change SOURCE itself: an Accelerate YAML for FSDP1 to one for FSDP2."
)
@click.option("--force", is_flag=True, help="Write even where settings are unsupported.")
@context_options
def command(
    source: str,
    target: str,
    settings: tuple[str, ...],
    blocks: tuple[str, ...],
    numerics: Numerics,
    style: Style,
    report_path: str | None,
    output: str | None,
    in_place: bool,
    force: bool,
    **options: Any,
) -> None:
    """Write SOURCE as another format on stdout, and a report on stderr.

    \b
    dsconf translate ds_config.json --to fsdp2 > shard.py
    dsconf translate ds_config.json --to fsdp2 --set gradient_accumulation_steps=4 --report report.json
    dsconf translate ds_config.json --to fsdp2 --blocks LlamaDecoderLayer --report report.md
    dsconf translate ds_config.json --to accelerate-fsdp2 --world-size 8 > accelerate.yaml
    dsconf translate accelerate.yaml --to trainer-fsdp2 -o arguments.yaml
    dsconf translate accelerate.yaml --to accelerate-fsdp2 --in-place

    Exit status: 0 written, 1 a setting is unsupported (nothing without --force), 2 SOURCE is unusable.
    """
    from dsconf.document.edit import EditError
    from dsconf.document.write import write_text
    from dsconf.formats.fsdp2.torch_names import OLDEST, exists
    from dsconf.lint.pieces import Skipped
    from dsconf.lint.report import reporter
    from dsconf.translate.markdown import render_markdown
    from dsconf.translate.run import NoSuchKey, Refused, translate
    from dsconf.translate.terminal import render

    if in_place and (output is not None or settings):
        raise click.UsageError("--in-place changes what stands in SOURCE: -o and --set don't go with it")
    if target != "fsdp2" and (numerics, style) != (NUMERICS[0], STYLES[0]):
        raise click.UsageError("--numerics and --style are for --to fsdp2")
    for name in blocks:
        if not name.isidentifier():
            raise click.BadParameter(f"{name!r} is no class name", param_hint="--blocks")
    context = Circumstances(options).context(source)
    if context.torch_version is not None and not exists(
        "torch.distributed.fsdp.fully_shard", context.torch_version
    ):
        needed = f"it needs {OLDEST} or newer"
        raise click.BadParameter(
            f"torch {context.torch_version} has no public FSDP2: {needed}", param_hint="--torch-version"
        )
    overrides = dict(_setting(text) for text in settings)
    try:
        done = translate(
            *(source, target, context, overrides, blocks), numerics=numerics, style=style, in_place=in_place
        )
    except Refused as refused:
        click.echo(reporter("full")([refused.result]), err=True)
        raise SystemExit(2) from None
    except Skipped as reason:
        raise click.UsageError(f"{source}: {reason}") from None
    except NoSuchKey as key:
        raise click.BadParameter(f"{source} can have no key {str(key)!r}", param_hint="--set") from None
    except EditError as reason:
        raise click.UsageError(f"--in-place {source}: {reason}") from None
    output = source if in_place else output
    wanted = done.report.supported or force
    if wanted and done.beside and output is None:
        names = " and ".join(done.beside)
        raise click.UsageError(f"this becomes a file and {names} beside it: say with -o FILE where")
    files = {}
    if report_path is not None:
        text = json.dumps(done.report.as_json(), indent=2, ensure_ascii=False) + "\n"
        if PurePath(report_path).suffix == ".md":
            text = render_markdown(done.report, forced=force)
        files[report_path] = text
    if wanted and output is not None:
        beside = {str(PurePath(output).parent / name): text for name, text in done.beside.items()}
        _check_free(beside)
        files |= beside
        files[output] = done.text
    for path, text in files.items():
        try:
            write_text(path, text)
        except OSError as error:
            raise click.UsageError(f"can't write {path}: {error.strerror}") from None
    click.echo(render(done.report, forced=force), err=True)
    if wanted and output is None:
        click.echo(done.text, nl=False)
    raise SystemExit(0 if done.report.supported else 1)


def _check_free(files: Mapping[str, str]) -> None:
    """Raise UsageError where a file that nobody named would take the place of another one."""
    for path, text in files.items():
        file = Path(path)
        if file.exists() and file.read_bytes() != text.encode():
            raise click.UsageError(f"{path} is needed beside the output, and exists: write to another folder")


def _setting(text: str) -> tuple[str, object]:
    """`KEY=VALUE`, the value as JSON where it is JSON, else as text. Raises BadParameter."""
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
