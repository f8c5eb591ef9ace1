"""``certus attack --nearest --attack wrm``: the largest γ_adv at which WRM makes each sample an error."""

from __future__ import annotations

import math

import torch

from certus._progress import counting
from certus.attacks.minimum_norm import largest_penalty
from certus.cli.attack_options import AttackOptions
from certus.cli.attack_table import clipping, describe, frozen_words, save_result
from certus.cli.output import console, messages, print_json
from certus.costs.masked import masked_to
from certus.data import Subset
from certus.display.text import make_table, number
from certus.domains import Unbounded
from certus.errors import ArgumentError
from certus.runs.loaded_run import TrainedRun


def show_penalties(trained: TrainedRun, chosen: Subset, asked: AttackOptions, *, as_json: bool) -> None:
    """Look for them, write them and print their quantiles, the most fragile samples first."""
    domain = trained.data.domain if asked.clip else Unbounded()
    encoding, cost = chosen.data.encoding, trained.cost
    if encoding is not None and encoding.attackable is not None:
        moving = masked_to(cost, encoding.attackable)
        if moving is None:
            raise ArgumentError(f"`run` must have a number without gaps to move; got {trained.data.name}.")
        cost = moving
    penalties, distances = [], []
    with counting(messages, f"attacking {trained.run.path}", len(chosen.data)) as advance:
        for start in range(0, len(chosen.data), 256):
            batch = chosen.data[start : start + 256]
            found = largest_penalty(trained.loss, batch.inputs, batch.targets, cost=cost, domain=domain)
            penalties.append(found.gamma)
            distances.append(found.distance)
            advance(len(batch))
    gammas, lengths = torch.cat(penalties).double().tolist(), torch.cat(distances).double().tolist()
    about = {"run": str(trained.run.path), **describe(trained, chosen, asked.seed), "clipped": asked.clip}
    about["gammas"] = [value if value < math.inf else None for value in gammas]  # None: wrong as it is
    about["distances"] = [value if value < math.inf else None for value in lengths]  # None: no error found
    try:
        save_result(asked.output, about)
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            _print_penalties(gammas, lengths)
            kept = clipping(asked.clip, trained.data.domain)
            console.print(
                f"{chosen.words}; {trained.cost}, {kept}. Attained: wrm made an error of these samples at "
                f"this gamma; it may be possible at a larger one.{frozen_words(chosen.data)}"
            )


def _print_penalties(gammas: list[float], lengths: list[float]) -> None:
    shown = make_table("share of samples", "an error at gamma of at least", "nearest error within")
    for percent in (5, 25, 50, 75, 95):
        reached = -(-percent * len(gammas) // 100) - 1  # so many samples, rounded up
        cells = (sorted(gammas, reverse=True)[reached], sorted(lengths)[reached])
        shown.add_row(f"{percent}%", *(number(value) for value in cells))
    console.print(shown)
