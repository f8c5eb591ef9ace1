"""``python -m certus.kernel CERTIFICATE [--data ROWS]``: check a stored certificate.

Exit code 0: every upper side follows. 1: a number does not. 2: nothing could be checked.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from certus.kernel.check import Checked, NotProven, check
from certus.kernel.passes import Refused

_SHOWN = ("loss_high", "error_high", "certified", "balanced_error", "recall", "population")


def table(checked: Checked) -> str:
    """The numbers that a certificate prints, as stated and as proven, and what they rest on."""
    lines = [f"{'':28}{'rho or epsilon':>16}{'stated':>16}{'proven':>16}"]
    printed = [
        each
        for each in checked.comparisons
        if re.split(r"[_[]", each.name)[0] in _SHOWN or each.name in _SHOWN
    ]
    for each in dict.fromkeys(printed + checked.failed[:9]):
        words = "" if each.follows else "  does not follow"
        place = "" if each.where is None else f"{each.where:.6g}"
        lines.append(f"{each.name:28}{place:>16}{each.stated:16.9g}{each.proven:16.9g}{words}")
    evidence = checked.statement.evidence if checked.verified else "not verified"
    names = [f"Assumed: {name}." for name in checked.assumptions] or ["Nothing is assumed."]
    if (people := checked.statement.population) is not None:
        names.append(f"Those of the population hold together, with confidence {people.confidence:g}.")
    return "\n".join(
        [
            *lines,
            f"{len(checked.comparisons)} numbers compared: {evidence}.",
            "They rest on the stored model, cost, loss and domain, on these rows, and on float64.",
            *names,
            "Lower sides, and bounds at other gamma, are stated in the file and not re-checked.",
            "Whether the stored model computes what a given one does is not checked here.",
        ]
    )


def main() -> int:
    """Check the certificate of the command line."""
    parser = argparse.ArgumentParser("python -m certus.kernel", description="Check a stored certificate.")
    parser.add_argument("certificate", type=Path, help="certificate.json, or its folder")
    parser.add_argument("--data", type=Path, help="safetensors file with inputs, targets and any weights")
    options = parser.parse_args()
    try:
        checked = check(options.certificate, options.data)
    except Refused as reason:
        print(f"{options.certificate}: {reason}", file=sys.stderr)
        return 1 if isinstance(reason, NotProven) else 2
    print(table(checked))
    return 0 if checked.verified else 1


if __name__ == "__main__":
    sys.exit(main())
