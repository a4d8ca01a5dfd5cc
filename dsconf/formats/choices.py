"""What the user chooses of a translation."""

from __future__ import annotations

from typing import Literal, get_args

Numerics = Literal["deepspeed", "pytorch"]
"""Train as the source does, or as PyTorch recommends for a new run."""

Style = Literal["module", "minimal"]
"""A module with all that a run needs, or what shards the model alone."""

NUMERICS: tuple[Numerics, ...] = get_args(Numerics)
STYLES: tuple[Style, ...] = get_args(Style)
