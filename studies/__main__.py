"""``python -m studies``: the paper's figures and tables, measured again, and studies beyond it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NoReturn

from studies.exit_codes import exit_with

_EXAMPLES = """\
examples:
  python -m studies
  python -m studies toy -o mine
  python -m studies all --scale full

Each result becomes a folder with a page, its pictures and all numbers. An
interrupted command resumes when it is given again.
"""


def main() -> None:
    """List the studies, or measure one of them or a group."""
    parser = argparse.ArgumentParser(
        prog="python -m studies",
        description="Measure a figure or table of the paper again, or a study beyond it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="a study; all: those of the paper; beyond: the others; by default, list them",
    )
    parser.add_argument(
        "--scale",
        default="quick",
        help="quick: minutes, a first look; full: all that a page of results/ shows (default: quick)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=_folder,
        default=Path("results"),
        help="folder of the results (default: results)",
    )
    parser.add_argument(
        "--work",
        type=_folder,
        default=Path("runs/studies"),
        help="folder of trained networks and finished parts, which are reused (default: runs/studies)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    from studies.command import list_studies, run_studies

    if options.name is None:
        list_studies(options.output, options.work, as_json=options.json)
    else:
        run_studies(options.name, options.scale, options.output, options.work, as_json=options.json)


def _folder(text: str) -> Path:
    expanded = os.path.expanduser(text)
    if not text or "\0" in text or expanded.startswith("~"):
        raise argparse.ArgumentTypeError(f"must be a path; got {text!r}")
    return Path(expanded)


def start() -> NoReturn:
    """Run the command and exit."""
    exit_with(main)


if __name__ == "__main__":
    start()
