"""The report: one HTML page with plotly.js, style and script inside, so that nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from torch import Tensor

import certus
from certus._format import at_most
from certus.display.html import templates
from certus.display.report import charts as plots
from certus.display.report.contents import (
    SHARE,
    STRENGTHS,
    RunReport,
    changed_words,
    label_words,
    most_moved,
    moved_table,
    report_commands,
    run_facts,
)
from certus.display.report.summary import summary
from certus.display.tables import (
    accuracy_tables,
    bracket_tables,
    certificate_parts,
    sensitivity_table,
    smoothed_parts,
)
from certus.display.text import Part
from certus.errors import UnsupportedError

Block = tuple[str, Any]
"""A macro of ``templates/blocks.html``, and what it shows."""

Card = tuple[str, list[Block]]
"""The name of a run, and what a section shows of it."""

_IMAGES = 6


def render_report(reports: Sequence[RunReport]) -> str:
    """Return the page about one run, or about several side by side."""
    from markupsafe import Markup

    page = _Page(reports)
    folder = files("certus.display").joinpath("templates")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    library = plotly_js()
    sections = page.sections()
    plots.share_axes(page.charts)
    return (
        templates()
        .get_template("report.html")
        .render(
            title="certus report: " + ", ".join(report.name for report in reports),
            policy=security_policy([library, script], [style]),
            sections=sections,
            slider=plots.slider_table(page.slider, page.grid) if page.slider else None,
            rows=reports[0].chosen.words,
            strongest=f"{STRENGTHS[-1]:.0%}",
            failed=page.failed,
            share=f"{SHARE:g}",
            version=certus.__version__,
            seed=reports[0].seed,
            map_styles=sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', library))),
            data={"charts": page.charts, "readings": plots.slider_readings(page.slider, page.grid)},
            style=Markup(style),  # texts of certus and plotly, not of users
            script=Markup(script),
            library=Markup(library),
        )
    )


class _Page:
    """Cards of every section; collects the charts that they show, by their ids."""

    def __init__(self, reports: Sequence[RunReport]) -> None:
        self.reports = reports
        self.charts: dict[str, plots.Chart] = {}
        self.slider: list[plots.SliderRow] = []
        self.grid = plots.slider_grid([one.certificate for one in reports if one.certificate is not None])
        self.failed = False

    def sections(self) -> dict[str, Any]:
        """Return what each section of the template shows: cards, or a chart; empty without data."""
        units = self.reports[0].trained.data.units
        attacks, self.failed = plots.attack_chart(self.reports, units)
        nearest = plots.nearest_chart(self.reports, units)
        return {
            "summary": self._cards(_summary),
            "brackets": self._cards(self._brackets),
            "accuracy": self._cards(self._accuracy),
            "stability": self._cards(
                lambda _, report: _blocks(certificate_parts(report.stability) if report.stability else [])
            ),
            "noise": self._cards(self._noise),
            "training": self._cards(
                lambda place, report: self._place(
                    f"training-{place}", plots.training_charts(report.trained.run.history)
                )
            ),
            "attacks": self._place("", {"attacks": attacks})[0][1],
            "nearest": self._place("", {"nearest": nearest})[0][1] if nearest else None,
            "smoothness": self._cards(self._smoothness),
            "sensitivity": self._cards(self._sensitivity),
            "worst_case": self._cards(self._worst_case),
            "origin": self._cards(
                lambda _, report: [("facts", run_facts(report)), ("commands", report_commands(report))]
            ),
        }

    def _cards(self, show: Callable[[int, RunReport], list[Block]]) -> list[Card]:
        cards = [(report.name, show(place, report)) for place, report in enumerate(self.reports)]
        return [(name, blocks) for name, blocks in cards if blocks]

    def _place(self, prefix: str, charts: Mapping[str, plots.Chart | None]) -> list[Block]:
        blocks: list[Block] = []
        for name, chart in charts.items():
            if chart is not None:
                identifier = "-".join(filter(None, (prefix, name)))
                self.charts[identifier] = plots.escape_names(chart)
                blocks.append(("chart", chart | {"id": identifier}))
        return blocks

    def _brackets(self, place: int, report: RunReport) -> list[Block]:
        certificate = report.certificate
        if certificate is None:
            return []
        curve = certificate.curve(self.grid)
        charts = plots.bracket_charts(certificate, curve)
        identifiers = [f"bracket-{place}-{name}" for name in charts]
        self.slider.append(plots.SliderRow(place, report.name, certificate, identifiers))
        return self._place(f"bracket-{place}", charts) + _blocks(bracket_tables(certificate))

    def _accuracy(self, place: int, report: RunReport) -> list[Block]:
        certificate = report.certificate
        if certificate is None or certificate.classes is None or certificate.no_proof is not None:
            return []
        distances = [
            distance
            for one in (other.certificate for other in self.reports)
            if one is not None
            for distance in (*one.epsilons, *(bracket.distance for bracket in one.curve()))
        ]
        farthest = 1.25 * max(distances, default=0.0) or 0.1
        chart = plots.accuracy_chart(certificate, farthest)
        return self._place("", {f"accuracy-{place}": chart}) + _blocks(accuracy_tables(certificate))

    def _noise(self, place: int, report: RunReport) -> list[Block]:
        if report.smoothed is None:
            return []
        charts = plots.noise_charts(report.smoothed)
        return self._place(f"noise-{place}", charts) + _blocks(smoothed_parts(report.smoothed))

    def _smoothness(self, place: int, report: RunReport) -> list[Block]:
        blocks: list[Block] = []
        if report.bound is not None:
            words = (
                f"The curvature of the loss is at most {at_most(report.bound.curvature)} at every input "
                f"({report.bound.evidence}). The inner problem, which finds the worst case of a sample at "
                f"the penalty γ, is therefore concave for every γ above {at_most(report.bound.gamma)}."
            )
            blocks.append(("text", words))
        share = report.concave_share
        if share is not None:
            undecided = f"; undecided at {share.unresolved}" if share.unresolved else ""
            words = (
                f"At γ = {report.trained.gamma:.4g}, at which this run ended, the inner problem is concave "
                f"at {share.concave} of {share.count} samples (estimated{undecided})."
            )
            blocks.append(("text", words))
        return blocks + self._place("", {f"layers-{place}": plots.layer_chart(report)})

    def _sensitivity(self, place: int, report: RunReport) -> list[Block]:
        if not report.sensitivity:
            return []
        chart = self._place("", {f"fragile-{place}": plots.sensitivity_chart(report)})
        return [*chart, ("table", sensitivity_table(report.sensitivity))]

    def _worst_case(self, place: int, report: RunReport) -> list[Block]:
        table, chart = moved_table(report), plots.feature_chart(report)
        return [
            *_images(report),
            *([] if table is None else [("table", table)]),
            *self._place("", {f"features-{place}": chart}),
        ]


def _summary(_: int, report: RunReport) -> list[Block]:
    return [*(("text", line) for line in summary(report)), *(("note", line) for line in report.remarks)]


def _blocks(parts: Sequence[Part]) -> list[Block]:
    return [("text" if isinstance(part, str) else "table", part) for part in parts]


def _images(report: RunReport) -> list[Block]:
    """Return images before and after the worst case moves them; nothing for other data."""
    moves = report.worst_case
    if moves is None or moves.before.dim() != 4 or moves.before.shape[1] not in (1, 3):
        return []
    pairs = []
    for place in most_moved(moves, _IMAGES):
        target, changed = label_words(report, moves.targets[place]), changed_words(report, place)
        caption = f"target {target}, predicted {changed}"
        before, after = (_data_url(side[place]) for side in (moves.before, moves.after))
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
