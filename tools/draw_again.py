"""Pages and pictures of results/ again, from what was measured, after a change of words or pictures alone.

python -m tools.draw_again NAME …
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.making import MEASURED, read_measured, statements_of, write_folder
from studies.reproduction import Extent
from studies.reproductions import REPRODUCTIONS

RESULTS = Path(__file__).parents[1] / "results"


def draw_again(name: str, results: Path = RESULTS) -> list[Path]:
    """The files that were written."""
    of, content = REPRODUCTIONS[name], read_measured(results / name / MEASURED)
    extent = Extent(content["extent"])
    now = {"statements": statements_of(of, content["measured"]), "training": of.training_at(extent)}
    return write_folder(of, content | {"title": of.title} | now, results)


if __name__ == "__main__":
    for chosen in sys.argv[1:]:
        for path in draw_again(chosen):
            print(path)
