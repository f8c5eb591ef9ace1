"""Drift tests of evidently and NannyML on pairs of samples, run by ``drift`` in an environment of their own.

    python _drift_peers.py PAIRS.npz RESULT.json

``first-N`` is the reference of pair N, ``second-N`` the new rows. Both libraries have their defaults, and
NannyML one chunk: all new rows, with a reference in chunks of the same size. An alarm is

    evidently   at least half of the columns have drifted (its preset), or any column has
    NannyML     any column alerts (Jensen-Shannon), or the error of reconstruction does
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd

warnings.filterwarnings("ignore")


def evidently_alarms(first: Any, second: Any) -> dict[str, bool]:
    from evidently import Report  # type: ignore[import-not-found]
    from evidently.presets import DataDriftPreset  # type: ignore[import-not-found]

    metrics = Report([DataDriftPreset()]).run(second, first).dict()["metrics"]
    count = next(each["value"] for each in metrics if "DriftedColumnsCount" in each["metric_name"])
    return {
        "evidently, half of the columns": count["share"] >= 0.5,
        "evidently, any column": count["count"] > 0,
    }


def nannyml_alarms(first: Any, second: Any) -> dict[str, bool]:
    import nannyml  # type: ignore[import-not-found]

    names, size = list(first.columns), len(second)
    calculators = {
        "NannyML, any column": nannyml.UnivariateDriftCalculator(column_names=names, chunk_size=size),
        "NannyML, reconstruction": nannyml.DataReconstructionDriftCalculator(
            column_names=names, chunk_size=size
        ),
    }
    alarms = {}
    for name, calculator in calculators.items():
        table = calculator.fit(first).calculate(second).filter(period="analysis").to_df()
        alerts = [column for column in table.columns if column[-1] == "alert"]
        alarms[name] = bool(table[alerts].to_numpy(dtype=bool).any())
    return alarms


def main(pairs: str, result: str) -> None:
    with np.load(pairs) as stored:
        count = len(stored.files) // 2
        samples = [(stored[f"first-{each}"], stored[f"second-{each}"]) for each in range(count)]
    alarms: dict[str, list[bool]] = {}
    for number, pair in enumerate(samples):
        frames = [pd.DataFrame(part, columns=[f"c{at}" for at in range(part.shape[1])]) for part in pair]
        for test in (evidently_alarms, nannyml_alarms):
            for name, alarm in test(*frames).items():
                alarms.setdefault(name, []).append(bool(alarm))
        if number % 50 == 49:
            print(f"peers: {number + 1} of {count} pairs", file=sys.stderr)
    with open(result, "w") as file:
        json.dump(alarms, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
