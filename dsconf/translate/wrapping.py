"""Which modules are sharded one by one: what --blocks says, else what is known of the model of --model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsconf.config.context import Context, Model
from dsconf.formats.transformers.architectures import Architecture, architecture, transformers_version
from dsconf.plan import Wrapping

_OPTION = "--model"
_VERSION = "--transformers-version"


class Chosen(NamedTuple):
    """The classes of the blocks, and why these."""

    wrapping: Wrapping
    label: str
    """Where they come from, for the comment beside them."""
    known: Architecture | None
    """What is known of the model."""
    assumed: str = ""
    """What is taken for granted, where the model is given and says nothing of its blocks."""

    @property
    def labels(self) -> dict[str, str]:
        """What the writer needs to say of the fields of the Plan."""
        labels = {"wrapping.block_classes": self.label}
        if self.known is not None and self.known.experts:
            before = f", before {_VERSION} {transformers_version()}" if self.known.experts == "stacked" else ""
            which = f"an expert without tokens has no gradient on its rank ({self.known.model_type}{before})"
            labels["wrapping.unused_parameters"] = which
        return labels

    @property
    def line(self) -> str:
        """The classes and where they come from, in words; "" where no class is known."""
        if not self.wrapping.block_classes:
            return ""
        return f"{', '.join(self.wrapping.block_classes)} ({self.label})"


def choose(blocks: Sequence[str], context: Context, wrapping: Wrapping) -> Chosen:
    """Complete a `wrapping`; the table of architectures is read only where a model is given."""
    model = context.model
    known = _known(model) if model is not None else None
    if known is not None:
        wrapping = wrapping.model_copy(update={"unused_parameters": _leaves_unused(known, context)})
    if blocks:
        return Chosen(
            wrapping.model_copy(update={"block_classes": tuple(blocks)}), "--blocks", known
        )
    if model is None:
        return Chosen(wrapping, "", known)
    if known is not None and known.blocks:
        label = f"{_OPTION} config.json: {known.model_type}"
        return Chosen(wrapping.model_copy(update={"block_classes": known.blocks}), label, known)
    return Chosen(wrapping, "", known, _unknown(model))


def _known(model: Model) -> Architecture | None:
    return architecture(model.model_type, model.parts) if model.model_type is not None else None


def _unknown(model: Model) -> str:
    version = transformers_version()
    if model.model_type is None:
        what = f"the file of {_OPTION} has no model_type"
    else:
        what = f"no blocks are known of model_type {model.model_type!r} (transformers {version})"
    return f"the elements of the model's outermost nn.ModuleLists are its blocks: {what} (else --blocks)"


def _leaves_unused(known: Architecture, context: Context) -> bool:
    """Whether experts may be modules that are not called: so in older transformers, where newer ones stack their weights."""
    if known.experts != "stacked":
        return known.experts == "listed"
    version = context.transformers_version
    return version is None or _numbers(version) < _numbers(transformers_version())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
