"""A confidence is worth nothing on data that the network was fitted to: which samples a run has never
trained on.

The splits of a run are told apart by their row numbers, which the run recorded. Other data are compared row
by row, by a hash of the inputs, whatever their targets: one equal row is enough to refuse. (Equal rows can be
honest coincidences, in tables of few categories; then the splits of the run itself are the way.)
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch

from certus.datasets import DataSet
from certus.errors import ArgumentError, require
from certus.runs.building import load_data
from certus.runs.trained import TrainedRun
from certus.split import Split
from certus.storage.files import RunError


def row_hashes(data: Split) -> list[bytes]:
    """sha256 of every row's input, whatever precision it is stored in, and whatever its label is called."""
    rows = (data.inputs.detach().cpu().double().flatten(1) + 0.0).numpy()  # −0 becomes 0
    return [hashlib.sha256(row.tobytes()).digest() for row in rows]


def named_split(data: DataSet, name: str) -> Split:
    """One of the splits of a data set, or of its later samples; "all" is train, calibration and test."""
    known = {"train": data.train, "calibration": data.calibration, "test": data.test, **data.later}
    require(name in known or name == "all", "split", f"be one of {', '.join(known)}, all", repr(name))
    if name != "all":
        return known[name]
    parts = (data.train, data.calibration, data.test)
    inputs, targets = (torch.cat([getattr(part, side) for part in parts]) for side in ("inputs", "targets"))
    return Split(inputs, targets, encoding=data.train.encoding)


def check_held_out(trained: TrainedRun, data: Split | str, *, raw: bool = False) -> None:
    """Raise unless the run has trained on none of these samples.

    Args:
        data: the name of a split of the run's own data, or other samples.
        raw: they have not been standardised.
    """
    if not isinstance(data, str):
        settings = replace(trained.settings, standardize=trained.settings.standardize and not raw)
        seen = set(row_hashes(load_data(settings).train))
        count = sum(row in seen for row in row_hashes(data))
        if count:
            raise ArgumentError(
                f"`confidence` needs data that the run has not trained on; {count} of these {len(data)} "
                "rows are among its training data."
            )
        return
    if data in ("train", "all"):
        raise ArgumentError(
            f"`confidence` needs data that the run has not trained on; got its split {data}: "
            "use test or calibration."
        )
    recorded, now = trained.run.rows, trained.data.rows
    if recorded.keys() != now.keys() or not all(torch.equal(recorded[name], now[name]) for name in now):
        raise RunError(f"{trained.run.path} was trained with another split than its data have now.")
    if data in recorded and bool(torch.isin(recorded[data], recorded["train"]).any()):
        raise RunError(f"{trained.run.path} trained on rows of its split {data}.")
