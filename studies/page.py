"""The page of a study, and the table of all studies, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from certus._format import at_least, at_most
from certus.inner.maximizers import MonotoneAscent
from certus.runs.settings import Settings
from studies.dogs.resnet50 import FETCH
from studies.setups import SETUPS
from studies.study import Scale, Study

_SHOWN = (
    *("model", "optimizer", "learning_rate", "schedule", "batch_size", "label_smoothing", "clip"),
    *("maximizer", "tolerance"),  # of WRM
)

_ADAPTIVE_ASCENT = (
    "The adaptive ascent stops, for each sample, when the estimated gap to the maximum of f = ℓ − γc is at "
    f"most the tolerance, or after {MonotoneAscent.max_gradients} gradients; the paper takes 15 steps. "
    "`mnist-inf`, at the full scale, compares the two."
)


def at_most_digits(value: float, digits: int = 2) -> str:
    """Format an upper bound with this many significant digits, rounded up; for bounds that differ in size.

    >>> at_most_digits(0.1113), at_most_digits(0.0009801), at_most_digits(4239.1, 3), at_most_digits(1.34e-10)
    ('0.12', '0.00099', '4240', '1.4e-10')
    >>> at_most_digits(84105.8, 3), at_most_digits(1296420.5, 3)
    ('84200', '1.30e+6')
    """
    if value == 0 or not math.isfinite(value):
        return at_most(value, 0)
    text = at_most(value, digits - 1 - Decimal(value).adjusted())
    return text if 1e-4 <= abs(value) < 1e5 else f"{Decimal(text):.{digits - 1}e}"


def training_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of a training that a page shows, in JSON types."""
    values = asdict(settings)
    return {name: values[name] for name in _SHOWN}


def training_text(settings: Mapping[str, Any]) -> str:
    """Return one line about the training of networks."""
    listed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    return f"Training, unless stated otherwise: {listed}. {_ADAPTIVE_ASCENT}"


WRITTEN_BY = "<!-- Written by `python -m studies`; changes made here are lost. -->"
_FETCH = {"resnet50": FETCH}
_NOTES = Path(__file__).parent / "notes"
"""Prose of a page at the full scale, written by hand: NAME.md."""


def page(study: Study, content: dict[str, Any]) -> str:
    """Return the text of ``results/NAME/README.md``."""
    scale = Scale(content["scale"])
    command = f"python -m studies {study.name}" + ("" if scale is Scale.QUICK else " --scale full")
    fetched = "".join(f"{_FETCH.get(name, f'certus data get {name}')}\n" for name in study.needed_data(scale))
    lines = [
        WRITTEN_BY,
        f"# {study.title}",
        f"{_place(study)} Scale: **{scale}**.",
    ]
    if scale in study.scope:
        lines.append(study.scope[scale])
    if scale is Scale.QUICK:
        lines.append("A quick look is too small to decide a claim.")
    if content.get("training"):
        lines.append(training_text(content["training"]))
    lines.append(f"```sh\n{fetched}{command}\n```")
    if scale is Scale.FULL and study.name in SETUPS:
        rows = [[cell or "–" for cell in row] for row in SETUPS[study.name]]
        lines.append(markdown_table(["set-up", "paper", "authors' code", "here"], rows))
    lines.append(_verdicts(content))
    if (notes := _NOTES / f"{study.name}.md").exists() and scale is Scale.FULL:
        lines.append(notes.read_text(encoding="utf-8").strip())
    if study.text is not None:
        lines.append(study.text(content["measured"]))
    lines += [f"![{picture.caption}]({picture.name}.png)\n\n{picture.caption}" for picture in study.pictures]
    lines += [
        f"![{animation.caption}]({animation.name}.gif)\n\n{animation.caption}"
        for animation in study.animations
    ]
    lines.append(_environment(content["environment"]))
    return "\n\n".join(lines) + "\n"


def _place(study: Study) -> str:
    labels = ", ".join(f"`{label}`" for label in study.labels)
    if study.beyond:
        return f"Beyond the paper ({labels})." if labels else "Beyond the paper."
    return f"Of the paper: {labels}."


