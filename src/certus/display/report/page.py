"""The page: sections in their order, with plotly.js, style and script inside; nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import certus
from certus._format import at_least, at_most
from certus.display.attack_figures import FAILED
from certus.display.report import charts as drawn
from certus.display.report.charts import Reader, grid_of, readings, share_axes, slider_part
from certus.display.report.findings import (
    SHARE,
    STRENGTHS,
    Findings,
    fragile_rows,
    moved_images,
    moved_table,
    run_facts,
)
from certus.display.report.html import (
    as_html,
    chart_place,
    escaped,
    html_table,
    paragraphs,
    section,
    side_by_side,
)
from certus.display.report.sentences import opening
from certus.display.tables import certificate_parts, smoothed_parts
from certus.errors import UnsupportedError


class Page:
    """Collects the charts while the sections are written."""

    def __init__(self, findings: Sequence[Findings]) -> None:
        self.findings = findings
        self.charts: dict[str, Any] = {}
        self.readings: list[dict[str, Any]] = []

    def html(self) -> str:
        """The whole page."""
        body = "".join(
            (
                self._opening(),
                self._brackets(),
                self._accuracy(),
                self._stability(),
                self._noise(),
                self._training(),
                self._attacks(),
                self._nearest(),
                self._smoothness(),
                self._fragile(),
                self._worst(),
                self._about(),
            )
        )
        share_axes(self.charts)
        title = "certus report: " + ", ".join(found.name for found in self.findings)
        told = json.dumps({"charts": self.charts, "readings": self.readings}, allow_nan=False)
        here = files("certus.display.report")
        style, script = (here.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
        library = plotly_js()
        policy = security_policy([library, script], [style])
        # The style of maps, which no chart here is: plotly leaves it out where its element is there already.
        maps = sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', library)))
        body += "".join(f'<template id="{name}"></template>' for name in maps)
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escaped(title)}</title><link rel=icon href=data:,>"
            f"<style>{style}</style></head><body>{body}"
            f'<script type="application/json" id="told">{told.replace("<", chr(92) + "u003c")}</script>'
            f"<script>{library}</script><script>{script}</script></body></html>\n"
        )

    def _place(self, name: str, chart: dict[str, Any] | None) -> str:
        if chart is None:
            return ""
        self.charts[name] = drawn.literal(chart)
        return chart_place(name, chart)

    def _opening(self) -> str:
        cards = [(found.name, paragraphs(opening(found)) + _soft(found.remarks)) for found in self.findings]
        return f"<h1>How well it holds when the data move</h1>{side_by_side(cards)}"

    def _brackets(self) -> str:
        certified = {
            place: found.certificate
            for place, found in enumerate(self.findings)
            if found.certificate is not None
        }
        if not certified:
            return ""
        grid = grid_of(list(certified.values()))
        cards, readers = [], []
        for place, certificate in certified.items():
            found = self.findings[place]
            curve = certificate.curve(grid)
            made = drawn.bracket_charts(certificate, curve, found.trained.data.units)
            names = {f"bracket-{place}-{name}": chart for name, chart in made.items()}
            content = "".join(self._place(name, chart) for name, chart in names.items())
            cards.append((found.name, content + _bracket_table(found)))
            readers.append(Reader.of(place, found.name, certificate, list(names)))
        self.readings = readings(readers, grid)
        words = (
            "The worst case over all ways to move the certified samples by a mean squared distance of at "
            "most ρ (more generally, a mean transport cost); its root √ρ is a root mean square distance. "
            "“At least” is attained by data that were found. “At most” is proven, or assumed where it says "
            "so. The true worst case lies in the shaded band. The vertical dotted line is where the slider "
            "stands."
        )
        return section(
            "The worst case, from below and from above",
            paragraphs([words]),
            slider_part(readers, grid),
            side_by_side(cards),
        )

    def _accuracy(self) -> str:
        certified = {
            place: found.certificate
            for place, found in enumerate(self.findings)
            if found.certificate is not None
            and found.certificate.classes is not None
            and found.certificate.no_proof is None
        }
        asked = [
            distance
            for one in certified.values()
            for distance in (*one.epsilons, *(bracket.distance for bracket in one.curve()))
        ]
        far = 1.25 * max(asked, default=0.0) or 0.1
        cards = []
        for place, certificate in certified.items():
            found = self.findings[place]
            chart = drawn.accuracy_chart(certificate, far, found.trained.data.units)
            rows = [
                (f"{one.epsilon:g}", at_least(one.certified), at_most(one.attacked))
                for one in certificate.accuracies()
            ]
            listed = html_table(("ε", "at least", "at most"), rows)
            cards.append((found.name, self._place(f"accuracy-{place}", chart) + listed))
        words = (
            "The share of the certified samples that stay classified correctly wherever each of them moves "
            "by at most ε. Here ε limits every single sample; √ρ above is a root mean square over all "
            "samples, so that some may move farther than √ρ."
        )
        return section("Certified accuracy", *_if_any(side_by_side(cards), paragraphs([words])))

    def _stability(self) -> str:
        cards = [
            (found.name, as_html(certificate_parts(found.stability)))
            for found in self.findings
            if found.stability is not None
        ]
        return section("Changes of the predictions", side_by_side(cards))

    def _noise(self) -> str:
        cards = []
        for place, found in enumerate(self.findings):
            if found.smoothed is not None:
                made = drawn.noise_charts(found.smoothed, found.trained.data.units)
                charts = "".join(self._place(f"noise-{place}-{name}", one) for name, one in made.items())
                cards.append((found.name, charts + as_html(smoothed_parts(found.smoothed))))
        words = (
            "The same network with Gaussian noise added to its inputs. Its noisy predictions are counted; "
            "its weights are not used. The network with noise is a different model from the one above."
        )
        return section("Certified in noise", *_if_any(side_by_side(cards), paragraphs([words])))

    def _training(self) -> str:
        cards = []
        for place, found in enumerate(self.findings):
            made = drawn.training_charts(found.trained.run.history)
            cards.append(
                (
                    found.name,
                    "".join(self._place(f"training-{place}-{name}", one) for name, one in made.items()),
                )
            )
        words = (
            "Robust training sees moved inputs, which are harder. Compare models by the held-out curve, "
            "which is measured on unmoved data."
        )
        return section("Training", *_if_any(side_by_side(cards), paragraphs([words])))

    def _attacks(self) -> str:
        first = self.findings[0]
        words = (
            f"Each sample is moved by at most ε by PGD (projected gradient ascent) in the L2 norm with 15 "
            f"steps, on {first.chosen.words}; intervals are 95%. Attained: the worst case is at least this "
            f"bad, and may be worse. ε goes up to {STRENGTHS[-1]:.0%} of the mean length of an input vector."
        )
        made = drawn.attack_chart(self.findings, first.trained.data.units)
        if any("circle-open" in line["marker"]["symbol"] for line in made["data"]):
            words += f" {FAILED[0].upper()}{FAILED[1:]} there."
        return section("Attacks", paragraphs([words]), self._place("attacks", made))

    def _nearest(self) -> str:
        first = self.findings[0]
        chart = self._place("nearest", drawn.nearest_chart(self.findings, first.trained.data.units))
        words = (
            "The share of the samples for which PGD with bisection found an error within a distance "
            "(attained): the nearest error may be closer than the one found. Where a line ends below 1, none "
            "was found for the other samples."
        )
        return section("Nearest errors", *_if_any(chart, paragraphs([words])))

    def _smoothness(self) -> str:
        cards = []
        for place, found in enumerate(self.findings):
            content = self._place(f"layers-{place}", drawn.layer_chart(found))
            said = []
            if found.bound is not None:
                said.append(
                    f"The curvature of the loss is at most {at_most(found.bound.curvature)} at every input "
                    f"({found.bound.evidence}). The inner problem, which finds the worst case of a sample at "
                    f"the penalty γ, is therefore concave for every γ above {at_most(found.bound.gamma)}."
                )
            if found.share is not None:
                share = found.share
                said.append(
                    f"At γ = {found.trained.gamma:.4g}, at which this run ended, the inner problem is "
                    f"concave at {share.concave} of {share.count} samples "
                    f"(estimated{_unsettled(share.unresolved)})."
                )
            cards.append((found.name, paragraphs(said) + content))
        words = (
            "A bar shows how much a layer adds to the proven bound on the curvature of the loss. The longest "
            "bar shows where a smaller weight norm would lower the bound most."
        )
        return section("Smoothness, layer by layer", *_if_any(side_by_side(cards), paragraphs([words])))

    def _fragile(self) -> str:
        cards = [
            (
                found.name,
                self._place(f"fragile-{place}", drawn.fragile_chart(found))
                + html_table(*fragile_rows(found.fragile)),
            )
            for place, found in enumerate(self.findings)
            if found.fragile
        ]
        words = (
            f"A single feature moves by a root mean square of {SHARE:g} of its standard deviation; all "
            f"others stay. About {self.findings[0].chosen.words}. Shown are the features along which the "
            "loss rises most steeply, the most fragile first. A category changes in some rows instead."
        )
        return section("Fragile features", *_if_any(side_by_side(cards), paragraphs([words])))

    def _worst(self) -> str:
        cards = [
            (
                found.name,
                moved_images(found)
                + moved_table(found)
                + self._place(f"features-{place}", drawn.feature_chart(found)),
            )
            for place, found in enumerate(self.findings)
        ]
        words = (
            "Samples before and after the worst case at this run's γ moves them: to where the loss minus γ "
            "times the cost of moving is largest, as an ascent finds it (estimated). Samples whose "
            "prediction changes come first, then those that move farthest."
        )
        return section("What the worst case changes", *_if_any(side_by_side(cards), paragraphs([words])))

    def _about(self) -> str:
        cards = [(found.name, run_facts(found)) for found in self.findings]
        made = (
            f"This page was written by certus {certus.__version__}; the samples that it attacks were chosen "
            f"by seed {self.findings[0].seed}."
        )
        return section("Data, seeds, versions, commands", side_by_side(cards), paragraphs([made]))


def plotly_js() -> str:
    """The library, from the installed package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UnsupportedError("A report needs plotly: pip install 'certus[report]'.") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def security_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """A Content-Security-Policy under which nothing runs but these scripts, and nothing is fetched.

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


def _if_any(content: str, *before: str) -> tuple[str, ...]:
    return (*before, content) if content else ()


def _soft(lines: Sequence[str]) -> str:
    return "".join(f'<p class="soft">{escaped(line)}</p>' for line in lines)


def _unsettled(count: int) -> str:
    return f"; undecided at {count}" if count else ""


def _bracket_table(found: Findings) -> str:
    """At every ρ that was asked for: what the command prints."""
    assert found.certificate is not None
    rows = []
    for one in found.certificate.curve():
        upper = "no proof" if found.certificate.no_proof is not None else at_most(one.loss_high)
        row = [f"{one.rho:g}", f"{one.distance:.3g}", at_least(one.loss_low), upper]
        if one.error_low is not None:
            row += [at_least(one.error_low), "–" if one.error_high is None else at_most(one.error_high)]
        rows.append(row)
    labelled = len(rows[0]) > 4
    names = ("ρ", "√ρ", "loss at least", "at most", *(("error at least", "at most") if labelled else ()))
    return html_table(names, rows)
