"""Every legal parameter of every class of scikit-learn that is read: read rightly, or refused.

The oracle is the model itself: the loss and the errors that follow from its own outputs, on rows in the range
of the data and far away, are what a certificate says at ρ = 0.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import all_estimators

import certus
from certus.errors import ArgumentError, UnsupportedError
from tests.bounds.parameter_space import CHEAP, CLASSES, Setting, alone, combined

SEED = 20261118
COMBINATIONS = 300


def fitting_data(setting: Setting) -> tuple[Any, Any, Any]:
    """Rows, labels and numbers to fit on."""
    draw = np.random.default_rng(7)
    rows = draw.normal(size=(40, 4)) * [1.0, 3.0, 0.2, 5.0] + [0.0, 1.0, -2.0, 8.0]
    if setting.data == "repeated":
        rows[:, 3] = rows[:, 0] - rows[:, 1]
    if setting.data == "constant":
        rows[:, 2] = 1.5
    scores = rows @ np.array([1.0, 0.5, 2.0, -0.3]) + draw.normal(size=40)
    if setting.data == "wide":
        rows *= 100
    labels = np.searchsorted(np.quantile(scores, np.arange(1, setting.classes) / setting.classes), scores)
    return rows.astype(np.float32) if setting.data == "single" else rows, labels, scores


def build(setting: Setting) -> Any:
    """The model unfitted; a transformer before a linear classifier."""
    model = CLASSES[setting.kind](**(CHEAP.get(setting.kind, {}) | copy.deepcopy(setting.options)))
    ends = is_classifier(model) or is_regressor(model)
    return model if ends else make_pipeline(model, LogisticRegression(max_iter=200))


def own_losses(model: Any, rows: Any, targets: Any) -> Any:
    """(n,) losses by what the model says of the rows."""
    if is_regressor(model):
        return (model.predict(rows.copy()) - targets) ** 2
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if hasattr(model, "decision_function"):
        scores = model.decision_function(rows.copy())
        if scores.ndim == 2:
            return np.logaddexp.reduce(scores, 1) - scores[np.arange(len(rows)), targets]
        margins = np.where(targets == 1, scores, -scores)
        if hasattr(last, "loss"):  # a support vector machine
            return np.maximum(0, 1 - margins) ** (2 if last.loss == "squared_hinge" else 1)
        return np.logaddexp(0, -margins)
    return -np.log(model.predict_proba(rows.copy())[np.arange(len(rows)), targets])


def tied(model: Any, rows: Any) -> Any:
    """(n,) whether two labels are as good as each other, so that a bound counts an error."""
    scores = (model.decision_function if hasattr(model, "decision_function") else model.predict_proba)(
        rows.copy()
    )
    if scores.ndim == 1:
        return np.abs(scores) < 1e-9
    best = np.sort(scores, 1)
    return best[:, -1] - best[:, -2] < 1e-9


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """NumPy's global generator, which models with ``random_state=None`` draw from."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(SEED)  # noqa: NPY002
    yield
    np.random.set_state(before)  # noqa: NPY002


def outcome(setting: Setting) -> str:
    """Whether scikit-learn or certus refuses a setting, or it was read rightly; raises if wrongly.

    It is "no bound" where the model's own loss is infinite, and "read, wide" where rounding leaves a
    wide bracket around the right loss: layers with huge outputs.
    """
    rows, labels, numbers = fitting_data(setting)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # models that have not converged are models as well
        try:
            model = build(setting)
            model.fit(rows.copy(), numbers if is_regressor(model) else labels)
            model.predict(rows.copy())
        except Exception:  # whatever a combination of parameters may raise in scikit-learn
            return "not fitted"
        near = rows[::4].astype(np.float64)
        tried = np.concatenate([near, 10 * near, -10 * near])
        if is_regressor(model):
            targets = np.resize(numbers, len(tried))
        else:
            targets = np.resize(labels, len(tried))
            if not hasattr(model, "decision_function"):  # probabilities of 0 say nothing of the loss
                chances = model.predict_proba(tried.copy())[np.arange(len(tried)), targets]
                targets = np.where(chances < 1e-8, model.predict(tried.copy()), targets)
        losses = own_losses(model, tried, targets)
        finite = bool(np.isfinite(losses).all())
        options: Any = {} if hasattr(model, "coef_") else {"attack_steps": 0}
        try:
            certificate = certus.certify(model, (tried, targets), rho=0.0, **options)
        except UnsupportedError:
            return "refused"
        except ArgumentError as reason:
            if "must be one that certus can read" in str(reason) or not finite:
                return "refused"
            raise
    if not finite:  # a fit that has diverged
        assert certificate.bound(0.0) == np.inf, str(setting)
        return "no bound"
    own, low, high = losses.mean(), certificate.lower(0.0), certificate.bound(0.0)
    room = 1e-6 + 1e-5 * own
    assert low - room <= own <= high + room, f"{setting}: [{low}, {high}] for {own}"
    wide = high - low > room
    alone = certificate.no_proof is not None  # of a hinge beside other options the error rate alone is proven
    assert not wide or alone or hasattr(model, "coefs_"), f"{setting}: [{low}, {high}]"
    if not is_regressor(model):
        wrong = model.predict(tried.copy()) != targets
        bound = certificate.error_bound(0.0)
        assert bound is not None
        assert wrong.mean() <= bound + 1e-9, str(setting)
        assert wide or bound <= (wrong | tied(model, tried)).mean() + 1e-6, str(setting)
    return "read, wide" if wide else "read"


def counted(settings: list[Setting]) -> Counter[str]:
    return Counter(map(outcome, settings))


@pytest.mark.soak
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_parameter_is_read_rightly_or_refused(kind: type, record_property: Any) -> None:
    singly = counted(list(alone(kind)))
    together: Counter[str] = Counter()
    for setting in combined(kind, 5 * COMBINATIONS, SEED):
        together[outcome(setting)] += 1
        if together.total() - together["not fitted"] == COMBINATIONS:  # scikit-learn refuses some itself
            break
    print(f"{kind.__name__}: one at a time {dict(singly)}, combined {dict(together)}")
    record_property("one at a time", dict(singly))
    record_property("combined", dict(together))
    assert together.total() - together["not fitted"] == COMBINATIONS
    read, wide = (singly[name] + together[name] for name in ("read", "read, wide"))
    assert read > 10 * wide


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_share_of_the_parameters(kind: type) -> None:
    settings = list(alone(kind))
    some = np.random.default_rng(SEED).choice(len(settings), 1)
    counts = counted([settings[place] for place in some] + list(combined(kind, 1, SEED)))
    assert sum(counts.values()) == 2


@pytest.mark.soak
def test_no_other_class_is_read() -> None:
    """Of all that scikit-learn has, with its defaults, before a linear model or alone."""
    rows, labels, numbers = fitting_data(Setting(LogisticRegression, {}, 2))
    read = set()
    for _, kind in all_estimators():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                last = is_classifier(kind()) or is_regressor(kind())
                model = kind() if last else make_pipeline(kind(), LogisticRegression())
                model.fit(rows, numbers if is_regressor(kind()) else labels)
                certus.certify(model, (rows, numbers if is_regressor(kind()) else labels), rho=0.0)
            except Exception:  # scikit-learn's, or the refusal
                continue
        read.add(kind)
    given = {kind for kind in CLASSES if kind.__name__ in ("ColumnTransformer", "Pipeline")}
    assert read == set(CLASSES) - given
