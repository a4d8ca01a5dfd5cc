"""Which modules are sharded one by one: what --blocks says, else what is known of the model of --model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsconf.config.context import Context, Model
from dsconf.formats.fsdp2.write_parallelism import INSTEAD
from dsconf.formats.transformers.architectures import Architecture, architecture, transformers_version
from dsconf.plan import Parallelism, Wrapping

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
        labels = {"wrapping.block_classes": self.label} if self.label else {}
        if self.known is not None and self.known.experts:
            before = (
                f", before {_VERSION} {transformers_version()}" if self.known.experts == "stacked" else ""
            )
            which = f"an expert without tokens has no gradient on its rank ({self.known.model_type}{before})"
            labels["wrapping.unused_parameters"] = which
        return labels

    @property
    def line(self) -> str:
        """The classes and where they come from, in words; "" where no class is known."""
        if not self.wrapping.block_classes:
            return ""
        return f"{', '.join(self.wrapping.block_classes)} ({self.label})"


def choose(blocks: Sequence[str], context: Context, wrapping: Wrapping, label: str = "") -> Chosen:
    """Complete a `wrapping`, whose classes come from the key `label` where it has some.

    The table of architectures is read only where a model is given.
    """
    model = context.model
    known = _known(model) if model is not None else None
    if known is not None:
        wrapping = wrapping.model_copy(update={"unused_parameters": _leaves_unused(known, context)})
    if blocks:
        return Chosen(wrapping.model_copy(update={"block_classes": tuple(blocks)}), "--blocks", known)
    if model is None or wrapping.block_classes or wrapping.min_params is not None or wrapping.root_only:
        return Chosen(wrapping, label if wrapping.block_classes else "", known)
    if known is not None and known.blocks:
        label = f"{_OPTION} config.json: {known.model_type}"
        return Chosen(wrapping.model_copy(update={"block_classes": known.blocks}), label, known)
    return Chosen(wrapping, "", known, _unknown(model))


def divided(
    parallelism: Parallelism, chosen: Chosen, model: Model | None
) -> tuple[Parallelism, dict[str, str]]:
    """Complete tensor parallelism by the plan of a known model; also the labels that say where it is from."""
    known = chosen.known
    action = ""
    if parallelism.tensor <= 1:
        return parallelism, {}
    if model is None or model.model_type is None:
        why = "which layers are divided depends on the model"
        action = f"give its config.json with {_OPTION}"
    elif known is None or not known.block_styles:
        why = (
            f"transformers {transformers_version()} has no plan of tensor parallelism for {model.model_type}"
        )
    elif model.architecture not in (None, known.model):
        why = f"the plan of tensor parallelism is that of {known.model}, not of {model.architecture}"
    elif {*chosen.wrapping.block_classes} != {*known.blocks}:
        why = f"the plan of tensor parallelism is for blocks of class {' and '.join(known.blocks)}"
        action = "leave --blocks out"
    elif any(heads % parallelism.tensor for heads in model.heads):
        why = f"{' and '.join(map(str, model.heads))} attention heads don't divide by {parallelism.tensor}"
        action = "choose an autotp_size that divides them"
    else:
        tied = known.tied if model.tied is None else model.tied
        # A head that is one parameter with the embedding stays whole, as that does.
        root = {} if tied else dict(known.root_styles)
        styles = {"block_styles": dict(known.block_styles), "root_styles": root}
        return parallelism.model_copy(update=styles), {"parallelism.block_styles": chosen.label}
    action = action or INSTEAD
    return parallelism, {"parallelism.block_styles": why, "parallelism.action": action}


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
    """Whether experts may be modules that are not called: in older transformers, where newer ones stack them."""
    if known.experts != "stacked":
        return known.experts == "listed"
    version = context.transformers_version
    return version is None or _numbers(version) < _numbers(transformers_version())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
