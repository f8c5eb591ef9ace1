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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from certus.evidence import Evidence

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from studies.workspace import Workspace

Measured = Mapping[str, Any]
"""Name of a part → what it measured, in JSON types."""


class Scale(StrEnum):
    """How much is measured: minutes for the curious, or what the paper's figure is made of."""

    QUICK = "quick"
    PAPER = "paper"


@dataclass(frozen=True)
class Part:
    """One measurement.

    Attributes:
        name: its own within the reproduction.
        settings: all that it depends on, in JSON types; a part that was kept with others is measured again.
        measure: does the work, given a workspace that trains networks, and the settings; returns JSON types.
        effort: how long it takes, in units of one's own; for the time that is left.
        packages: what it calls of others, which must be installed and whose versions matter.
        data: what has to be fetched first, beside what the whole reproduction needs.
        home: the reproduction whose part this is, and its name there, where two have the same one: it is
            measured once, and kept there.
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
    """One figure: its file's name, a caption that says what is seen, and how it is drawn."""

    name: str
    caption: str
    draw: Callable[[Measured], Figure]


@dataclass(frozen=True)
class Animation:
    """One moving picture: its file's name, a caption, and how the GIF is written."""

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
    """Return *yes* if all conditions hold, *no* if none does, *partly* otherwise; of none nothing is said."""
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
        name: its own within the reproduction; the notes of a page refer to it.
        label: where the paper makes the claim; empty beyond the paper.
        claim: one sentence, written by hand. Beyond the paper, the question.
        rule: what makes the outcome *yes*, written by hand; empty where nothing is judged.
        paper: the paper's numbers by name; empty where it prints none.
        ours: what was measured, by name.
        evidence: what our numbers are.
    """

    name: str
    label: str
    claim: str
    rule: str
    outcome: Outcome
    ours: Mapping[str, Quantity]
    paper: Mapping[str, float] = field(default_factory=dict)
    evidence: Evidence = Evidence.ESTIMATED


@dataclass(frozen=True)
class Study:
    """One result, of the paper or beyond it; see the top of this file.

    Attributes:
        name: on the command line, and of the folder that it is written to.
        title: one line for the list and the head of its page.
        shows: labels of the paper.
        minutes: about how long each scale takes on two cores.
        smaller: where an scale is less than the paper's, in words; the page says it.
        revision: raised whenever what is measured changes, so that parts which were kept are measured again.
            Networks are named by their settings, and stay.
        text: more for the page, in Markdown, from what was measured.
        needs: data that have to be fetched first.
        training: how its networks are trained at an scale, unless a part's settings say otherwise.
        beyond: whether this is a study of our own, which the paper has no figure or table for.
    """

    name: str
    title: str
    shows: tuple[str, ...]
    minutes: Mapping[Scale, float]
    parts: Callable[[Scale], Sequence[Part]]
    pictures: tuple[Picture, ...]
    verdicts: Callable[[Measured], Sequence[Verdict]]
    smaller: Mapping[Scale, str] = field(default_factory=dict)
    revision: int = 1
    text: Callable[[Measured], str] | None = None
    needs: tuple[str, ...] = ()
    training: Callable[[Scale], Mapping[str, Any]] | None = None
    beyond: bool = False
    animations: tuple[Animation, ...] = ()

    def training_at(self, scale: Scale) -> dict[str, Any]:
        """For the file of what was measured; empty where no network is trained by settings."""
        return {} if self.training is None else dict(self.training(scale))

    def needed_data(self, scale: Scale) -> list[str]:
        """What has to be fetched for it."""
        return list(dict.fromkeys((*self.needs, *(name for part in self.parts(scale) for name in part.data))))

    def needed_packages(self, scale: Scale) -> list[str]:
        """What has to be installed for it."""
        return sorted({name for part in self.parts(scale) for name in part.packages})
