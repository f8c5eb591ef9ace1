"""The report: one HTML page with plotly.js, style and script inside, which fetches nothing; its figures."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from torch import Tensor

import certus
from certus._format import at_most
from certus.display import figures, tables
from certus.display.canvas import save_figure
from certus.display.render import templates
from certus.display.report import charts as plots
from certus.display.report import contents
from certus.display.report.contents import RunReport
from certus.display.report.summary import summary
from certus.display.text import Part
from certus.errors import UnsupportedError
from certus.training.metrics import clean_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Block = tuple[str, Any]
"""A macro of ``templates/blocks.html``, and what it shows."""

_IMAGES = 6

# ---------------------------------------------------------------------------------------------------------
# The page
# ---------------------------------------------------------------------------------------------------------


def render_report(reports: Sequence[RunReport]) -> str:
    """Return the page about one run, or about several side by side."""
    folder = files("certus.display").joinpath("templates")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    library = plotly_js()
    grid = plots.slider_grid([one.certificate for one in reports if one.certificate is not None])
    slider = plots.slider([(report.name, report.certificate) for report in reports], grid)
    sections = _sections(reports, grid)
    cards = [blocks for section in sections.values() for _, blocks in section]
    charts = {chart["id"]: chart for blocks in cards for macro, chart in blocks if macro == "chart"}
    plots.share_axes(charts)
    attacks = charts["attacks"]["data"]
    return (
        templates()
        .get_template("report.html")
        .render(
            title="certus report: " + ", ".join(report.name for report in reports),
            policy=security_policy([library, script], [style]),
            sections=sections,
            slider=slider,
            rows=reports[0].chosen.words,
            strongest=f"{contents.STRENGTHS[-1]:.0%}",
            failed=any("circle-open" in trace["marker"]["symbol"] for trace in attacks),
            share=f"{contents.SHARE:g}",
            version=certus.__version__,
            seed=reports[0].seed,
            map_styles=sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', library))),
            data={"charts": charts, "readings": [] if slider is None else slider["readings"]},
            style=Markup(style),  # texts of certus and plotly, not of users
            script=Markup(script),
            library=Markup(library),
        )
    )


def _sections(
    reports: Sequence[RunReport], grid: Sequence[float]
) -> dict[str, list[tuple[str, list[Block]]]]:
    """Return the cards of each section: the blocks of each run, or one card without a name about all runs."""
    certificates = [report.certificate for report in reports if report.certificate is not None]
    distances = [
        distance
        for one in certificates
        for distance in (*one.epsilons, *(bracket.distance for bracket in one.curve()))
    ]
    farthest = 1.25 * max(distances, default=0.0) or 0.1
    runs = [(run.name, _run_blocks(index, run, grid, farthest)) for index, run in enumerate(reports)]
    sections = {
        section: [(name, blocks[section]) for name, blocks in runs if blocks[section]]
        for section in runs[0][1]
    }
    units = reports[0].trained.data.units
    for name, chart in (("attacks", plots.attack_chart), ("nearest", plots.nearest_chart)):
        blocks = _charts("", {name: chart(reports, units)})
        sections[name] = [("", blocks)] if blocks else []
    return sections


def _run_blocks(
    index: int, report: RunReport, grid: Sequence[float], farthest: float
) -> dict[str, list[Block]]:
    """Return what each section shows of a run; nothing where it has no data."""
    certificate, stability, smoothed = report.certificate, report.stability, report.smoothed
    history, bound, share = report.trained.run.history, report.bound, report.concave_share
    notes = [("note", remark) for remark in report.remarks]
    blocks: dict[str, list[Block]] = {
        "summary": [*_blocks(summary(report)), *notes],
        "brackets": [],
        "accuracy": [],
        "stability": [] if stability is None else _blocks(tables.certificate_parts(stability)),
        "noise": [],
        "training": _charts(f"training-{index}-", plots.training_charts(history)) if history else [],
        "smoothness": [],
        "sensitivity": [],
        "worst_case": _images(report),
        "origin": [("facts", contents.run_facts(report)), ("commands", contents.report_commands(report))],
    }
    if certificate is not None:
        charts = plots.bracket_charts(certificate, certificate.curve(grid))
        blocks["brackets"] = _charts(f"bracket-{index}-", charts) + _blocks(
            tables.bracket_tables(certificate)
        )
        if certificate.classes is not None and certificate.no_proof is None:
            chart = _charts("", {f"accuracy-{index}": plots.accuracy_chart(certificate, farthest)})
            blocks["accuracy"] = chart + _blocks(tables.accuracy_tables(certificate))
    if smoothed is not None:
        charts = plots.noise_charts(smoothed)
        blocks["noise"] = _charts(f"noise-{index}-", charts) + _blocks(tables.smoothed_parts(smoothed))
    if bound is not None:
        words = (
            f"The curvature of the loss is at most {at_most(bound.curvature)} at every input "
            f"({bound.evidence}). The inner problem, which finds the worst case of a sample at "
            f"the penalty γ, is therefore concave for every γ above {at_most(bound.gamma)}."
        )
        blocks["smoothness"].append(("text", words))
    if share is not None:
        undecided = f"; undecided at {share.unresolved}" if share.unresolved else ""
        words = (
            f"At γ = {report.trained.gamma:.4g}, at which this run ended, the inner problem is concave "
            f"at {share.concave} of {share.count} samples (estimated{undecided})."
        )
        blocks["smoothness"].append(("text", words))
    blocks["smoothness"] += _charts("", {f"layers-{index}": plots.layer_chart(report)})
    if report.sensitivity:
        chart = _charts("", {f"fragile-{index}": plots.sensitivity_chart(report)})
        blocks["sensitivity"] = [*chart, ("table", tables.sensitivity_table(report.sensitivity))]
    table = contents.moved_table(report)
    if table is not None:
        chart = _charts("", {f"features-{index}": plots.feature_chart(report)})
        blocks["worst_case"] += [("table", table), *chart]
    return blocks


def _charts(prefix: str, charts: Mapping[str, plots.Chart | None]) -> list[Block]:
    shown = {f"{prefix}{name}": chart for name, chart in charts.items() if chart is not None}
    return [("chart", chart | {"id": identifier}) for identifier, chart in shown.items()]


def _blocks(parts: Sequence[Part]) -> list[Block]:
    return [("text" if isinstance(part, str) else "table", part) for part in parts]


def _images(report: RunReport) -> list[Block]:
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


# ---------------------------------------------------------------------------------------------------------
# Its figures as files
# ---------------------------------------------------------------------------------------------------------


def draw_figures(reports: Sequence[RunReport], folder: Path) -> list[str]:
    """Draw the figures that there are data for, as PNG, SVG and PDF. Returns: names without suffixes."""
    data, rows = reports[0].trained.data, reports[0].chosen.words
    strength, curves = (
        f"every sample moves by at most ε ({data.units})",
        {one.name: one.attack_curve for one in reports},
    )
    panel = figures.Panel("pgd, norm 2", strength, reports[0].attacked_quantity, curves, towards=1)
    drawn = {"attacks": figures.sweep_figure([panel], f"{rows}; 95% intervals")}
    distances = {report.name: report.nearest.tolist() for report in reports if report.nearest is not None}
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
