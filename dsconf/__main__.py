"""`python -m dsconf` is `dsconf`."""

from __future__ import annotations

import gc

_ALLOCATIONS = 200_000
"""More than one file takes. Python's own 700 has the collector look through every module while they are imported."""


def run() -> None:
    """Run the command line."""
    gc.set_threshold(_ALLOCATIONS)
    from dsconf.cli import main  # with the collector out of its way

    main(prog_name="dsconf")


if __name__ == "__main__":
    run()
