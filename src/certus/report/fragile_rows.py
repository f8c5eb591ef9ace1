"""The features of a table that matter most, each moved alone, as ``certus features`` moves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from certus.decimals import at_least, at_most
from certus.losses import loss_and_slope
from certus.modes import evaluation_mode
from certus.runs.factory import Feature, features_of
from certus.runs.loaded_run import TrainedRun
from certus.runs.sensitivity import Fragile, move_feature, spread_cost
from certus.split import Split

SHARE = 0.1
"""How far a feature moves: this share of its standard deviation, in root mean square."""

MOST_FEATURES = 12


def steepest_features(trained: TrainedRun, rows: Split) -> list[Feature]:
    """Those along which the loss rises most, by first order; none of what is no table."""
    data = trained.data
    if not data.feature_names or rows.inputs.dim() != 2:
        return []
    with evaluation_mode(trained.loss):
        _, slopes = loss_and_slope(trained.loss, rows.inputs.detach().requires_grad_(), rows.targets)
    spread = rows.inputs.double().std(0, correction=0)
    rise = slopes.double().abs().mean(0) * spread
    ranked = sorted(features_of(data), key=lambda one: -float(rise[list(one.columns)].sum()))
    varied = [one for one in ranked if spread_cost(data, rows, one, SHARE) > 0]
    return varied[:MOST_FEATURES]


def fragile_features(trained: TrainedRun, rows: Split, told: Callable[[int], None]) -> list[Fragile]:
    """The brackets where one feature moves and nothing else, from the most fragile on."""
    found = []
    for feature in steepest_features(trained, trained.data.test):
        rho = spread_cost(trained.data, rows, feature, SHARE)
        if rho > 0:  # it varies in these rows, too
            found.append(move_feature(trained, rows, feature, rho))
        told(len(rows))
    return sorted(found, key=lambda one: one.rank, reverse=True)


def fragile_rows(found: Sequence[Fragile]) -> tuple[list[str], list[list[str]]]:
    """The table: head and cells."""
    labelled = any(one.bracket.error_low is not None for one in found)
    head = ["feature", *(("error at least", "at most") if labelled else ()), "loss at least", "at most"]
    rows = []
    for one in found:
        bracket, proven = one.bracket, math.isfinite(one.bracket.loss_high)
        cells = [one.feature.name]
        if labelled:
            low, high = bracket.error_low or 0.0, bracket.error_high
            cells += [at_least(low), "no proof" if high is None else at_most(high)]
        cells += [at_least(bracket.loss_low), at_most(bracket.loss_high) if proven else "no proof"]
        rows.append(cells)
    return head, rows
