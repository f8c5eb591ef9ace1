"""The page of ``next-year``: what moved, how the models met it, and their worst cases."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from certus._format import at_least, at_most
from certus.display.canvas import COLOURS, MARKERS, legend_below, new_figure, title_above
from certus.evidence import Evidence
from studies.page import markdown_table
from studies.reproduction import Measured, Quantity, Verdict, outcome_of, outcome_of_several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_LEVEL = "small"
"""The ρ that WRM trains for; the other level is what the years may have moved by."""

_LINEAR, _ROBUST = "logistic regression", ("WRM", "certified")
_YEARS = ("2015", "2016", "2017", "2018")
_HEAD = """
Who is employed in Massachusetts: learnt from three fifths of the people of 2015, and asked on others of
2015 and on all of 2016, 2017 and 2018. Over {seeds} splits of 2015, with weights of their own. Numbers are
medians, with the range over the splits in brackets.

## What moved

Ŵ is the transport cost between the two populations, *estimated*
([how](../../docs/certificates.md#how-far-do-my-data-move)), ± its standard error over {draws} draws of
people. Another answer to one question costs 1, and so does a standard deviation of age. An estimate within
two standard errors of 0 is no sign of a move.

"""
_LABELS = """
**The label price.** A certificate with fixed labels is about people who change their answers and keep their
jobs. Most shifts of tables are not like that: the people look the same, and the *relation* between answers
and jobs has changed. A label price of 1 lets the adversary do that, too: to change whether somebody is
employed costs as much as to change one answer, so that at ρ = 0.01 one person in a hundred may have another
label and nothing else may move, or any mixture. Where the inputs alone already reach an error more cheaply
than by 1, the price changes little.

## How the models met it

Error, in per cent; seconds of the processor's time. Logistic regression and gradient boosting are those of
scikit-learn, with their defaults. The networks have 16 hidden units (softplus), and {epochs} epochs of Adam.
WRM was trained for ρ = {rho:g}, the certified network for γ = {gamma:g}. Nothing was tuned; γ = 2, looked at
once on one split, gave about the same error.

"""
_WORST = """
## The worst case

Over all distributions within ρ of {rows} people of 2015: the error, in per cent, and the loss are *at
least* (**attained**, by a distribution that was found) – *at most* (**proven**); medians. Nothing is proven
of gradient boosting: trees have no smoothness to prove anything from. What is attained there was found by
moving ages alone. The larger ρ is the most that a year may have moved, a label at 1: the largest estimate
plus two standard errors. That is an estimate all the same: that a year lies within it is not proven.

"""


def next_year_text(measured: Measured) -> str:
    """The page's words and tables."""
    found, about = _models(measured), measured["split-0"]
    moved = []
    for year, told in measured["shifts"]["shifts"].items():
        cells = [f"{mean:.3f} ± {spread:.3f}" for mean, spread in (told["inputs alone"], told["with labels"])]
        before, after = told["share employed"]
        moved.append([year, *cells, f"{before:.1%} → {after:.1%}"])
    met = [_met(found, name) for name in found[0]]
    parts = [
        _HEAD.format(seeds=len(found), draws=measured["shifts"]["draws"]),
        markdown_table(["from 2015 to", "Ŵ, inputs alone", "Ŵ, a changed label costs 1", "employed"], moved),
        _LABELS.format(**about),
        markdown_table(["", *_YEARS, "training, s", "certifying, s"], met),
        _WORST.format(**about),
    ]
    for level, rho in measured["shifts"]["levels"].items():
        head = [f"ρ = {rho:.2g}", *(f"{what}{also}" for what, also in _KINDS)]
        parts.append(markdown_table(head, [_worst(found, name, level) for name in found[0]]))
    return "\n\n".join(part.strip() for part in parts)


def _models(measured: Measured) -> list[Mapping[str, Any]]:
    """Of every split."""
    return [one["models"] for name, one in measured.items() if name.startswith("split-")]


_KINDS = (("error", ""), ("loss", ""), ("error", ", labels too"), ("loss", ", labels too"))


def _met(found: list[Mapping[str, Any]], name: str) -> list[str]:
    cells = [name]
    for year in _YEARS:
        values = [100 * one[name]["errors"][year] for one in found]
        cells.append(f"{median(values):.1f} ({min(values):.1f} – {max(values):.1f})")
    for what in ("training", "certifying"):
        seconds = [one[name].get(f"seconds of {what}") for one in found]
        cells.append("–" if None in seconds else f"{median(seconds):.1f}")
    return cells


def _worst(found: list[Mapping[str, Any]], name: str, level: str) -> list[str]:
    worst = [one[name]["worst"][level] for one in found]
    return [name, *(_bracket(worst, what, labels=bool(also)) for what, also in _KINDS)]


def _bracket(worst: list[Mapping[str, Any]], what: str, *, labels: bool) -> str:
    """Attained – proven; where labels may move they need not, so what is attained without counts, too."""
    scale, digits = (100, 1) if what == "error" else (1, 3)
    kinds = [[one, one.get("with labels", {})] if labels else [one] for one in worst]
    if f"{what}_low" not in worst[0]:
        return "–"
    low = [max(each.get(f"{what}_low", 0.0) for each in kind) for kind in kinds]
    high = [kind[-1].get(f"{what}_high") for kind in kinds]
    least = at_least(scale * median(low), digits)
    proven = [one for one in high if one is not None]
    return f"≥ {least}, no proof" if not proven else f"{least} – {at_most(scale * median(proven), digits)}"


def _real(found: list[Mapping[str, Any]], name: str) -> float:
    """The median error in the worst of the years that came."""
    return float(max(median(one[name]["errors"][year] for one in found) for year in _YEARS[1:]))


def _proven(found: list[Mapping[str, Any]]) -> dict[str, float]:
    """The median proven worst case at the small level, of the models that have one."""
    return {
        name: median(one[name]["worst"][SMALL_LEVEL]["error_high"] for one in found)
        for name in found[0]
        if "error_high" in found[0][name]["worst"][SMALL_LEVEL]
    }


def next_year_statements(measured: Measured) -> list[Verdict]:
    """The years that came, and what is proven."""
    found, rho = _models(measured), measured["shifts"]["levels"][SMALL_LEVEL]
    real, proven = {name: _real(found, name) for name in found[0]}, _proven(found)
    best = min(real, key=lambda name: real[name])
    return [
        Verdict(
            name="years",
            label="",
            claim="Does a robust model err least in 2016 to 2018, learnt from 2015?",
            rule="the smallest error in its worst year, in the median over splits, is that of one of ours",
            outcome=outcome_of(best in _ROBUST),
            ours={name: Quantity(error, places=1, percent=True) for name, error in real.items()},
        ),
        Verdict(
            name="proven",
            label="",
            claim=f"Is less error of them proven for every shift within ρ = {rho:g} than of logistic "
            "regression?",
            rule="a smaller proven error of both, in the median over splits; *partly*: of one",
            outcome=outcome_of_several([proven[name] < proven[_LINEAR] for name in _ROBUST]),
            ours={
                name: Quantity(high, places=1, percent=True, side="at most") for name, high in proven.items()
            },
            evidence=Evidence.PROVEN,
        ),
    ]


def draw_years(measured: Measured) -> Figure:
    """What came, and the worst case."""
    found, levels, figure = _models(measured), measured["shifts"]["levels"], new_figure(11, 4)
    left, right = figure.subplots(1, 2)
    names = list(found[0])
    for place, name in enumerate(names):
        colour, marker, aside = COLOURS[place], MARKERS[place], 0.15 * (place - 1.5)
        for spot, year in enumerate(_YEARS):
            values = [100 * one[name]["errors"][year] for one in found]
            left.vlines(spot + aside, min(values), max(values), color=colour)
            left.plot(spot + aside, median(values), color=colour, marker=marker, markersize=6, label=name)
        for spot, level in enumerate(levels):
            _draw_bracket(right, spot + aside, [one[name]["worst"][level] for one in found], colour, marker)
    left.set_xticks(range(len(_YEARS)), _YEARS)
    left.set(ylabel="error, per cent", title="What came")
    right.set_xticks(range(len(levels)), [f"ρ = {rho:.2g}" for rho in levels.values()])
    right.set(
        ylabel="error, per cent", ylim=(0, 100), title="The worst case: attained (mark) to proven (bar)"
    )
    left.set_ylim(0, None)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    shown = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
    legend_below(figure, list(shown.values()), list(shown))
    title_above(figure, "Learnt from 2015: medians, and ranges over splits", 11)
    return figure


def _draw_bracket(axes: Any, at: float, worst: list[Mapping[str, Any]], colour: str, marker: str) -> None:
    low = median(100 * one["error_low"] for one in worst)
    axes.plot(at, low, color=colour, marker=marker, markersize=6)
    if "error_high" not in worst[0]:
        axes.annotate(
            "no proof", (at, low), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
        )
        return
    high = median(100 * one["error_high"] for one in worst)
    axes.vlines(at, low, high, color=colour, linewidth=4, alpha=0.5)
    axes.hlines(high, at - 0.06, at + 0.06, color=colour, linewidth=2)
