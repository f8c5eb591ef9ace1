"""Fitted tree models of every library and kind, small enough to be tried at all of their thresholds."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas
import xgboost
from sklearn import ensemble, tree
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

ROWS = 300
_draw = np.random.default_rng(7)
NUMBERS = _draw.normal(size=(ROWS, 4)) * [1, 100, 1e-3, 1] + [0, 50, 0, 0]
NUMBERS[:, 3] = np.round(NUMBERS[:, 3], 1)
WORDS = _draw.choice(["ash", "birch", "cedar", "oak", "yew"], ROWS)
GRADES = _draw.choice([3, 5, 7, 11], ROWS)
_SIGNAL = NUMBERS[:, 0] + NUMBERS[:, 1] / 100 + 1e3 * NUMBERS[:, 2] * (WORDS > "birch") + (GRADES > 4)
_SIGNAL = _SIGNAL + 0.3 * _draw.normal(size=ROWS)
TWO = (np.median(_SIGNAL) < _SIGNAL).astype(int)
THREE = np.digitize(_SIGNAL, np.quantile(_SIGNAL, [0.33, 0.66]))
NAMED = np.array(["low", "middle", "top"])[THREE]
TARGET = _SIGNAL
GAPS = NUMBERS.copy()
GAPS[_draw.random(GAPS.shape) < 0.15] = np.nan
FRAME = pandas.DataFrame(GAPS, columns=["age", "height", "dose", "rank"])
FRAME["wood"] = pandas.Categorical(WORDS)
FRAME["grade"] = pandas.Categorical(GRADES)
OBJECTS = FRAME.astype({"wood": object, "grade": np.float64})
OBJECTS.loc[_draw.random(ROWS) < 0.1, "wood"] = np.nan
CODED = np.column_stack([GAPS, np.unique(WORDS, return_inverse=True)[1]])
ZEROS = np.where(_draw.random(NUMBERS.shape) < 0.3, 0.0, NUMBERS)

_XGB: dict[str, Any] = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1, "learning_rate": 0.5}
_LGB: dict[str, Any] = {
    "n_estimators": 6,
    "num_leaves": 6,
    "n_jobs": 1,
    "verbose": -1,
    "min_child_samples": 5,
    "learning_rate": 0.5,
    "min_data_per_group": 3,
    "cat_smooth": 1,
    "cat_l2": 1,
}
_CAT: dict[str, Any] = {
    "iterations": 6,
    "depth": 3,
    "thread_count": 1,
    "verbose": 0,
    "allow_writing_files": False,
    "random_seed": 0,
}
_FOREST: dict[str, Any] = {"n_estimators": 6, "max_depth": 4, "random_state": 0}
_HIST: dict[str, Any] = {
    "max_iter": 6,
    "max_leaf_nodes": 6,
    "min_samples_leaf": 5,
    "learning_rate": 0.5,
    "random_state": 0,
}
_MIXED = ["age", "height", "dose", "rank"], ["wood", "grade"]


def _columns(
    *, sparse: bool = False, unknown: str = "ignore", add_indicator: bool = False
) -> ColumnTransformer:
    numbers, words = _MIXED
    imputed = make_pipeline(SimpleImputer(strategy="median", add_indicator=add_indicator), StandardScaler())
    encoder = OneHotEncoder(handle_unknown=unknown, sparse_output=sparse)
    threshold = 1.0 if sparse else 0.0
    return ColumnTransformer([("n", imputed, numbers), ("w", encoder, words)], sparse_threshold=threshold)


def _ordinal() -> ColumnTransformer:
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    return ColumnTransformer([("w", encoder, _MIXED[1])], remainder=RobustScaler())


def _most_frequent() -> Pipeline:
    return make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(drop="first"))


def _early(model: Any, rows: Any, targets: Any, **options: Any) -> Any:
    half = ROWS // 2
    flipped = TWO[half:] ^ (np.arange(ROWS - half) % 3 == 0)
    return model.fit(rows[:half], targets[:half], eval_set=[(rows[half:], flipped)], **options)


MODELS: dict[str, Callable[[], Any]] = {
    # scikit-learn
    "tree classifier": lambda: tree.DecisionTreeClassifier(max_depth=5, random_state=0).fit(NUMBERS, NAMED),
    "tree classifier, gaps": lambda: tree.DecisionTreeClassifier(max_depth=5, random_state=0).fit(GAPS, TWO),
    "tree regressor": lambda: tree.DecisionTreeRegressor(max_depth=5, random_state=0).fit(NUMBERS, TARGET),
    "tree regressor, absolute": lambda: tree.DecisionTreeRegressor(
        max_depth=3, criterion="absolute_error", random_state=0
    ).fit(NUMBERS, TARGET),
    "extra tree classifier": lambda: tree.ExtraTreeClassifier(max_depth=5, random_state=0).fit(GAPS, NAMED),
    "extra tree regressor": lambda: tree.ExtraTreeRegressor(max_depth=5, random_state=0).fit(NUMBERS, TARGET),
    "forest classifier": lambda: ensemble.RandomForestClassifier(**_FOREST).fit(GAPS, NAMED),
    "forest classifier, two": lambda: ensemble.RandomForestClassifier(**_FOREST).fit(FRAME[_MIXED[0]], TWO),
    "forest regressor": lambda: ensemble.RandomForestRegressor(**_FOREST).fit(GAPS, TARGET),
    "extra trees classifier": lambda: ensemble.ExtraTreesClassifier(**_FOREST).fit(NUMBERS, NAMED),
    "extra trees regressor": lambda: ensemble.ExtraTreesRegressor(**_FOREST).fit(NUMBERS, TARGET),
    "boosting, two": lambda: ensemble.GradientBoostingClassifier(**_FOREST).fit(NUMBERS, TWO),
    "boosting, three": lambda: ensemble.GradientBoostingClassifier(**_FOREST).fit(NUMBERS, NAMED),
    "boosting, exponential": lambda: ensemble.GradientBoostingClassifier(loss="exponential", **_FOREST).fit(
        NUMBERS, TWO
    ),
    "boosting, from zero": lambda: ensemble.GradientBoostingClassifier(init="zero", **_FOREST).fit(
        NUMBERS, TWO
    ),
    "boosting, regression": lambda: ensemble.GradientBoostingRegressor(**_FOREST).fit(NUMBERS, TARGET),
    "boosting, quantile": lambda: ensemble.GradientBoostingRegressor(loss="quantile", **_FOREST).fit(
        NUMBERS, TARGET
    ),
    "histogram, two": lambda: ensemble.HistGradientBoostingClassifier(**_HIST).fit(GAPS, TWO),
    "histogram, three": lambda: ensemble.HistGradientBoostingClassifier(**_HIST).fit(NUMBERS, NAMED),
    "histogram, frame": lambda: ensemble.HistGradientBoostingClassifier(**_HIST).fit(FRAME, TWO),
    "histogram, coded": lambda: ensemble.HistGradientBoostingRegressor(categorical_features=[4], **_HIST).fit(
        CODED, TARGET
    ),
    "histogram, regression": lambda: ensemble.HistGradientBoostingRegressor(**_HIST).fit(GAPS, TARGET),
    "histogram, early": lambda: ensemble.HistGradientBoostingClassifier(
        **{**_HIST, "max_iter": 40}, early_stopping=True, n_iter_no_change=2
    ).fit(GAPS, TWO),
    # XGBoost
    "xgboost, two": lambda: xgboost.XGBClassifier(**_XGB).fit(GAPS, TWO),
    "xgboost, three": lambda: xgboost.XGBClassifier(**_XGB).fit(GAPS, THREE),
    "xgboost, softmax": lambda: xgboost.XGBClassifier(objective="multi:softmax", **_XGB).fit(GAPS, THREE),
    "xgboost, base score": lambda: xgboost.XGBClassifier(base_score=0.2, **_XGB).fit(NUMBERS, TWO),
    "xgboost, early": lambda: _early(
        xgboost.XGBClassifier(**{**_XGB, "n_estimators": 30}, early_stopping_rounds=2),
        GAPS,
        TWO,
        verbose=False,
    ),
    "xgboost, regression": lambda: xgboost.XGBRegressor(**_XGB).fit(GAPS, TARGET),
    "xgboost, absolute": lambda: xgboost.XGBRegressor(objective="reg:absoluteerror", **_XGB).fit(
        GAPS, TARGET
    ),
    "xgboost, dart": lambda: xgboost.XGBClassifier(booster="dart", rate_drop=0.5, **_XGB).fit(GAPS, TWO),
    "xgboost, frame": lambda: xgboost.XGBClassifier(max_cat_to_onehot=1, enable_categorical=True, **_XGB).fit(
        FRAME, TWO
    ),
    "xgboost, one-hot frame": lambda: xgboost.XGBRegressor(
        max_cat_to_onehot=9, enable_categorical=True, **_XGB
    ).fit(FRAME, TARGET),
    "xgboost, coded": lambda: xgboost.XGBClassifier(
        feature_types=["q"] * 4 + ["c"], max_cat_to_onehot=1, **_XGB
    ).fit(CODED, TWO),
    "xgboost, forest": lambda: xgboost.XGBRFClassifier(**{**_XGB, "learning_rate": 1.0}).fit(GAPS, TWO),
    "xgboost, forest of three": lambda: xgboost.XGBRFClassifier(**_XGB).fit(GAPS, THREE),
    "xgboost, forest regression": lambda: xgboost.XGBRFRegressor(**_XGB).fit(GAPS, TARGET),
    "xgboost, exact": lambda: xgboost.XGBClassifier(tree_method="exact", **_XGB).fit(GAPS, TWO),
    "xgboost, booster": lambda: xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}, xgboost.DMatrix(GAPS, TWO), 6
    ),
    # LightGBM
    "lightgbm, two": lambda: lightgbm.LGBMClassifier(**_LGB).fit(GAPS, TWO),
    "lightgbm, three": lambda: lightgbm.LGBMClassifier(**_LGB).fit(GAPS, NAMED),
    "lightgbm, no gaps": lambda: lightgbm.LGBMClassifier(**_LGB).fit(NUMBERS, TWO),
    "lightgbm, steep": lambda: lightgbm.LGBMClassifier(sigmoid=1.7, **_LGB).fit(NUMBERS, TWO),
    "lightgbm, zeros are gaps": lambda: lightgbm.LGBMClassifier(zero_as_missing=True, **_LGB).fit(ZEROS, TWO),
    "lightgbm, zeros": lambda: lightgbm.LGBMRegressor(**_LGB).fit(ZEROS, TARGET),
    "lightgbm, gaps ignored": lambda: lightgbm.LGBMClassifier(use_missing=False, **_LGB).fit(GAPS, TWO),
    "lightgbm, regression": lambda: lightgbm.LGBMRegressor(**_LGB).fit(GAPS, TARGET),
    "lightgbm, absolute": lambda: lightgbm.LGBMRegressor(objective="l1", **_LGB).fit(GAPS, TARGET),
    "lightgbm, dart": lambda: lightgbm.LGBMClassifier(boosting_type="dart", **_LGB).fit(GAPS, TWO),
    "lightgbm, forest": lambda: lightgbm.LGBMClassifier(
        boosting_type="rf", subsample=0.7, subsample_freq=1, **_LGB
    ).fit(GAPS, TWO),
    "lightgbm, frame": lambda: lightgbm.LGBMClassifier(max_cat_to_onehot=1, **_LGB).fit(FRAME, TWO),
    "lightgbm, coded": lambda: lightgbm.LGBMRegressor(**_LGB).fit(CODED, TARGET, categorical_feature=[4]),
    "lightgbm, early": lambda: _early(
        lightgbm.LGBMClassifier(**{**_LGB, "n_estimators": 30}),
        GAPS,
        TWO,
        callbacks=[lightgbm.early_stopping(2, verbose=False)],
    ),
    "lightgbm, booster": lambda: lightgbm.train(
        {"objective": "binary", "num_threads": 1, "verbose": -1, "num_leaves": 6},
        lightgbm.Dataset(GAPS, TWO),
        6,
    ),
    "lightgbm, early booster": lambda: lightgbm.train(
        {"objective": "binary", "num_threads": 1, "verbose": -1, "num_leaves": 6, "early_stopping_round": 2},
        lightgbm.Dataset(GAPS[:200], TWO[:200]),
        30,
        [lightgbm.Dataset(GAPS[200:], TWO[200:] ^ (np.arange(ROWS - 200) % 3 == 0))],
        keep_training_booster=True,
    ),
    # CatBoost
    "catboost, two": lambda: catboost.CatBoostClassifier(**_CAT).fit(GAPS, TWO),
    "catboost, three": lambda: catboost.CatBoostClassifier(**_CAT).fit(GAPS, NAMED),
    "catboost, no gaps": lambda: catboost.CatBoostClassifier(**_CAT).fit(NUMBERS, TWO),
    "catboost, gaps above": lambda: catboost.CatBoostClassifier(nan_mode="Max", **_CAT).fit(GAPS, TWO),
    "catboost, regression": lambda: catboost.CatBoostRegressor(**_CAT).fit(FRAME[_MIXED[0]], TARGET),
    "catboost, leafwise": lambda: catboost.CatBoostClassifier(grow_policy="Lossguide", **_CAT).fit(GAPS, TWO),
    "catboost, depthwise": lambda: catboost.CatBoostRegressor(grow_policy="Depthwise", **_CAT).fit(
        GAPS, TARGET
    ),
    # behind steps
    "scaled tree": lambda: make_pipeline(
        StandardScaler(), MinMaxScaler(), tree.DecisionTreeClassifier(max_depth=5)
    ).fit(GAPS, TWO),
    "scaled forest": lambda: make_pipeline(RobustScaler(), ensemble.RandomForestClassifier(**_FOREST)).fit(
        GAPS, NAMED
    ),
    "scaled histogram": lambda: make_pipeline(
        MaxAbsScaler(), ensemble.HistGradientBoostingRegressor(**_HIST)
    ).fit(GAPS, TARGET),
    "scaled xgboost": lambda: make_pipeline(StandardScaler(), xgboost.XGBClassifier(**_XGB)).fit(GAPS, TWO),
    "scaled lightgbm": lambda: make_pipeline(MinMaxScaler((-1, 1)), lightgbm.LGBMClassifier(**_LGB)).fit(
        GAPS, NAMED
    ),
    "scaled catboost": lambda: make_pipeline(StandardScaler(), catboost.CatBoostClassifier(**_CAT)).fit(
        GAPS, TWO
    ),
    "imputed boosting": lambda: make_pipeline(
        SimpleImputer(), ensemble.GradientBoostingClassifier(**_FOREST)
    ).fit(GAPS, TWO),
    "selected boosting": lambda: make_pipeline(
        SimpleImputer(add_indicator=True), SelectKBest(k=3), ensemble.GradientBoostingRegressor(**_FOREST)
    ).fit(GAPS, TARGET),
    "one-hot boosting": lambda: make_pipeline(_columns(), ensemble.GradientBoostingClassifier(**_FOREST)).fit(
        OBJECTS, TWO
    ),
    "one-hot boosting, known": lambda: make_pipeline(
        _columns(unknown="error", add_indicator=True), ensemble.GradientBoostingClassifier(**_FOREST)
    ).fit(OBJECTS, NAMED),
    "one-hot lightgbm": lambda: make_pipeline(_columns(), lightgbm.LGBMClassifier(**_LGB)).fit(OBJECTS, TWO),
    "sparse forest": lambda: make_pipeline(
        _columns(sparse=True), ensemble.RandomForestClassifier(**_FOREST)
    ).fit(OBJECTS, TWO),
    "sparse xgboost": lambda: make_pipeline(
        ColumnTransformer([("w", OneHotEncoder(handle_unknown="ignore"), _MIXED[1])], sparse_threshold=1.0),
        xgboost.XGBClassifier(**_XGB),
    ).fit(OBJECTS, TWO),
    "frequent forest": lambda: make_pipeline(
        ColumnTransformer([("w", _most_frequent(), _MIXED[1]), ("n", "passthrough", ["age", "dose"])]),
        ensemble.RandomForestRegressor(**_FOREST),
    ).fit(OBJECTS, TARGET),
    "ordinal histogram": lambda: make_pipeline(
        _ordinal(), ensemble.HistGradientBoostingClassifier(categorical_features=[0, 1], **_HIST)
    ).fit(OBJECTS, TWO),
    "ordinal lightgbm": lambda: Pipeline(
        [("columns", _ordinal()), ("model", lightgbm.LGBMClassifier(**_LGB))]
    ).fit(OBJECTS, TWO, model__categorical_feature=[0]),
    "ordinal forest": lambda: make_pipeline(_ordinal(), ensemble.RandomForestClassifier(**_FOREST)).fit(
        OBJECTS, TWO
    ),
    "one-hot numbers": lambda: make_pipeline(
        OneHotEncoder(handle_unknown="ignore", sparse_output=False), tree.DecisionTreeRegressor(max_depth=5)
    ).fit(np.column_stack([GRADES, GRADES % 4]), TARGET),
}


@functools.cache
def fitted(name: str) -> Any:
    """Return the model of this name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[name]()


def saved(name: str, folder: Path) -> Path | None:
    """Save a model in its library's own format; None if the library has none, or it stands behind steps."""
    model = fitted(name)
    kind = name.split(",")[0]
    suffix = {"xgboost": "ubj", "lightgbm": "txt", "catboost": "json"}.get(kind)
    if suffix is None:
        return None
    path = folder / f"model.{suffix}"
    if kind == "catboost":
        model.save_model(str(path), format="json")
    else:
        getattr(model, "booster_", model).save_model(str(path))
    return path
