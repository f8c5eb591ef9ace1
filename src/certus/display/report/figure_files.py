"""Figures of a report as files, each as PNG, SVG and PDF."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from certus.display.attack_figures import Curve, Panel, nearest_figure, sweep_figure
from certus.display.canvas import save_figure
from certus.display.certificate_figures import bracket_figure, smoothed_figure
from certus.display.figures import sensitivity_figure, smoothness_figure, training_figure
from certus.display.report.contents import SHARE, RunReport
from certus.training.metrics import clean_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_figures(reports: Sequence[RunReport], folder: Path) -> list[str]:
    """Draw the figures that there are data for. Returns: their names, without suffixes."""
    figures = {"attacks": _attack_figure(reports)}
    first = reports[0]
    distances = {report.name: report.nearest.tolist() for report in reports if report.nearest is not None}
    if distances:
        title = f"nearest errors of {first.chosen.words}, by PGD with bisection (attained)"
        figures["nearest"] = nearest_figure(distances, first.trained.data.units, title)
    for place, report in enumerate(reports, 1):
        mark = "" if len(reports) == 1 else f"-{place}"
        figures |= {f"{name}{mark}": figure for name, figure in _run_figures(report).items()}
    for name, figure in figures.items():
        for kind in ("png", "svg", "pdf"):
            save_figure(figure, folder / f"{name}.{kind}")
    return list(figures)


def _run_figures(report: RunReport) -> dict[str, Figure]:
    figures = {}
    if report.certificate is not None:
        figures["brackets"] = bracket_figure(report.certificate, report.name)
    if report.bound is not None and report.bound.curvature > 0:
        figures["smoothness"] = smoothness_figure(report.bound)
    if report.smoothed is not None:
        figures["smoothing"] = smoothed_figure(report.smoothed, report.name)
    moves = report.sensitivity
    if moves and math.isfinite(moves[0].bracket.loss_high):
        clean = clean_metrics(report.trained.loss, report.chosen.data)
        figures["fragile"] = sensitivity_figure(moves, clean, SHARE)
    if report.trained.run.history:
        figures["training"] = training_figure(report.trained.run.history, report.name)
    return figures


def _attack_figure(reports: Sequence[RunReport]) -> Figure:
    curves = {}
    for report in reports:
        strengths = [trial.strength for trial, _ in report.attacks]
        intervals = [outcome.error or outcome.loss for _, outcome in report.attacks]
        curves[report.name] = Curve.of(strengths, intervals)
    data, rows = reports[0].trained.data, reports[0].chosen.words
    quantity = "error under attack" if data.classes is not None else "mean loss under attack"
    strength = f"every sample moves by at most ε ({data.units})"
    panel = Panel("pgd, norm 2", strength, quantity, curves, towards=1)
    return sweep_figure([panel], f"{rows}; 95% intervals")
