"""The report about the run of a tree model: its opening, its classes, and the worst case over ρ.

Trees have no gradients: there are no attacks, no training curves and no smoothness to show.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from certus._format import plain
from certus.certificates.certificate import Certificate
from certus.display import tables
from certus.display.report.contents import scope
from certus.display.report.opening import Purpose, Subject, class_tables, opening_of, worst_of
from certus.display.report.page import (
    Card,
    certificate_parts,
    headline,
    monitor_charts,
    render_page,
    slider,
    slider_grid,
)
from certus.runs.tree_run import TreeRun

_UNITS = "standard deviations of the imported table"


def render_tree_report(
    trained: TreeRun,
    certificate: Certificate | None,
    checks: Sequence[dict[str, Any]],
    purpose: Purpose,
    remarks: Sequence[str] = (),
) -> str:
    """Return the page about a tree model, its certificate, and the checks of a monitor."""
    subject, sections = tree_subject(trained, certificate), defaultdict[str, list[Card]](list)
    name, worst = subject.name, worst_of(certificate, purpose)
    classes = class_tables(subject, _answers(trained), worst)
    if classes:
        sections["classes"] = [(name, classes)]
    if checks:
        sections["monitor"] = [(name, [*monitor_charts(0, checks), tables.chunk_table(checks)])]
    notes = [("note", remark) for remark in remarks]
    sentences = [] if certificate is None else scope(certificate)
    sections["summary"] = [(name, [_model_words(trained), *sentences, *notes])]
    grid, control = [], None
    if certificate is not None:
        grid, control = slider_grid([certificate]), slider([(name, certificate)], slider_grid([certificate]))
        ends = [bracket.distance for bracket in certificate.curve()]
        for section, parts in certificate_parts(0, certificate, grid, 1.25 * max(ends) or 0.1):
            sections[section] = [(name, parts)]
    sections["origin"] = [(name, [("facts", _facts(trained))])]
    models = f"{name} ({trained.reading.library})"
    return render_page(
        [opening_of(subject, purpose)],
        sections,
        control,
        headline=headline(models, trained.settings.data, purpose),
    )


def tree_subject(trained: TreeRun, certificate: Certificate | None) -> Subject:
    """Return what an opening says about a tree model."""
    labels, right = trained.reading.classes, trained.right

    def example(rho: float) -> str:
        prices = zip(
            trained.names, trained.prices.move.tolist(), trained.prices.discrete.tolist(), strict=True
        )
        moves = [(math.sqrt(rho / price), column) for column, price, discrete in prices if not discrete]
        length, column = max(moves, default=(0.0, ""))
        return f"as when {column} alone changes by {plain(length)} in every row" if length > 0 else ""

    return Subject(
        name=str(trained.path),
        certificate=certificate,
        smoothed=None,
        classes=None if labels is None else len(labels),
        class_names=None if labels is None else [str(label) for label in labels],
        targets=trained.targets,
        rows=f"{len(trained.rows):,} rows of its table",
        error=None if right is None else 1 - right,
        loss=None if right is not None else _squared_error(trained),
        squared=labels is None,
        target_scale=None,
        units=_UNITS,
        example=example,
        training=None,
        monitored=False,
        rounded=True,
    )


def _answers(trained: TreeRun) -> Tensor:
    """Return (n,) codes of the predicted classes, or the predicted numbers of a regression."""
    predictions = trained.reading.predict(trained.rows)
    return trained.reading.encode_targets(predictions)


def _squared_error(trained: TreeRun) -> float:
    return float((_answers(trained).double() - trained.targets.double()).square().mean())


def _model_words(trained: TreeRun) -> str:
    labels = trained.reading.classes
    kind = "predicts a number" if labels is None else f"tells {len(labels)} classes apart"
    return (
        f"This model ({trained.reading.library}, {len(trained.reading.ensemble.roots)} trees) {kind}. It was "
        f"imported with the table {trained.settings.data}. If it was trained on these rows, its errors on "
        "them are too low."
    )


def _facts(trained: TreeRun) -> dict[str, object]:
    settings = trained.settings
    return {
        "model": f"{settings.model} ({trained.reading.library})",
        "sha256 of the model": settings.model_sha256,
        "data": f"{settings.data} ({len(trained.rows):,} rows)",
        "sha256 of the data": settings.data_sha256,
        "target": settings.target,
        "distances in": _UNITS,
        "imported with": f"certus {settings.certus_version}",
    }
