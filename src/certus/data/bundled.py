"""Three small tables that come with scikit-learn: two to classify, one to regress."""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.data.base import DataSet
from certus.data.columns import Numeric
from certus.data.splits import digest_arrays, in_fifths
from certus.data.tables import contents, table
from certus.data.targets import Targets


def breast_cancer(seed: int = 0, *, standardize: bool = True) -> DataSet:
    """569 tumours, 30 measurements each: malignant (0) or benign (1).

    >>> data = breast_cancer()
    >>> tuple(data.train.inputs.shape), data.classes, data.class_names
    ((343, 30), 2, ('malignant', 'benign'))
    """
    from sklearn.datasets import load_breast_cancer  # here, because it takes a second to import

    return _numbers("breast-cancer", load_breast_cancer(), seed, standardize)


def wine(seed: int = 0, *, standardize: bool = True) -> DataSet:
    """178 wines, 13 chemical measurements each, of three cultivars.

    >>> tuple(wine().train.inputs.shape), wine().classes
    ((108, 13), 3)
    """
    from sklearn.datasets import load_wine  # here, because it takes a second to import

    return _numbers("wine", load_wine(), seed, standardize)


def diabetes(seed: int = 0, *, standardize: bool = True) -> DataSet:
    """442 patients, 10 measurements each, and the progression of their diabetes a year later: a regression.

    The source codes sex as 1 or 2; it is left a number.

    >>> data = diabetes()
    >>> tuple(data.train.inputs.shape), data.classes, [round(number) for number in data.target_scale]
    ((266, 10), None, [155, 77])
    """
    from sklearn.datasets import load_diabetes  # here, because it takes a second to import

    return _numbers("diabetes", load_diabetes(scaled=False), seed, standardize)


def _numbers(name: str, source: Any, seed: int, standardize: bool) -> DataSet:
    columns = [
        Numeric(str(label), np.asarray(values, dtype=np.float64))
        for label, values in zip(source.feature_names, source.data.T, strict=True)
    ]
    classes = tuple(str(label) for label in source.target_names) if "target_names" in source else None
    values = np.asarray(source.target, dtype=np.int64 if classes else np.float64)
    targets = Targets(values, len(classes) if classes else None, classes)
    rows = in_fifths(name, len(values), seed)
    sha256 = digest_arrays(contents(columns, targets))
    return table(name, columns, targets, rows, sha256=sha256, standardize=standardize)
