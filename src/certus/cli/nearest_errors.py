"""``certus attack --nearest``: how far the nearest error of each sample is."""

from __future__ import annotations

import math
from typing import Any

import torch

from certus._progress import counting
from certus.attacks.minimum_norm import minimum_norm_attack
from certus.cli.attack_options import AttackOptions
from certus.cli.attack_table import clipping, describe, frozen_words, save_result
from certus.cli.epsilon import read_norm
from certus.cli.output import console, messages, print_json
from certus.data import Subset
from certus.display.text import make_table, number
from certus.domains import Unbounded
from certus.errors import require_count
from certus.runs.loaded_run import TrainedRun


def show_nearest(trained: TrainedRun, chosen: Subset, asked: AttackOptions, *, as_json: bool) -> None:
    """Look for them, write them and print their quantiles."""
    norm, clip, seed = asked.norm or "inf", asked.clip, asked.seed
    options: dict[str, Any] = {"steps": 20 if asked.steps is None else asked.steps}
    options["restarts"] = 1 if asked.restarts is None else asked.restarts
    for name, count in options.items():
        require_count(f"--{name}", count)
    domain = trained.data.domain if clip else Unbounded()
    data, distances = chosen.data, []
    with counting(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            found = minimum_norm_attack(
                trained.loss,
                batch.inputs,
                batch.targets,
                norm=read_norm(norm),
                domain=domain,
                seed=seed,
                free=None if data.encoding is None else data.encoding.attackable,
                **options,
            )
            distances.append(found.distance)
            advance(len(batch))
    lengths = torch.cat(distances).double().tolist()
    about = {"run": str(trained.run.path), **describe(trained, chosen, seed), "norm": norm}
    about |= {"clipped": clip, **options}
    about["distances"] = [value if value < math.inf else None for value in lengths]
    try:
        save_result(asked.output, about)
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            _print_nearest(lengths)
            kept = clipping(clip, trained.data.domain)
            console.print(
                f"{chosen.words}; norm {norm}, {kept}. Attained: an error was found at these distances; the "
                f"nearest error may be closer.{frozen_words(data)}"
            )


def _print_nearest(lengths: list[float]) -> None:
    shown = make_table("share of samples", "nearest error within")
    for percent in (5, 25, 50, 75, 95):
        reached = -(-percent * len(lengths) // 100)  # so many samples, rounded up
        shown.add_row(f"{percent}%", number(sorted(lengths)[reached - 1]))
    console.print(shown)
