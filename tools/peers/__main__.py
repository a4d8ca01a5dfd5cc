"""`./dev peers`: run all of it and show the page; --write puts it into docs/peers.md."""

from __future__ import annotations

import argparse
import sys

from .page import PAGE, measured


def main() -> None:
    """Run, and show or write."""
    parser = argparse.ArgumentParser(description="Run dsconf and other tools on configs with one fault each.")
    parser.add_argument("--write", action="store_true", help="write docs/peers.md")
    write = parser.parse_args().write
    text = measured()
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
