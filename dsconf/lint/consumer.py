"""Who reads a file, and the Config with what that reader puts into it."""

from __future__ import annotations

from collections.abc import Mapping

from dsconf.config.context import Context, Guess
from dsconf.config.effective import Config
from dsconf.document.node import Document
from dsconf.formats.deepspeed.keys import load_keys


def config_of(document: Document, context: Context, overrides: Mapping[str, object] | None = None) -> Config:
    """The Config of a DeepSpeed file: with who reads it (guessed where nobody says it), and what "auto" becomes."""
    if context.consumer is None:
        context = context._replace(guess=_guess(document, context))
    return Config(document, load_keys(context.deepspeed_version), context, overrides, _fills(context))


def _guess(document: Document, context: Context) -> Guess | None:
    if context.training_args is not None:
        return Guess(("trainer",), "--training-args is given")
    if context.launch is not None:
        return Guess(("trainer", "accelerate"), "--launch-config is given")
    keys = load_keys(context.deepspeed_version)["keys"]
    for name, entry in document.root.members().items():
        # DeepSpeed itself would stop at the text.
        if entry.node.scalar == "auto" and "filled_by" in keys.get(name, ()):
            return Guess(("trainer", "accelerate"), f'{name} is "auto"')
    return None


def _fills(context: Context) -> dict[str, object]:
    """What the consumer puts where the file says "auto", as far as that is known."""
    if context.consumer not in ("trainer", "accelerate"):
        return {}
    from dsconf.formats.accelerate import fill as accelerate  # only where they read the file
    from dsconf.formats.trainer import fill as trainer

    found = accelerate.fills(context)
    return found | trainer.fills(context) if context.consumer == "trainer" else found
