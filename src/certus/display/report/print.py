"""The figures of a report as files: each as PNG, SVG and PDF."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from certus.display.attack_figures import Curve, Panel, draw_sweeps, nearest_figure
from certus.display.canvas import save_figure
from certus.display.certificate_figures import draw_bracket, draw_smoothed
from certus.display.figures import draw_bound, draw_fragile, training_figure
from certus.display.report.findings import SHARE, Findings
from certus.training.metrics import clean_metrics

KINDS = ("png", "svg", "pdf")


def draw_figures(findings: Sequence[Findings], folder: Path) -> list[str]:
    """Draw what there is data for. Returns: the names of the figures, without endings."""
    wanted: dict[str, Callable[[Path], object]] = {"attacks": lambda path: _draw_attacks(findings, path)}
    if any(found.nearest is not None for found in findings):
        wanted["nearest"] = lambda path: _draw_nearest(findings, path)
    for place, found in enumerate(findings, 1):
        mark = "" if len(findings) == 1 else f"-{place}"
        wanted |= {f"{name}{mark}": draw for name, draw in _of_one(found).items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in wanted.items():
        for kind in KINDS:
            draw(folder / f"{name}.{kind}")
    return list(wanted)


def _of_one(found: Findings) -> dict[str, Callable[[Path], object]]:
    drawn: dict[str, Callable[[Path], object]] = {}
    certificate, bound, units = found.certificate, found.bound, found.trained.data.units
    if certificate is not None:
        drawn["brackets"] = lambda path: draw_bracket(certificate, path, units, found.name)
    if bound is not None and bound.curvature > 0:
        drawn["smoothness"] = lambda path: draw_bound(bound, None, path)
    smoothed, fragile = found.smoothed, found.fragile
    if smoothed is not None:
        drawn["smoothing"] = lambda path: draw_smoothed(smoothed, path, units, found.name)
    if fragile and math.isfinite(fragile[0].bracket.loss_high):
        now = clean_metrics(found.trained.loss, found.chosen.data)
        drawn["fragile"] = lambda path: draw_fragile(fragile, now, SHARE, path)
    if found.trained.run.history:
        history = found.trained.run.history
        drawn["training"] = lambda path: save_figure(training_figure(history, found.name), path)
    return drawn


def _draw_nearest(findings: Sequence[Findings], path: Path) -> None:
    first = findings[0]
    runs = {found.name: found.nearest.tolist() for found in findings if found.nearest is not None}
    said = f"nearest errors of {first.chosen.words}, by PGD with bisection (attained)"
    save_figure(nearest_figure(runs, first.trained.data.units, said), path)


def _draw_attacks(findings: Sequence[Findings], path: Path) -> None:
    curves = {}
    for found in findings:
        intervals = [outcome.error or outcome.loss for _, outcome in found.attacks]
        strengths = [trial.strength for trial, _ in found.attacks]
        values, low, high = ([getattr(one, name) for one in intervals] for name in ("value", "low", "high"))
        curves[found.name] = Curve(strengths, values, low, high)
    first = findings[0]
    quantity = "error under attack" if first.trained.data.classes is not None else "mean loss under attack"
    strength = f"every sample moves by at most ε ({first.trained.data.units})"
    panel = Panel("pgd, norm 2", strength, quantity, curves, towards=1)
    draw_sweeps([panel], path, f"{first.chosen.words}; 95% intervals")
