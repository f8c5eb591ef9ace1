"""Write pages and pictures of results/ again from the stored measurements.

python -m tools.draw_again NAME …
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.registry import STUDIES
from studies.runner import MEASURED, read_measured, verdicts_of, write_folder
from studies.study import Scale

RESULTS = Path(__file__).parents[1] / "results"


def draw_again(name: str, results: Path = RESULTS) -> list[Path]:
    """Write the folder of a study again; return its files."""
    study, content = STUDIES[name], read_measured(results / name / MEASURED)
    scale = Scale(content["scale"])
    now = {"verdicts": verdicts_of(study, content["measured"]), "training": study.training_at(scale)}
    return write_folder(study, content | {"title": study.title} | now, results)


if __name__ == "__main__":
    for chosen in sys.argv[1:]:
        for path in draw_again(chosen):
            print(path)
