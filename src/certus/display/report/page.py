"""The report: one HTML page with plotly.js, style and script inside, which fetches nothing; its figures."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from torch import Tensor

import certus
from certus._format import at_most
from certus.display import figures, tables
from certus.display.canvas import COLOURS, save_figure
from certus.display.render import templates
from certus.display.report import charts as plots
from certus.display.report import contents
from certus.display.report.contents import RunReport
from certus.display.report.summary import summary
from certus.errors import UnsupportedError
from certus.training.metrics import clean_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Card = tuple[str, list[Any]]
"""The name of a run, and its parts: sentences, tables, charts, or a kind of other content with that."""

_IMAGES = 6


def render_report(reports: Sequence[RunReport]) -> str:
    """Return the page about one run, or about several side by side."""
    folder = files("certus.display").joinpath("templates")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    library = plotly_js()
    grid = plots.slider_grid([one.certificate for one in reports if one.certificate is not None])
    slider = plots.slider([(report.name, report.certificate) for report in reports], grid)
    sections = _sections(reports, grid)
    parts = [part for cards in sections.values() for _, shown in cards for part in shown]
    charts = {part["id"]: part for part in parts if isinstance(part, dict)}
    plots.share_axes(charts)
    page = templates().get_template("report.html")
    return page.render(
        title="certus report: " + ", ".join(report.name for report in reports),
        policy=security_policy([library, script], [style]),
        sections=sections,
        slider=slider,
        rows=reports[0].chosen.words,
        strongest=f"{contents.STRENGTHS[-1]:.0%}",
        failed=any("circle-open" in trace["marker"]["symbol"] for trace in charts["attacks"]["data"]),
        share=f"{contents.SHARE:g}",
        version=certus.__version__,
        seed=reports[0].seed,
        map_styles=sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', library))),
        data={"charts": charts, "readings": [] if slider is None else slider["readings"]},
        style=Markup(style),  # texts of certus and plotly, not of users
        script=Markup(script),
        library=Markup(library),
    )


def _sections(reports: Sequence[RunReport], grid: Sequence[float]) -> dict[str, list[Card]]:
    """Return the cards of each section: one for each run, or one without a name about all runs."""
    sections: dict[str, list[Card]] = defaultdict(list)
    certificates = [report.certificate for report in reports if report.certificate is not None]
    distances = [bracket.distance for one in certificates for bracket in one.curve()]
    farthest = 1.25 * max([*distances, *(epsilon for one in certificates for epsilon in one.epsilons), 0.0])
    for place, report in enumerate(reports):
        for section, parts in _run_parts(place, report, grid, farthest or 0.1):
            if parts:
                sections[section].append((report.name, parts))
    units = reports[0].trained.data.units
    sections["attacks"] = [("", [plots.attack_chart(reports, f"{plots.RADIUS} ({units})")])]
    lines = figures.nearest_lines(contents.nearest_distances(reports))
    if lines:
        title = f"distance to the nearest error that was found ({units})"
        sections["nearest"] = [("", [plots.line_chart("nearest", lines, title, "share of the samples")])]
    return sections


def _run_parts(
    place: int, report: RunReport, grid: Sequence[float], farthest: float
) -> Iterator[tuple[str, list[Any]]]:
    """Yield what each section shows of a run; ``place`` is that of the run on the page."""
    certificate, smoothed, bound = report.certificate, report.smoothed, report.bound
    share, history = report.concave_share, report.trained.run.history
    yield "summary", [*summary(report), *(("note", remark) for remark in report.remarks)]
    if certificate is not None:
        charts = plots.bracket_charts(place, certificate, certificate.curve(grid))
        yield "brackets", [*charts, *tables.bracket_tables(certificate)]
        if certificate.classes is not None and certificate.no_proof is None:
            lines, radius = figures.accuracy_lines(certificate, farthest), tables.units_of(certificate)
            axes = f"{plots.RADIUS} ({radius})", figures.accuracy_name(certificate.labels)
            chart = plots.line_chart(f"accuracy-{place}", lines, *axes)
            yield "accuracy", [chart, *tables.accuracy_tables(certificate)]
    if report.stability is not None:
        yield "stability", tables.certificate_parts(report.stability)
    if smoothed is not None:
        yield "noise", [*plots.noise_charts(place, smoothed), *tables.smoothed_parts(smoothed)]
    if history:
        yield "training", plots.training_charts(place, history)
    smoothness: list[Any] = []
    if bound is not None:
        smoothness.append(
            f"The curvature of the loss is at most {at_most(bound.curvature)} at every input "
            f"({bound.evidence}). The inner problem, which finds the worst case of a sample at "
            f"the penalty γ, is therefore concave for every γ above {at_most(bound.gamma)}."
        )
    if share is not None:
        undecided = f"; undecided at {share.unresolved}" if share.unresolved else ""
        smoothness.append(
            f"At γ = {report.trained.gamma:.4g}, at which this run ended, the inner problem is concave "
            f"at {share.concave} of {share.count} samples (estimated{undecided})."
        )
    if bound is not None:
        sizes, title = figures.layer_curvatures(bound), "adds to the curvature (sum rule)"
        smoothness.append(plots.bar_chart(f"layers-{place}", sizes, title, COLOURS[4]))
    yield "smoothness", smoothness
    if report.sensitivity:
        charts = plots.sensitivity_charts(place, report)
        yield "sensitivity", [*charts, tables.sensitivity_table(report.sensitivity)]
    worst_case, rows = _images(report), contents.moved_rows(report)
    if rows is not None:
        table, moves = rows
        title = f"mean absolute move ({report.trained.data.units})"
        chart = plots.bar_chart(f"features-{place}", moves, title, COLOURS[3])
        worst_case += [table, chart] if moves else [table]
    yield "worst_case", worst_case
    yield "origin", [("facts", contents.run_facts(report)), ("commands", contents.report_commands(report))]


def _images(report: RunReport) -> list[Any]:
    """Return images before and after the worst case moves them; nothing for other data."""
    moves = report.worst_case
    if moves is None or moves.before.dim() != 4 or moves.before.shape[1] not in (1, 3):
        return []
    pairs = []
    for index in contents.most_moved(moves, _IMAGES):
        target = contents.label_words(report, moves.targets[index])
        caption = f"target {target}, predicted {contents.changed_words(report, index)}"
        before, after = (_data_url(side[index]) for side in (moves.before, moves.after))
        pairs.append({"before": before, "after": after, "caption": caption})
    return [("images", pairs)]


def _data_url(image: Tensor) -> str:
    """Return a (channels, height, width) image with values in [0, 1], grey or RGB, as a PNG in a URL."""
    from matplotlib.image import imsave

    levels = (image.detach().double().clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
    content = io.BytesIO()
    imsave(content, levels.expand(-1, -1, 3).contiguous().numpy(), format="png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def plotly_js() -> str:
    """Return plotly.js from the installed package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UnsupportedError("A report needs plotly: pip install 'certus[report]'.") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def security_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a Content-Security-Policy under which only these scripts run, and nothing is fetched.

    Style elements are ours, or start empty, as plotly's does before it inserts its rules; style attributes
    are allowed.
    """

    def hashes(texts: Sequence[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes(scripts)}; style-src-elem {hashes([*styles, ''])}; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def draw_figures(reports: Sequence[RunReport], folder: Path) -> list[str]:
    """Draw the figures that there are data for, as PNG, SVG and PDF. Returns: names without suffixes."""
    data, rows = reports[0].trained.data, reports[0].chosen.words
    strength, curves = f"{plots.RADIUS} ({data.units})", {one.name: one.attacks for one in reports}
    panel = figures.Panel("pgd, norm 2", strength, reports[0].attacked_quantity, curves, towards=1)
    drawn = {"attacks": figures.sweep_figure([panel], f"{rows}; 95% intervals")}
    distances = contents.nearest_distances(reports)
    if distances:
        title = f"nearest errors of {rows}, by PGD with bisection (attained)"
        drawn["nearest"] = figures.nearest_figure(distances, data.units, title)
    for number, report in enumerate(reports, 1):
        mark = "" if len(reports) == 1 else f"-{number}"
        drawn |= {f"{name}{mark}": figure for name, figure in _run_figures(report).items()}
    for name, figure in drawn.items():
        for suffix in ("png", "svg", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
    return list(drawn)


def _run_figures(report: RunReport) -> dict[str, Figure]:
    drawn, moves = {}, report.sensitivity
    if report.certificate is not None:
        drawn["brackets"] = figures.bracket_figure(report.certificate, report.name)
    if report.bound is not None and report.bound.curvature > 0:
        drawn["smoothness"] = figures.smoothness_figure(report.bound)
    if report.smoothed is not None:
        drawn["smoothing"] = figures.smoothed_figure(report.smoothed, report.name)
    if moves and math.isfinite(moves[0].bracket.loss_high):
        clean = clean_metrics(report.trained.loss, report.chosen.data)
        drawn["fragile"] = figures.sensitivity_figure(moves, clean, contents.SHARE)
    if report.trained.run.history:
        drawn["training"] = figures.training_figure(report.trained.run.history, report.name)
    return drawn
