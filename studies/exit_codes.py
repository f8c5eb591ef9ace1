"""Exit codes of the commands of this package, with one line on stderr and no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from certus.errors import CertusError


def exit_with(command: Callable[[], object]) -> NoReturn:
    """Run a command and exit.

    Exit codes:
        0: done.
        2: refused.
        3: failed by a mistake of this repository; CERTUS_DEBUG=1 shows where.
        130: interrupted.
    """
    try:
        from certus.cli.output import Interruption, prepare_streams

        prepare_streams()
        try:
            command()
        except Interruption as reason:
            _end(130, f"interrupted: {reason}")
    except CertusError as error:
        _end(2, f"error: {error}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _end(2, f"error: {error.filename or 'output'}: {error.strerror}")
    except KeyboardInterrupt:
        _end(130, "interrupted: nothing was stored; run the same command to start again.")
    except Exception as error:
        if "CERTUS_DEBUG" in os.environ:
            raise
        _end(3, f"{type(error).__name__}: {error} (CERTUS_DEBUG=1 shows where)")
    sys.exit(0)


def _end(code: int, message: str) -> NoReturn:
    print("studies: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)