def _beyond(content: dict[str, Any]) -> bool:
    return bool(content.get("beyond", False))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; bars inside cells are escaped.

    >>> print(markdown_table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [head, *rows]
    texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([texts[0], "|---" * len(head) + "|", *texts[1:]])


def _head(content: dict[str, Any]) -> list[str]:
    return ["question", "ours", "answer"] if _beyond(content) else ["claim", "ours", "verdict"]


def rows_of(content: dict[str, Any]) -> list[list[str]]:
    """Return claim, measurement and outcome of each verdict."""
    return [
        [
            f"{_claim(verdict)} {_paper(verdict)}".rstrip(),
            f"{_measured(verdict)} (*{verdict['evidence']}*)",
            _outcome(verdict, content),
        ]
        for verdict in content["verdicts"]
    ]


def _verdicts(content: dict[str, Any]) -> str:
    """Return the table of verdicts, with a column for each field."""
    rows = [
        [
            verdict["name"],
            _claim(verdict),
            _paper(verdict) or "–",
            f"{_measured(verdict)} (*{verdict['evidence']}*)",
            verdict["rule"] or "–",
            _outcome(verdict, content),
        ]
        for verdict in content["verdicts"]
    ]
    claim, ours, outcome = _head(content)
    printed = "published" if _beyond(content) else "paper"
    return markdown_table(["", claim, printed, ours, "*yes* needs", outcome], rows)


def _claim(entry: dict[str, Any]) -> str:
    label = f" (`{entry['label']}`)" if entry["label"] else ""
    return f"{entry['claim']}{label}"


def _paper(entry: dict[str, Any]) -> str:
    return _listed({name: f"{value:g}" for name, value in entry["paper"].items()})


def _outcome(entry: dict[str, Any], content: dict[str, Any]) -> str:
    """Return the outcome; an open question beyond the paper has none."""
    return "–" if _beyond(content) and not entry["rule"] else str(entry["outcome"])


def _listed(named: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in named.items())


def _measured(entry: dict[str, Any]) -> str:
    return _listed({name: quantity_text(number) for name, number in entry["ours"].items()}) or "–"


def quantity_text(number: Mapping[str, Any]) -> str:
    """Format a ``Quantity`` in JSON types, with its interval; bounds are rounded outwards.

    >>> plain = {"low": None, "high": None, "places": 1, "percent": False, "side": "", "digits": 2}
    >>> quantity_text({"value": -0.26, **plain, "low": -1.0, "high": 2.0})
    '−0.3 [−1.0, 2.0]'
    >>> quantity_text({"value": 0.1201, **plain, "percent": True, "side": "at most"})
    'at most 12.1%'
    """
    text = _number(number["value"], number)
    interval = [number["low"], number["high"]]
    if None not in interval:
        text += " [{}, {}]".format(*(_number(end, number) for end in interval))
    return text if number["value"] is None else f"{number['side']} {text}".lstrip()


def _number(value: float | None, how: Mapping[str, Any]) -> str:
    if value is None:
        return "–"
    value, places = value * (100 if how["percent"] else 1), how["places"]
    if how["side"] == "at most":
        text = at_most_digits(value, how["digits"]) if places is None else at_most(value, places)
    elif how["side"] == "at least":
        text = at_least(value, 4 if places is None else places)
    else:
        text = f"{value:.{how['digits']}g}" if places is None else f"{value:z,.{places}f}"
    return text.replace("-", "−") + ("%" if how["percent"] else "")


def _environment(environment: dict[str, Any]) -> str:
    """Describe date, versions and machine; ``note`` stands for parts without a record."""
    sentences = [environment["note"]] if "note" in environment else []
    if "date" in environment:
        versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
        threads = "1 thread" if environment["threads"] == 1 else f"{environment['threads']} threads"
        processor = environment["machine"]["processor"]
        sentences.insert(
            0, f"Measured on {environment['date']} with {versions}, on {threads} of {processor}."
        )
    return " ".join(sentences)
