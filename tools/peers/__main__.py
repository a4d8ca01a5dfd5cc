"""`./dev peers`: run all of it and show the page; --write puts it into docs/peers.md, --own only what dsconf says."""

from __future__ import annotations

import argparse
import sys

from .own import with_own_parts
from .page import PAGE, measured
from .rivals import run


def main() -> None:
    """Run, and show or write."""
    parser = argparse.ArgumentParser(description="Run dsconf and other tools on configs with one fault each.")
    parser.add_argument("--write", action="store_true", help="write docs/peers.md")
    parser.add_argument("--own", action="store_true", help="write what dsconf says, and run nothing else")
    options = parser.parse_args()
    if options.own:
        text = with_own_parts(PAGE.read_text(encoding="utf-8"), lambda words, folder: run(words, folder)[:2])
    else:
        text = measured()
    if options.write or options.own:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
