"""Requirements on a certificate, such as "error<=0.12@rho=0.01", and the outcomes of judging them.

    [population:] QUANTITY [@ATTACK] <= or >= NUMBER [@rho=NUMBER]

| quantity | judged | side |
|---|---|---|
| error, loss | worst case within ρ | <= |
| recall[CLASS] | recall of a class within ρ, all of ρ spent on it | >= |
| fpr[CLASS] | share of the other classes' rows that are predicted as it | <= |
| balanced_error | mean of the classes' error rates | <= |
| expected_cost[0,1;5,0] | expected cost, a row for each true class, or a CSV file of these rows | <= |
| accuracy@certified:EPSILON | share of samples that no move of length ε misleads | >= |
| accuracy@pgd:inf:0.1 | accuracy under an attack (fgsm, bim or pgd) in a norm, of a radius | >= |
| vote | error rate of a deployed vote, of a certificate by smoothing | <= |

``population:`` judges the bound for the distribution that the samples were drawn from. Without ``@rho=…`` a
requirement must hold at every ρ of the certificate. A number may be a percentage: 12%.

>>> requirement = Requirement.parse("population:recall[yes]>=80%@rho=0.01")
>>> requirement.quantity, requirement.label, requirement.limit, requirement.rho, requirement.population
('recall', 'yes', 0.8, 0.01, True)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

from certus._format import at_least, at_most
from certus._names import GRADIENT_ATTACKS, NORMS, PAPER_NAMES
from certus._render import Renderable
from certus.errors import ArgumentError, FailedCheckError, require

QUANTITIES = {
    "error": "<=",
    "loss": "<=",
    "recall": ">=",
    "fpr": "<=",
    "balanced_error": "<=",
    "expected_cost": "<=",
    "accuracy": ">=",
    "vote": "<=",
}
"""Quantity → the side that can be judged: bounds are proven on that side alone."""

BY_CLASS = ("recall", "fpr", "balanced_error", "expected_cost")
_UNBOUNDED = ("loss", "expected_cost")
_WITH_ARGUMENT = {"recall": "a class", "fpr": "a class", "expected_cost": "a matrix"}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_FORM = re.compile(
    r"(?P<population>population\s*:\s*)?(?P<quantity>[A-Za-z_]+)\s*(?:\[(?P<argument>.*)\])?\s*"
    r"(?:@(?P<attack>[^<>=@]+?))?\s*"
    rf"(?P<side><=|>=|≤|≥|[<>=]=?)\s*(?P<limit>{_NUMBER})\s*(?P<percent>%)?\s*(?:@\s*rho\s*=\s*(?P<rho>{_NUMBER}))?",
    re.DOTALL,
)
_EXAMPLE = "such as error<=0.12@rho=0.01, recall[yes]>=0.8 or population:error<=0.2"


class Attack(NamedTuple):
    """An attack of ``accuracy@…``: its name, or "certified"; its norm, "" if certified; and its radius."""

    name: str
    norm: str
    epsilon: float


@dataclass(frozen=True)
class Requirement:
    """A parsed requirement.

    Attributes:
        text: the requirement as written; label: class of recall and fpr; matrix: of an expected cost, by
            rows.
        rho: None for every ρ of the certificate.
    """

    text: str
    quantity: str
    limit: float
    rho: float | None = None
    population: bool = False
    label: str | None = None
    matrix: tuple[tuple[float, ...], ...] | None = None
    attack: Attack | None = None

    @staticmethod
    def parse(text: str) -> Requirement:
        """Parse a requirement; raises ``ArgumentError`` for one that cannot be judged."""
        parts = _FORM.fullmatch(text.strip())
        rule = f"have the form [population:]QUANTITY<=NUMBER[@rho=NUMBER], {_EXAMPLE}"
        require(parts is not None, "require", rule, repr(text))
        assert parts is not None
        quantity, argument, attack = parts["quantity"], parts["argument"], parts["attack"]
        require(quantity in QUANTITIES, "require", f"judge one of {', '.join(QUANTITIES)}", repr(text))
        side = {"≤": "<=", "≥": ">="}.get(parts["side"], parts["side"])
        needed = QUANTITIES[quantity]
        words = f"compare {quantity} by {needed}: only that side is proven"
        require(side == needed, "require", words, repr(text))
        wanted = _WITH_ARGUMENT.get(quantity)
        example = {"recall": "recall[yes]>=0.8", "fpr": "fpr[yes]<=0.1"}.get(
            quantity, "expected_cost[0,1;5,0]<=0.3"
        )
        if wanted is None:
            require(argument is None, "require", f"name no class for {quantity}", repr(text))
        else:
            require(
                bool((argument or "").strip()), "require", f"name {wanted}, such as {example}", repr(text)
            )
        limit = float(parts["limit"]) / (100 if parts["percent"] else 1)
        share = quantity in _UNBOUNDED or 0 <= limit <= 1
        require(share, "require", f"limit {quantity} by a share from 0 to 1 (0.2 for 20%)", repr(text))
        require(math.isfinite(limit), "require", "have a finite limit", repr(text))
        rho = None if parts["rho"] is None else float(parts["rho"])
        require(rho is None or 0 <= rho <= 1e30, "require", "have a rho from 0 to 1e30", repr(text))
        requirement = Requirement(text.strip(), quantity, limit, rho, parts["population"] is not None)
        if quantity == "accuracy":
            return replace(requirement, attack=_attack(text, attack, rho))
        require(
            attack is None, "require", f"name an attack for accuracy alone, not for {quantity}", repr(text)
        )
        if quantity == "expected_cost":
            return replace(requirement, matrix=_matrix(text, argument.strip()))
        return replace(requirement, label=None if argument is None else argument.strip())

    @property
    def side(self) -> str:
        return QUANTITIES[self.quantity]

    @property
    def unbounded(self) -> bool:
        """Whether the quantity is no share."""
        return self.quantity in _UNBOUNDED

    def holds(self, value: float | None) -> bool:
        """Whether a bound meets the limit; None and NaN never do."""
        if value is None:
            return False
        return value <= self.limit if self.side == "<=" else value >= self.limit


def _attack(text: str, attack: str | None, rho: float | None) -> Attack:
    rule = "name the attack of accuracy, such as accuracy@pgd:inf:0.1>=0.8 or accuracy@certified:0.1>=0.7"
    name, *rest = (attack or "").split(":")
    name = PAPER_NAMES.get(name, name)
    certified = name == "certified"
    fits = (certified and len(rest) == 1) or (name in GRADIENT_ATTACKS and len(rest) == 2)
    require(fits, "require", rule, repr(text))
    require(rho is None, "require", "leave out rho for accuracy: its attack has a radius", repr(text))
    norm = "" if certified else rest[0]
    require(certified or norm in NORMS, "require", f"name a norm of {', '.join(NORMS)}", repr(text))
    try:
        epsilon = float(rest[-1])
    except ValueError:
        epsilon = math.nan
    require(0 <= epsilon < 1e15, "require", "have a radius of the attack from 0 to 1e15", repr(text))
    return Attack(name, norm, epsilon)


def _matrix(text: str, argument: str) -> tuple[tuple[float, ...], ...]:
    """Return the rows of a matrix, written as 0,1;5,0 or in a file with a row on each line."""
    rows = argument
    if not re.fullmatch(r"[-+0-9eE.,;\s]+", argument):
        try:
            rows = ";".join(Path(argument).read_text(encoding="utf-8-sig").split("\n"))
        except (OSError, ValueError) as reason:
            why = getattr(reason, "strerror", None) or "no text"
            raise ArgumentError(
                f"`require` must name a file of costs that can be read; {argument}: {why}."
            ) from None
    try:
        numbers = tuple(
            tuple(float(cell) for cell in re.split(r"[,\s]+", row.strip()) if cell)
            for row in rows.split(";")
            if row.strip()
        )
    except ValueError:
        numbers = ()
    square = len(numbers) > 1 and all(len(row) == len(numbers) for row in numbers)
    finite = all(abs(cell) <= 1e15 for row in numbers for cell in row)
    rule = "have as many rows of finite costs as columns, such as expected_cost[0,1;5,0]<=0.3"
    require(square and finite, "require", rule, repr(text))
    cheapest = all(min(row) == row[index] for index, row in enumerate(numbers))
    require(cheapest, "require", "have the smallest cost of each row on its diagonal", repr(text))
    return numbers


def parsed(requirements: str | Requirement | Iterable[str | Requirement]) -> list[Requirement]:
    """Return one or several requirements, parsed."""
    several = [requirements] if isinstance(requirements, str | Requirement) else list(requirements)
    require(len(several) > 0, "require", f"be given, {_EXAMPLE}", "none")
    return [each if isinstance(each, Requirement) else Requirement.parse(each) for each in several]


@dataclass(frozen=True)
class Outcome:
    """A judged requirement at one ρ.

    Attributes:
        rho: ρ of the judged bound; None for an attack, which has a radius.
        value: the bound or measurement that was judged; None if there is none.
        evidence: evidence of the value; about: a remark, such as the reason for a missing value.
    """

    requirement: str
    rho: float | None
    value: float | None
    side: Literal["<=", ">="]
    limit: float
    passed: bool
    evidence: str
    about: str = ""

    @property
    def margin(self) -> float | None:
        """Distance to the limit; negative if the requirement failed."""
        if self.value is None:
            return None
        return self.limit - self.value if self.side == "<=" else self.value - self.limit

    @property
    def measured(self) -> bool:
        """Whether the value is a measurement, such as an accuracy under an attack, and bounds nothing."""
        return self.evidence.startswith(("attained", "estimated"))

    @property
    def name(self) -> str:
        """The requirement, with the ρ that was judged where it names none."""
        named = self.rho is None or "rho" in self.requirement.rpartition("@")[2]
        return self.requirement if named else f"{self.requirement}@rho={self.rho:g}"

    @property
    def words(self) -> str:
        """The outcome in one line."""
        if self.value is None:
            return f"{self.name}: no bound is known{f': {self.about}' if self.about else ''}"
        margin = self.margin or 0.0
        verb = f"passes by {abs(margin):.4g}" if self.passed else f"fails by {abs(margin):.4g}"
        value = f"at most {at_most(self.value)}" if self.side == "<=" else f"at least {at_least(self.value)}"
        value = f"{self.value:.4f}" if self.measured else value
        return f"{self.name}: {value} ({self.evidence}), {verb}"


@dataclass(frozen=True)
class GateResult(Renderable):
    """Outcomes of all requirements; ``print`` shows a table, and ``bool`` is True if all passed."""

    outcomes: tuple[Outcome, ...]
    remarks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    @property
    def passed(self) -> bool:
        return all(outcome.passed for outcome in self.outcomes)

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.passed]

    def require(self) -> None:
        """Raise ``FailedCheckError`` unless all passed."""
        if failed := self.failed:
            more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
            raise FailedCheckError(
                f"{len(failed)} of {len(self.outcomes)} requirements failed: {failed[0].words}{more}."
            )

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        lines = [asdict(outcome) | {"margin": outcome.margin} for outcome in self.outcomes]
        return {"passed": self.passed, "outcomes": lines, "remarks": list(self.remarks)}

    def junit(self, name: str = "certus gate") -> str:
        """Return the result as JUnit XML, with a test case for each outcome."""
        counts = {"tests": str(len(self.outcomes)), "failures": str(len(self.failed)), "errors": "0"}
        whole = ElementTree.Element("testsuites", {"name": name} | counts)
        suite = ElementTree.SubElement(whole, "testsuite", {"name": name} | counts)
        for outcome in self.outcomes:
            case = ElementTree.SubElement(
                suite, "testcase", classname=_printable(name), name=_printable(outcome.name)
            )
            if outcome.passed:
                ElementTree.SubElement(case, "system-out").text = _printable(outcome.words)
            else:
                message = _printable(outcome.words)
                ElementTree.SubElement(case, "failure", message=message, type="Requirement").text = message
        ElementTree.indent(whole)
        return f"{ElementTree.tostring(whole, encoding='unicode', xml_declaration=True)}\n"

    def annotations(self) -> list[str]:
        """Return the GitHub workflow commands that annotate a run with each outcome."""
        return [
            f"::{'notice' if outcome.passed else 'error'} title=certus gate::{_command(outcome.words)}"
            for outcome in self.outcomes
        ]


def _printable(text: str) -> str:
    """Return text without characters that XML forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)


def _command(text: str) -> str:
    """Escape text for a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def combined(results: Sequence[GateResult]) -> GateResult:
    """Merge several results."""
    remarks = dict.fromkeys(remark for result in results for remark in result.remarks)
    return GateResult(tuple(outcome for result in results for outcome in result.outcomes), tuple(remarks))
