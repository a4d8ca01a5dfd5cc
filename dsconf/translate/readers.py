"""What can be translated: each format with its reader, looked up by name."""

from __future__ import annotations

from importlib import import_module

from dsconf.config.effective import Config
from dsconf.formats.reading import Reading


def read(config: Config) -> Reading:
    """Read a Config of any format that lint has no error for."""
    reading: Reading = import_module(f"dsconf.formats.{config.format}.read").read(config)
    return reading
