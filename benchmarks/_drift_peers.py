"""Drift tests of evidently and NannyML on pairs of samples, run in an environment of their own by ``drift``.

    python drift_peers.py PAIRS.npz RESULT.json

``first-N`` and ``second-N`` are the samples of pair N. An alarm is each library's own verdict with its
defaults: evidently: at least half of the columns have drifted (its preset), or any column has; NannyML: any
column alerts (Jensen-Shannon, thresholds from chunks of the reference), or the reconstruction error does.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

warnings.filterwarnings("ignore")


def evidently_alarms(first: Any, second: Any) -> dict[str, bool]:
    from evidently import Report  # type: ignore[import-not-found]
    from evidently.presets import DataDriftPreset  # type: ignore[import-not-found]

    report = Report([DataDriftPreset()]).run(second, first)
    metrics = report.dict()["metrics"]
    count = next(
        each["value"] for each in metrics if "DriftedColumnsCount" in str(each.get("metric_name", each))
    )
    return {
        "evidently, half of the columns": count["share"] >= 0.5,
        "evidently, any column": count["count"] > 0,
    }


def nannyml_alarms(first: Any, second: Any) -> dict[str, bool]:
    import nannyml  # type: ignore[import-not-found]

    names = list(first.columns)
    size = max(10, len(second))
    chunk = max(10, len(first) // 10)
    columns = nannyml.UnivariateDriftCalculator(
        column_names=names, continuous_methods=["jensen_shannon"], chunk_size=chunk
    ).fit(first)
    table = columns.calculate(second).filter(period="analysis").to_df()
    single = any(bool(np.any(table[name].to_numpy())) for name in table.columns if name[-1] == "alert")
    whole = nannyml.DataReconstructionDriftCalculator(column_names=names, chunk_size=chunk).fit(first)
    table = whole.calculate(second).filter(period="analysis").to_df()
    joint = any(bool(np.any(table[name].to_numpy())) for name in table.columns if name[-1] == "alert")
    assert size > 0
    return {"NannyML, any column": single, "NannyML, reconstruction": joint}


def main(pairs: str, result: str) -> None:
    with np.load(pairs) as stored:
        count = len(stored.files) // 2
        samples = [(stored[f"first-{each}"], stored[f"second-{each}"]) for each in range(count)]
    alarms: dict[str, list[Any]] = {}
    began = time.time()
    for number, pair in enumerate(samples):
        frames = [pd.DataFrame(part, columns=[f"c{at}" for at in range(part.shape[1])]) for part in pair]
        for test in (evidently_alarms, nannyml_alarms):
            try:
                found = test(*frames)
            except Exception as reason:  # a version whose interface has changed
                alarms.setdefault("failed", []).append(f"{number}: {test.__name__}: {reason!r}"[:300])
                continue
            for name, alarm in found.items():
                alarms.setdefault(name, []).append(bool(alarm))
        if number % 50 == 49:
            print(f"{number + 1} of {count} pairs, {time.time() - began:.0f} s", file=sys.stderr)
        with open(result, "w") as file:
            json.dump(alarms, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
