"""The command line: a thin skin over the library.

A file of a command says how it is called; what it does is imported inside its function. So ``--help`` and a
mistyped option answer at once, without torch.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

import typer

from certus._format import escape_controls
from certus.cli import (
    attack,
    bound,
    certify,
    compare,
    data,
    export,
    features,
    import_weights,
    predict,
    report,
    resume,
    runs,
    shift,
    train,
    verify,
)
from certus.cli.as_typed import TypedCommand
from certus.cli.grouped_help import GroupedCommands, certus_options
from certus.cli.streams import Interruption, interruptible, outlive_readers, speak_plainly
from certus.errors import CertusError, FailedCheckError, truncate_message

# UsageError; where it lives depends on the version of typer, its place among the bases does not.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="certus",
    help="Train models that hold up when the data moves, and prove by how much.",
    epilog="Exit codes: 0 done, and what was checked holds; 1 a check failed; 2 refused, with one line that "
    "says why; 3 certus itself failed (CERTUS_DEBUG=1 shows where); 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=GroupedCommands,
)
app.callback()(certus_options)
for group, name, function in (
    ("Train", "train", train.train),
    ("Train", "resume", resume.resume),
    ("Train", "import", import_weights.import_weights),
    ("Prove", "certify", certify.certify),
    ("Prove", "verify", verify.verify),
    ("Prove", "bound", bound.bound),
    ("Attack", "attack", attack.attack),
    ("Attack", "compare", compare.compare),
    ("Look", "runs", runs.runs),
    ("Look", "report", report.report),
    ("Use", "predict", predict.predict),
    ("Use", "features", features.features),
    ("Use", "whatif", features.whatif),
    ("Use", "export", export.export),
    ("Data", "shift", shift.shift),
):
    app.command(name, rich_help_panel=group, cls=TypedCommand)(interruptible(function))
app.add_typer(data.data_commands, name="data", rich_help_panel="Data")


def main() -> NoReturn:
    """Run the command line.

    Exit codes:
        0: done; what was checked holds.
        1: a check failed: ``certus verify``, or a bound above ``--fail-above``.
        2: refused, with one line on stderr: arguments, files, or the user's own code.
        3: certus itself failed, or memory did not suffice; one line on stderr, and a traceback with
            ``CERTUS_DEBUG=1``.
        130: interrupted, with one line that says what is kept and how to resume.
    """
    outlive_readers()
    speak_plainly()
    try:
        code = app(standalone_mode=False)
    except FailedCheckError as error:
        _refuse(str(error), code=1)
    except CertusError as error:
        _refuse(str(error))
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            print(error, file=sys.stderr)
            sys.exit(2)
        _refuse(str(error.format_message()))  # type: ignore[attr-defined]  # a ClickException has it
    except OSError as error:
        _refuse(f"{error.filename or 'output'}: {error.strerror}")
    except (Interruption, KeyboardInterrupt, typer.Abort) as reason:
        said = str(reason) or "nothing is kept; the same command starts again."
        print(f"certus: interrupted: {said}", file=sys.stderr)
        sys.exit(130)
    except MemoryError as error:
        _refuse(f"there is not enough memory ({error or 'no more could be had'})", code=3)
    except Exception as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):  # torch's word for it
            _refuse(f"there is not enough memory ({str(error).partition('memory: ')[2]})", code=3)
        from certus.models.own_code import own_place

        if "CERTUS_DEBUG" in os.environ:
            traceback.print_exc()
        said = f"{type(error).__name__}: {error} (CERTUS_DEBUG=1 shows where)"
        if (place := own_place(error)) is not None:
            _refuse(f"`--model` must run without errors; it fails in {place}, with {said}")
        print("certus: " + escape_controls(truncate_message(" ".join(said.split()))), file=sys.stderr)
        sys.exit(3)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, code: int = 2) -> NoReturn:
    print("certus: error: " + escape_controls(truncate_message(" ".join(message.split()))), file=sys.stderr)
    sys.exit(code)
