"""The command line ``certus``: its commands and its exit codes.

A command imports what is slow inside its function, so that ``--help`` and a mistyped option answer at once.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import NoReturn

import click

import certus
from certus._format import escape_controls
from certus.cli.attack import attack
from certus.cli.audit import audit
from certus.cli.bundle import bundle
from certus.cli.certify import certify
from certus.cli.compare import compare
from certus.cli.data import data
from certus.cli.distance import distance
from certus.cli.export import export
from certus.cli.gate import gate
from certus.cli.import_weights import import_weights
from certus.cli.merge import merge
from certus.cli.monitor import monitor
from certus.cli.options import Group
from certus.cli.output import NOTHING_STORED, Interruption, prepare_streams
from certus.cli.predict import predict
from certus.cli.report import report
from certus.cli.resume import resume
from certus.cli.runs import runs
from certus.cli.sensitivity import sensitivity
from certus.cli.smoothness import smoothness
from certus.cli.train import train
from certus.cli.verify import verify
from certus.errors import CertusError, FailedCheckError, truncate_message


@click.group(
    "certus",
    cls=Group,
    context_settings={"show_default": True, "max_content_width": 100},
    epilog="Exit codes: 0 success, and every check holds; 1 a check failed; 2 refused, with one line that "
    "says why; 3 certus itself failed (set CERTUS_DEBUG=1 for a traceback); 130 interrupted.",
)
@click.version_option(certus.__version__, prog_name="certus", message="%(prog)s %(version)s")
def app() -> None:
    """Train models that are robust to shifts of the data, and prove by how much."""


app.add_panel("Train", train, resume, import_weights)
app.add_panel("Prove", certify, merge, verify, gate, smoothness, audit)
app.add_panel("Attack", attack, compare)
app.add_panel("Inspect", runs, report, sensitivity)
app.add_panel("Deploy", predict, monitor, export, bundle)
app.add_panel("Data", data, distance)


def main() -> NoReturn:
    """Run the command line; its help lists the exit codes."""
    prepare_streams()
    try:
        code = app(prog_name="certus", standalone_mode=False)
    except FailedCheckError as error:
        _exit(1, f"error: {error}")
    except CertusError as error:
        _exit(2, f"error: {error}")
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        _exit(2, f"error: {error.format_message()}")
    except OSError as error:
        _exit(2, f"error: {error.filename or 'output'}: {error.strerror}")
    except (Interruption, KeyboardInterrupt, click.Abort) as reason:
        _exit(130, f"interrupted: {str(reason) or NOTHING_STORED}")
    except MemoryError as error:
        _exit(3, f"error: not enough memory ({error or 'an allocation failed'})")
    except Exception as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):  # torch's words
            _exit(3, f"error: not enough memory ({str(error).partition('memory: ')[2]})")
        from certus.models.own_code import own_place

        if "CERTUS_DEBUG" in os.environ:
            traceback.print_exc()
        message = f"{type(error).__name__}: {error} (CERTUS_DEBUG=1 shows where)"
        if (place := own_place(error)) is not None:
            _exit(2, f"error: `--model` must run without errors; it fails in {place}, with {message}")
        _exit(3, message)
    sys.exit(code if isinstance(code, int) else 0)


def _exit(code: int, message: str) -> NoReturn:
    # The problems of a table have a line each; all other messages have one.
    lines = [" ".join(line.split()) for line in re.split(r"\n(?=\(\d+\) )", truncate_message(message))]
    print("certus: " + "\n".join(map(escape_controls, lines)), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # or the interpreter would fail to write it at its end, with an exit code of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
