"""Tables: scikit-learn's own scalers as the oracle, and what a change of category costs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import certus
from certus.datasets import SplitDataset, breast_cancer, diabetes, wine
from certus.datasets.base import Targets, digest_arrays, in_fifths
from certus.datasets.encoding import Column, contents, table
from certus.domains import Box, Unbounded
from certus.errors import ArgumentError

BUNDLED = [
    pytest.param(breast_cancer, load_breast_cancer, id="breast-cancer"),
    pytest.param(wine, load_wine, id="wine"),
    pytest.param(diabetes, lambda: load_diabetes(scaled=False), id="diabetes"),
]


@pytest.mark.parametrize(("ours", "theirs"), BUNDLED)
def test_bundled_tables_are_standardised_by_their_training_rows(
    ours: Callable[..., SplitDataset], theirs: Callable[[], object]
) -> None:
    data, source = ours(seed=3), theirs()
    features, targets = source.data, source.target  # type: ignore[attr-defined]
    scaler = StandardScaler().fit(features[data.rows["train"]])
    for name, split in (("train", data.train), ("calibration", data.calibration), ("test", data.test)):
        expected = scaler.transform(features[data.rows[name]])
        np.testing.assert_allclose(split.inputs, expected, rtol=1e-4, atol=1e-5)
        raw = targets[data.rows[name]]
        if data.target_scale is not None:
            raw = (raw - data.target_scale[0]) / data.target_scale[1]
        np.testing.assert_allclose(split.targets, raw, rtol=1e-5, atol=1e-6)
    everything = torch.cat([data.rows[name] for name in ("train", "calibration", "test")])
    assert everything.sort().values.tolist() == list(range(len(features)))
    assert len(data.calibration) == len(data.test) == len(features) // 5
    assert data.units == "standard deviations"
    assert isinstance(data.domain, Unbounded)
    assert data.weights is None
    assert data.input_scale is not None
    mean, scale = data.input_scale
    raw = features[data.rows["test"]]
    np.testing.assert_allclose(data.test.inputs * scale + mean, raw, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("ours", "theirs"), BUNDLED)
def test_without_standardising_the_numbers_are_the_sources(
    ours: Callable[..., SplitDataset], theirs: Callable[[], object]
) -> None:
    data, source = ours(standardize=False), theirs()
    np.testing.assert_allclose(data.test.inputs, source.data[data.rows["test"]], rtol=1e-6)  # type: ignore[attr-defined]
    np.testing.assert_allclose(data.test.targets, source.target[data.rows["test"]])  # type: ignore[attr-defined]
    assert data.input_scale is None
    assert data.target_scale is None
    assert data.units == "units of the features"


def test_regression_targets_have_mean_0_and_deviation_1_in_training() -> None:
    targets = diabetes().train.targets.double()
    assert abs(float(targets.mean())) < 1e-6
    assert abs(float(targets.std(correction=0)) - 1) < 1e-6
    assert diabetes().classes is None


def mixed(rows: int = 40) -> tuple[list[Column], Targets]:
    generator = np.random.default_rng(0)
    columns = [
        Column("height", generator.normal(170, 10, rows)),
        Column("town", generator.integers(0, 3, rows), ("A", "B", "C")),
        Column("same", np.full(rows, 0.1)),
        Column("sex", generator.integers(0, 2, rows), ("f", "m")),
    ]
    return columns, Targets(generator.integers(0, 2, rows), 2)


def mixed_set(standardize: bool = True) -> SplitDataset:
    columns, targets = mixed()
    rows = in_fifths("mixed", 40, seed=0)
    return table("mixed", columns, targets, rows, sha256="", standardize=standardize)


def test_one_hot_groups_are_scikit_learns() -> None:
    data, (columns, _) = mixed_set(), mixed()
    assert data.feature_names == ("height", "town=A", "town=B", "town=C", "same", "sex=f", "sex=m")
    town, sex = columns[1], columns[3]
    encoder = OneHotEncoder(sparse_output=False)
    expected = encoder.fit_transform(np.stack([town.values, sex.values], 1))
    np.testing.assert_array_equal(data.train.inputs[:, [1, 2, 3, 5, 6]], expected[data.rows["train"]])


def test_a_constant_column_is_centred_and_not_blown_up() -> None:
    assert float(mixed_set().train.inputs[:, 4].abs().max()) < 1e-12
    # 0.1 is not exact in binary: the computed deviation of many is not exactly 0.
    columns = [Column("same", np.full(40, 0.1)), Column("x", np.arange(40.0))]
    data = table("t", columns, Targets(np.arange(40.0)), in_fifths("t", 40, 0), sha256="")
    assert data.input_scale is not None
    assert data.input_scale[1][0] == 1.0


def test_changing_a_category_costs_as_much_as_one_standard_deviation() -> None:
    data = mixed_set()
    assert data.weights is not None
    cost = certus.costs.WeightedL2(data.weights)
    origin = torch.tensor([[0.0, 1, 0, 0, 0, 1, 0]])
    other_town = torch.tensor([[0.0, 0, 0, 1, 0, 1, 0]])
    one_deviation = torch.tensor([[-1.0, 1, 0, 0, 0, 1, 0]])
    assert cost(other_town, origin).item() == cost(one_deviation, origin).item() == 1.0
    everything = torch.tensor([[1.0, 0, 1, 0, 0, 0, 1]])
    assert cost(everything, origin).item() == 3.0
    assert data.units == "standard deviations, a changed category counting as 1"


def test_the_domain_bounds_one_hot_columns_only() -> None:
    data = mixed_set()
    assert isinstance(data.domain, Box)
    assert data.domain.contains(data.train.inputs).all()
    far = torch.full((1, 7), 9.0)
    assert data.domain.project(far).tolist() == [[9, 1, 1, 1, 9, 1, 1]]
    assert data.domain.project(-far).tolist() == [[-9, 0, 0, 0, -9, 0, 0]]
    # Nothing in the surrogate trips over the infinite bounds.
    weights = torch.arange(7.0)
    moved = certus.inner.transport_map(
        lambda z: z @ weights, data.test.inputs, gamma=1.0, cost=certus.costs.WeightedL2(torch.ones(7)),
        domain=data.domain,
    )  # fmt: skip
    expected = data.domain.project(data.test.inputs + weights / 2)
    torch.testing.assert_close(moved, expected)


def test_an_unknown_category_leaves_its_group_at_zero() -> None:
    columns = [Column("c", np.array([0, 1, -1] * 5), ("a", "b"))]
    data = table("t", columns, Targets(np.arange(15) % 2, 2), in_fifths("t", 15, 0), sha256="")
    for name, split in (("train", data.train), ("test", data.test)):
        unknown = data.rows[name] % 3 == 2
        assert torch.equal(split.inputs.sum(1), (~unknown).float())


def test_later_samples_are_scaled_by_the_training_rows() -> None:
    values = np.concatenate([np.arange(20.0), np.arange(20.0) + 100])
    rows = in_fifths("t", 20, 0)
    later = {"next": torch.arange(20, 40)}
    data = table("t", [Column("x", values)], Targets(values), rows, sha256="", later=later)
    fitted = values[rows["train"]]
    expected = (values[20:] - fitted.mean()) / fitted.std()
    np.testing.assert_allclose(data.later["next"].inputs[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(data.later["next"].targets, expected, rtol=1e-6)


def test_numbers_too_small_to_have_a_deviation_are_only_centred() -> None:
    values = np.where(np.arange(20) % 2, 5e-324, 0.0)
    data = table("t", [Column("x", values)], Targets(values), in_fifths("t", 20, 0), sha256="")
    assert data.train.inputs.tolist() == [[0.0]] * 12
    assert data.target_scale is not None
    assert data.target_scale[1] == 1.0


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e307])
def test_standardising_does_not_depend_on_the_unit(size: float) -> None:
    values = np.random.default_rng(0).normal(3, 2, 50)
    found = [
        table("t", [Column("x", each)], Targets(each), in_fifths("t", 50, 0), sha256="")
        for each in (values, values * size)
    ]
    torch.testing.assert_close(found[0].train.inputs, found[1].train.inputs)
    torch.testing.assert_close(found[0].test.targets, found[1].test.targets)


@pytest.mark.parametrize("standardize", [True, False])
def test_numbers_beyond_single_precision_are_refused(standardize: bool) -> None:
    values = np.array([1e300, -1e300, *[0.0] * 18])
    rows = in_fifths("t", 20, 0)
    # The outliers are not in training, so that they stay enormous.
    order = torch.cat([rows["test"], rows["train"], rows["calibration"]])
    placed = np.zeros(20)
    placed[order] = values
    with pytest.raises(ArgumentError, match="`t` must hold numbers in the range of float32"):
        table("t", [Column("x", placed)], Targets(np.arange(20.0)), rows, sha256="", standardize=standardize)


@given(st.integers(10, 500), st.integers(0, 2**63 - 1))
def test_a_split_has_every_row_once(count: int, seed: int) -> None:
    rows = in_fifths("t", count, seed)
    assert sorted(torch.cat(list(rows.values())).tolist()) == list(range(count))
    assert len(rows["test"]) == len(rows["calibration"]) == count // 5
    assert all(part.dtype == torch.int64 for part in rows.values())


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_outside_their_range_are_refused(seed: int) -> None:
    with pytest.raises(
        ArgumentError, match=f"`seed` must be a whole number, at least 0 and less than 2\\^63; got {seed}"
    ):
        in_fifths("t", 20, seed)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ArgumentError, match="`t` must have at least 10 rows; got 9"):
        in_fifths("t", 9, 0)


def test_the_digest_sees_values_names_and_categories_and_no_byte_order() -> None:
    columns, targets = mixed()
    whole = digest_arrays(contents(columns, targets))
    assert whole == digest_arrays(contents(columns[::-1], targets))
    height, town, *others = columns
    changed = height.values.copy()
    changed[7] = math.nextafter(changed[7], math.inf)
    swapped = height.values.astype(">f8")
    assert digest_arrays(contents([Column("height", swapped), town, *others], targets)) == whole
    for other in (
        contents([Column("height", changed), town, *others], targets),
        contents([Column("Height", height.values), town, *others], targets),
        contents([height, Column("town", town.values, ("A", "B", "D")), *others], targets),
        contents(columns, Targets(1 - targets.values, 2)),
        contents(columns, Targets(targets.values, 2, ("no", "yes"))),
    ):
        assert digest_arrays(other) != whole
