"""The parts of a study: measurements, pictures, and verdicts on claims.

    STUDY = Study(
        name="toy",
        parts=lambda scale: [Part("elu-0", {"activation": "elu", "seed": 0}, measure_one), …],
        pictures=(Picture("boundaries", "Boundaries of ERM, FGM and WRM (fig:toy).", draw_boundaries), …),
        verdicts=judge,
        …
    )

A part is minutes of work with a result in JSON types. It is stored on its own, so that an interrupted study
resumes with the next part. Pictures and verdicts are functions of the measurements of all parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from certus.kernel.evidence import Evidence

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from studies.workspace import Workspace

Measured = Mapping[str, Any]
"""Name of a part → its measurement, in JSON types."""


class Scale(StrEnum):
    """Extent of a measurement: minutes for a first look, or all that a page of ``results/`` shows."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Part:
    """One measurement.

    Attributes:
        name: unique within the study.
        settings: everything that the measurement depends on, in JSON types; a change invalidates it.
        measure: function of a workspace, which trains networks, and the settings; returns JSON types.
        effort: relative duration, for the estimate of the time that is left.
        packages: optional packages that must be installed and whose versions are recorded.
        data: data sets that must be fetched, besides those of the whole study.
        home: for a part that two studies share, the study that stores it, and its name there.
    """

    name: str
    settings: Mapping[str, Any]
    measure: Callable[[Workspace, Mapping[str, Any]], Any]
    effort: float = 1.0
    packages: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    home: tuple[Study, str] | None = None


@dataclass(frozen=True)
class Picture:
    """A figure: file name, caption, and the function that draws it."""

    name: str
    caption: str
    draw: Callable[[Measured], Figure]


@dataclass(frozen=True)
class Animation:
    """A GIF: file name, caption, and the function that writes it."""

    name: str
    caption: str
    write: Callable[[Measured, Path], None]


class Outcome(StrEnum):
    """Whether a claim holds, or how a question is answered."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    NOT_COMPARABLE = "not comparable"


def outcome_of(holds: bool | None) -> Outcome:
    """Return the outcome of a decision; None means that the measurements do not decide it."""
    return {True: Outcome.YES, False: Outcome.NO, None: Outcome.NOT_COMPARABLE}[holds]


def outcome_of_several(hold: Sequence[bool]) -> Outcome:
    """Return *yes* if all conditions hold, *no* if none does, *partly* otherwise."""
    if not hold:
        return Outcome.NOT_COMPARABLE
    return Outcome.YES if all(hold) else Outcome.PARTLY if any(hold) else Outcome.NO


@dataclass(frozen=True)
class Quantity:
    """A measured number, and how it is printed.

    Attributes:
        value: None where it is not defined, such as the median of no values, or not finite.
        low, high: the ends of its interval, if it has one.
        places: decimals; if None, ``digits`` significant digits.
        side: ``at most`` or ``at least`` of a bound, which is rounded outwards.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    places: int | None = None
    percent: bool = False
    side: str = ""
    digits: int = 2

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None:  # in JSON types
                object.__setattr__(self, name, float(number) if math.isfinite(number) else None)


@dataclass(frozen=True)
class Verdict:
    """A claim, the numbers that decide it, and the outcome.

    Attributes:
        name: unique within the study; the notes of a page refer to it.
        label: the paper's label of the claim; empty beyond the paper.
        claim: one sentence. Beyond the paper, a question.
        rule: the condition for *yes*; empty where nothing is judged.
        paper: the paper's numbers, or published ones, by name; empty where there are none.
        ours: our numbers, by name.
        evidence: the kind of evidence of our numbers, as a word; see ``recorded_evidence``.
    """

    name: str
    label: str
    claim: str
    rule: str
    outcome: Outcome
    ours: Mapping[str, Quantity]
    paper: Mapping[str, float] = field(default_factory=dict)
    evidence: str = Evidence.ESTIMATED


def recorded_evidence(*measurements: Mapping[str, Any]) -> str:
    """Return the word that measurements recorded from their certificates or bounds, if it is the same of all;
    else they are stated.

    >>> recorded_evidence({"evidence": "proven"}), recorded_evidence({"evidence": "proven"}, {})
    ('proven', <Evidence.STATED: 'stated'>)
    """
    words = {str(measurement.get("evidence", Evidence.STATED)) for measurement in measurements}
    return words.pop() if len(words) == 1 else Evidence.STATED


@dataclass(frozen=True)
class Study:
    """A result of the paper, or a study beyond it; see the module's docstring.

    Attributes:
        name: its name on the command line and of its folder.
        title: one line for the list and the head of its page.
        labels: the paper's labels of its figures, tables and claims.
        minutes: approximate duration of each scale on two cores.
        scope: how a scale differs from the paper's, one paragraph for the page.
        revision: increased when a measurement changes, which invalidates stored parts but no networks.
        text: further Markdown for the page, as a function of the measurements.
        datasets: data sets that must be fetched.
        training: the training settings of its networks at a scale, unless a part overrides them.
        beyond: whether the paper has no such figure, table or claim.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    minutes: Mapping[Scale, float]
    parts: Callable[[Scale], Sequence[Part]]
    pictures: tuple[Picture, ...]
    verdicts: Callable[[Measured], Sequence[Verdict]]
    scope: Mapping[Scale, str] = field(default_factory=dict)
    revision: int = 1
    text: Callable[[Measured], str] | None = None
    datasets: tuple[str, ...] = ()
    training: Callable[[Scale], Mapping[str, Any]] | None = None
    beyond: bool = False
    animations: tuple[Animation, ...] = ()

    def training_at(self, scale: Scale) -> dict[str, Any]:
        """Return the training settings at a scale; empty where no network is trained by settings."""
        return {} if self.training is None else dict(self.training(scale))

    def needed_data(self, scale: Scale) -> list[str]:
        """Return the data sets that must be fetched."""
        return list(
            dict.fromkeys((*self.datasets, *(name for part in self.parts(scale) for name in part.data)))
        )

    def needed_packages(self, scale: Scale) -> list[str]:
        """Return the packages that must be installed."""
        return sorted({name for part in self.parts(scale) for name in part.packages})


def subscripted(formula: str) -> str:
    """Return a formula for matplotlib, in which a word after _ is a subscript.

    >>> subscripted("ε_adv / C_∞")
    'ε$_{\\\\mathrm{adv}}$ / C$_∞$'
    """
    return re.sub(r"_(\w+)", r"$_{\\mathrm{\1}}$", formula.replace("_∞", "$_∞$"))
