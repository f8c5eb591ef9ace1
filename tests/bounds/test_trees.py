"""Tree ensembles are read exactly: the library's own scores and predictions at every threshold and its
neighbours, for gaps and for unknown categories; anything else is refused by name."""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import catboost
import joblib
import lightgbm
import numpy as np
import pandas
import pytest
import torch
import xgboost
from scipy.special import expit, softmax
from sklearn import ensemble, tree
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from torch import Tensor

from certus.bounds import trees
from certus.bounds.trees import TreeModel, load_ensemble, read_ensemble
from certus.bounds.trees.folding import half_line_ends, to_float32
from certus.bounds.trees.lightgbm_models import flush_to_zero, parse_lightgbm
from certus.bounds.trees.ubjson import read_ubjson
from certus.bounds.trees.xgboost_models import parse_xgboost
from certus.errors import ArgumentError, UnreadableModelError
from tests.bounds import tree_models
from tests.bounds.tree_models import FRAME, GAPS, MODELS, NUMBERS, OBJECTS, TARGET, THREE, TWO, fitted, saved


@functools.cache
def reading(name: str) -> TreeModel:
    return read_ensemble(fitted(name))


LIMIT = float(np.finfo(np.float32).max)


def neighbours(numbers: Any) -> Any:
    """Numbers and the next ones up and down, in float64 and in float32."""
    single = numbers.astype(np.float32)
    parts = [numbers, single]
    for end in (-np.inf, np.inf):
        parts += [np.nextafter(numbers, end), np.nextafter(single, np.float32(end))]
    return np.unique(np.concatenate([part.astype(np.float64) for part in parts]))


def trial_rows(model: TreeModel, seed: int) -> Tensor:
    """Random rows, and for each threshold, code and gap of each column a row that has it."""
    draw = np.random.default_rng(seed)
    forest = model.ensemble
    pools, wanted = [], []
    for place, column in enumerate(model.columns):
        ends = forest.threshold[(forest.feature == place) & (forest.category_set < 0)].numpy()
        ends = np.unique(ends[np.abs(ends) < LIMIT / 2])
        values = np.arange(float(column.codes)) if column.labels is not None else neighbours(ends)
        extra = [] if column.labels is not None else [0.0, -0.0, 1e-36, -1e-36, 1e-30, -1e-30, 1e30, -1e30]
        if column.missing and column.used:
            extra = [*extra, np.nan]
        pool = np.concatenate([values, extra])
        usual = (
            [pool]
            if column.labels is not None or not len(ends)
            else [pool, draw.normal(ends.mean(), ends.std() + 1, 99)]
        )
        pools.append(np.concatenate(usual))
        wanted += [(place, value) for value in pool]
    rows = np.stack([draw.choice(pool, len(wanted) + 100) for pool in pools], 1)
    gaps = np.array([column.missing and column.used for column in model.columns])
    rows[gaps & (draw.random(rows.shape) < 0.1)] = np.nan
    for row, (place, value) in enumerate(wanted):
        rows[row, place] = value
    return torch.from_numpy(rows)


def disagreements(model: TreeModel, rows: Tensor) -> int:
    """Rows for which scores, predictions or probabilities are not the library's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cells = model.decode(rows)
        assert model.raw is not None
        theirs = model.raw(cells)
        assert torch.equal(model.encode(cells).nan_to_num(-7.0), rows.nan_to_num(-7.0))
        scores = model.ensemble.scores(rows)
        rounding = model.ensemble.rounding
        wrong = ((scores - torch.from_numpy(theirs)).abs() > rounding).any(1).numpy()
        assert float(rounding.max()) < 1e-4 * (1 + float(scores.abs().max()))
        if model.classes is None:
            numbers = np.asarray(model.model.predict(cells)).reshape(-1)
            return int((wrong | (np.abs(numbers - scores[:, 0].numpy()) > float(rounding))).sum())
        if not hasattr(model.model, "predict_proba"):
            return int(wrong.sum())
        sure = margins(model, scores) > 2 * float(rounding.max())
        labels = model.classes[model.decide(scores).numpy()]
        predictions = np.asarray(model.model.predict(cells)).reshape(-1)
        probabilities = np.asarray(model.model.predict_proba(cells))
    wrong |= sure & (labels != predictions)
    ours = scores.numpy()
    if model.output == "logistic":
        ours = np.concatenate([1 - expit(ours), expit(ours)], 1)
    elif model.output == "softmax":
        ours = softmax(ours, axis=1)
    wrong |= (np.abs(ours - probabilities) > 1e-6).any(1)
    return int(wrong.sum())


def margins(model: TreeModel, scores: Tensor) -> Any:
    ordered = scores.sort(1).values
    return (scores[:, 0].abs() if model.output == "logistic" else ordered[:, -1] - ordered[:, -2]).numpy()


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("name", MODELS)
def test_scores_and_predictions_are_the_librarys(name: str) -> None:
    model = reading(name)
    rows = trial_rows(model, seed=1)
    assert disagreements(model, rows) == 0
    library = name.split(",")[0]
    assert model.library.startswith(library if library in ("xgboost", "lightgbm", "catboost") else "")
    assert model.library.split()[-1][0].isdigit()


@pytest.mark.parametrize(
    "name",
    [
        "forest classifier",
        "histogram, two",
        "xgboost, two",
        "lightgbm, two",
        "catboost, two",
        "scaled xgboost",
    ],
)
def test_one_ulp_is_noticed(name: str) -> None:
    model = reading(name)
    rows = trial_rows(model, seed=1)
    forest = model.ensemble
    inner = forest.feature >= 0
    changes: dict[str, dict[str, Any]] = {
        "up": {"threshold": torch.nextafter(forest.threshold, torch.tensor(torch.inf).double())},
        "down": {"threshold": torch.nextafter(forest.threshold, torch.tensor(-torch.inf).double())},
        "gaps": {"missing_left": ~forest.missing_left},
        "values": {"value": forest.value * (1 + 1e-4)},
        "order": {"left": forest.right, "right": forest.left},
    }
    for change, fields in changes.items():
        other = dataclasses.replace(model, ensemble=dataclasses.replace(forest, **fields))
        wrong = disagreements(other, rows)
        least = int(inner.sum()) // 3 if change in ("up", "down") else 40
        assert wrong >= least, f"{change}: {wrong} rows, {int(inner.sum())} thresholds"


def test_the_models_have_the_features_that_they_are_named_after() -> None:
    for name in MODELS:
        forest = reading(name).ensemble
        inner = forest.feature >= 0
        assert int(inner.sum()) >= 3, name
        categorical = int((forest.category_set >= 0).sum())
        expected = any(
            part in name for part in ("frame", "coded", "one-hot", "ordinal", "sparse", "frequent")
        )
        assert (categorical > 0) == expected, name
    for name in ("forest classifier", "histogram, two", "xgboost, two", "lightgbm, two"):
        forest = reading(name).ensemble
        assert len(set(forest.missing_left[forest.feature >= 0].tolist())) == 2, name
    weights = json.loads(bytes(fitted("xgboost, dart").get_booster().save_raw("json")))
    assert len(set(weights["learner"]["gradient_booster"]["weight_drop"])) > 1
    assert (
        len(reading("xgboost, early").ensemble.roots)
        < fitted("xgboost, early").get_booster().num_boosted_rounds()
    )
    assert len(reading("lightgbm, early").ensemble.roots) < 30
    early = fitted("lightgbm, early booster")
    assert len(reading("lightgbm, early booster").ensemble.roots) == early.best_iteration < early.num_trees()
    assert "average_output" in fitted("lightgbm, forest").booster_.model_to_string()
    decisions = fitted("lightgbm, zeros are gaps").booster_.model_to_string()
    assert len(reading("lightgbm, zeros are gaps").ensemble.feature) > 2 * decisions.count("Tree=") * 6
    assert fitted("catboost, gaps above").get_param("nan_mode") == "Max"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("library", ["sklearn", "histogram", "xgboost", "lightgbm", "catboost"])
def test_many_models(library: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(1500, 8)) * 10.0 ** draw.integers(-6, 6, 8)
    rows = np.where(draw.random(rows.shape) < 0.1, np.nan, np.where(draw.random(rows.shape) < 0.1, 0.0, rows))
    score = np.nan_to_num(np.sign(rows) * np.abs(rows) ** 0.1) @ draw.normal(size=8)
    labels = np.digitize(score, np.quantile(score, [0.4, 0.7][: 1 + seed % 2]))
    makers: dict[str, Callable[[], Any]] = {
        "sklearn": lambda: ensemble.RandomForestClassifier(30, random_state=seed),
        "histogram": lambda: ensemble.HistGradientBoostingClassifier(max_iter=30),
        "xgboost": lambda: xgboost.XGBClassifier(n_estimators=50, max_depth=6, n_jobs=1),
        "lightgbm": lambda: lightgbm.LGBMClassifier(
            n_estimators=50, n_jobs=1, verbose=-1, zero_as_missing=seed % 3 == 0
        ),
        "catboost": lambda: catboost.CatBoostClassifier(
            iterations=50, thread_count=1, verbose=0, allow_writing_files=False
        ),
    }
    steps = [[], [StandardScaler()], [MinMaxScaler(), StandardScaler()]][seed % 3]
    model = read_ensemble(make_pipeline(*steps, makers[library]()).fit(rows, labels))
    assert disagreements(model, trial_rows(model, seed)) == 0


MAPS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "float32": to_float32,
    "flush": flush_to_zero,
    "standard": lambda x: (x - 0.1) / 3.7,
    "huge": lambda x: x * 1e200 * 1e150,
    "chain": lambda x: to_float32((x * 1e-3 + 7.3) / 0.2),
    "constant": np.zeros_like,
}


@pytest.mark.parametrize("name", MAPS)
def test_the_end_of_a_half_line(name: str) -> None:
    draw = np.random.default_rng(0)
    thresholds = np.concatenate(
        [draw.normal(size=200), 10 ** draw.uniform(-40, 38, 200), [0.0, -0.0, 1e-35, 5e-324, -1e308, np.inf]]
    )
    with np.errstate(all="ignore"):
        ends = half_line_ends(MAPS[name], thresholds)
        largest = np.finfo(np.float64).max
        inside = np.clip(ends, -largest, largest)
        after = np.where(ends == -np.inf, -largest, np.nextafter(ends, np.inf))
        assert ((MAPS[name](inside) <= thresholds) | (ends == -np.inf)).all()
        assert ((MAPS[name](after) > thresholds) | (ends == np.inf)).all()
    if name == "float32":  # the midpoint of two float32 numbers, or one ulp below it
        below = thresholds[:200].astype(np.float32).astype(np.float64)
        below = np.where(
            below > thresholds[:200], np.nextafter(below.astype(np.float32), np.float32(-9)), below
        )
        above = np.nextafter(below.astype(np.float32), np.float32(np.inf)).astype(np.float64)
        middle = (below + above) / 2
        assert ((ends[:200] == middle) | (ends[:200] == np.nextafter(middle, -np.inf))).all()


# Files


def equal(ours: TreeModel, theirs: TreeModel) -> bool:
    """Whether two readings are the same, bit by bit."""
    fields = [field.name for field in dataclasses.fields(ours.ensemble) if field.name != "columns"]
    same = [torch.equal(getattr(ours.ensemble, own), getattr(theirs.ensemble, own)) for own in fields]
    return all(same) and ours.columns == theirs.columns and ours.output == theirs.output


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name.split(",")[0] in ("xgboost", "lightgbm", "catboost")]
)
def test_files_hold_the_same_trees(name: str, tmp_path: Path) -> None:
    path = saved(name, tmp_path)
    assert path is not None
    read = reading(name)
    iterations = None
    if name == "xgboost, early":
        best = fitted(name).best_iteration
        with pytest.raises(UnreadableModelError, match=rf"use {best + 1}, a Booster all .*as `iterations`"):
            load_ensemble(path)
        assert len(load_ensemble(path, iterations=0).ensemble.roots) > len(read.ensemble.roots)
        iterations = best + 1
    loaded = load_ensemble(path.rename(tmp_path / "any name"), iterations=iterations)
    assert equal(loaded, read)
    assert loaded.model is None
    assert loaded.raw is None
    rows = trial_rows(read, seed=2)
    sure = np.ones(len(rows), bool)
    if read.classes is not None:
        assert loaded.classes is not None
        assert len(loaded.classes) == len(read.classes)
        sure = margins(read, read.ensemble.scores(rows)) > 2 * float(read.ensemble.rounding.max())
    if name == "lightgbm, three":  # the file has no labels
        assert loaded.classes is not None
        assert loaded.classes.tolist() == [0, 1, 2]
    elif hasattr(read.model, "predict_proba"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert (loaded.predict(rows)[sure] == read.predict(rows)[sure]).all()
    if name.startswith("xgboost"):
        getattr(read.model, "get_booster", lambda: read.model)().save_model(tmp_path / "model.json")
        assert equal(load_ensemble(tmp_path / "model.json", iterations=iterations), read)


def test_reading_imports_no_library() -> None:
    folder = Path(trees.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {module.split(".")[0] for module in modules}
            assert not roots & {"sklearn", "xgboost", "lightgbm", "catboost", "pandas"}, path


@pytest.mark.parametrize("name", ["xgboost, frame", "lightgbm, frame", "catboost, two"])
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    """A file that is cut off or changed is refused, or read as trees of finite numbers."""
    path = saved(name, tmp_path)
    assert path is not None
    content, draw = path.read_bytes(), np.random.default_rng(0)
    for cut in draw.integers(0, len(content) * 9 // 10, 20):
        path.write_bytes(content[:cut])
        with pytest.raises(UnreadableModelError):
            load_ensemble(path)
    refusals = 0
    for _ in range(60):
        changed = bytearray(content)
        for place in draw.integers(0, len(content), 5):
            changed[place] = draw.integers(0, 256)
        path.write_bytes(bytes(changed))
        try:
            load_ensemble(path)
        except UnreadableModelError:
            refusals += 1
    assert refusals > 20


def test_files_that_are_not_models(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for content in (b"", b"{}", b"[1, 2]", b"tree\n", b"{L", b'{"learner": 3}', b"{" * 9999):
        path.write_bytes(content)
        with pytest.raises(
            UnreadableModelError, match=r"not a model|damaged|ends early|unknown marker|no whole"
        ):
            load_ensemble(path)
    with pytest.raises(ArgumentError, match="`path` must be a file that can be read"):
        load_ensemble(tmp_path / "none")


class Trap:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_pickles_execute_code_only_if_they_may(tmp_path: Path) -> None:
    for compress in (0, 3, "gzip", "bz2", "lzma", "xz"):
        joblib.dump(Trap(tmp_path / "mark"), tmp_path / "trap", compress=compress)
        with pytest.raises(UnreadableModelError, match=r"executes the code .* --allow-code\) if you trust"):
            load_ensemble(tmp_path / "trap")
        assert not (tmp_path / "mark").exists()
    with pytest.raises(UnreadableModelError, match="NoneType is not read exactly"):
        load_ensemble(tmp_path / "trap", allow_code=True)
    assert (tmp_path / "mark").exists()  # the trap was a real one
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps(fitted("scaled xgboost")))
    assert equal(load_ensemble(path, allow_code=True), reading("scaled xgboost"))
    with pytest.raises(ArgumentError, match="must be left out for a pickle"):
        load_ensemble(path, allow_code=True, classes=["a", "b"])
    path.write_bytes(b"\x80\x04\x95")
    with pytest.raises(UnreadableModelError, match="cannot be loaded: "):
        load_ensemble(path, allow_code=True)
    fitted("catboost, two").save_model(str(path))
    with pytest.raises(UnreadableModelError, match=r"CatBoost's binary format .* save the model with format"):
        load_ensemble(path)


def test_labels_of_classes_in_a_file(tmp_path: Path) -> None:
    path = saved("lightgbm, three", tmp_path)
    assert path is not None
    model, read = load_ensemble(path, classes=["low", "middle", "top"]), reading("lightgbm, three")
    rows = model.encode(GAPS)
    assert model.predict(rows).tolist() == read.predict(rows).tolist()
    for classes in (["low", "top"], ["low", "low", "top"]):
        with pytest.raises(ArgumentError, match="`classes` must be 3 different labels; got"):
            load_ensemble(path, classes=classes)


def test_ubjson_reads_what_json_does() -> None:
    booster = fitted("xgboost, frame").get_booster()
    binary, text = read_ubjson(bytes(booster.save_raw("ubj"))), json.loads(bytes(booster.save_raw("json")))

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rounded(own) for name, own in value.items()}
        if isinstance(value, list):
            return [rounded(own) for own in value]
        return float(np.float32(value)) if isinstance(value, float) else value

    assert rounded(text) == rounded(binary)
    assert read_ubjson(b"[i\x01U\xffI\x01\x00TFZSi\x02abCx]") == [1, 255, 256, True, False, None, "ab", "x"]
    assert read_ubjson(b"{#i\x01i\x01aD?\xf0\0\0\0\0\0\0") == {"a": 1.0}
    with pytest.raises(UnreadableModelError, match=r"length beyond|ends early"):
        read_ubjson(b"[$Z#L\x7f\xff\xff\xff\xff\xff\xff\xff")


# Rows


def test_rows_are_encoded_as_the_library_reads_them() -> None:
    model = reading("xgboost, frame")
    assert [column.name for column in model.columns] == list(FRAME.columns)
    assert model.columns[4].labels == ("ash", "birch", "cedar", "oak", "yew")
    assert model.columns[5].labels == (3, 5, 7, 11)
    rows = FRAME[:5].copy()
    rows["wood"] = ["yew", "ash", None, "oak", "ash"]
    assert model.encode(rows)[:, 4].nan_to_num(-1).tolist() == [4, 0, -1, 3, 0]
    assert model.decode(model.encode(rows))["wood"].astype(object).fillna("?").tolist() == [
        "yew",
        "ash",
        "?",
        "oak",
        "ash",
    ]
    rows["wood"] = "elm"
    with pytest.raises(ArgumentError, match="`data` must have categories of the model in wood; got 'elm'"):
        model.encode(rows)
    with pytest.raises(
        ArgumentError, match="`data` must have the model's columns in their order, age, height"
    ):
        model.encode(FRAME[FRAME.columns[::-1]])
    with pytest.raises(ArgumentError, match="`data` must have 6 columns; got 2"):
        model.encode(np.zeros((3, 2)))
    with pytest.raises(ArgumentError, match=r"`data` must hold rows, \(n, features\); got shape \(3,\)"):
        model.encode(np.zeros(3))


def test_unknown_categories() -> None:
    rows = OBJECTS[:20].copy()
    rows["wood"] = "elm"
    for name in (
        "lightgbm, frame",
        "histogram, frame",
        "one-hot boosting",
        "ordinal lightgbm",
        "sparse xgboost",
    ):
        model = reading(name)
        given = rows.astype({"wood": "category", "grade": "category"}) if "frame" in name else rows
        encoded = model.encode(given)
        wood = encoded[:, 4]
        assert bool(wood.isnan().all()) if name == "lightgbm, frame" else bool((wood == 5).all())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = model.model.predict_proba(given)[:, 1]
        assert np.abs(expit(model.ensemble.scores(encoded)[:, 0].numpy()) - theirs).max() < 1e-6
    with pytest.raises(ArgumentError, match="`data` must have categories of the model in wood; got 'elm'"):
        reading("one-hot boosting, known").encode(rows)


def test_gaps_where_the_model_has_no_direction() -> None:
    for name in ("boosting, two", "boosting, regression"):
        model = reading(name)
        assert not any(column.missing for column in model.columns)
        with pytest.raises(
            ArgumentError, match="`data` must have no gaps in column 0: the model refuses them"
        ):
            model.encode(GAPS)
        with pytest.raises(ValueError, match="NaN"):
            model.model.predict(GAPS)
    with pytest.raises(ArgumentError, match="`data` must have finite numbers in column 1; got inf"):
        reading("forest classifier").encode(np.where(NUMBERS > 60, np.inf, NUMBERS))
    with pytest.raises(ArgumentError, match="`data` must have numbers in column 0: could not convert"):
        reading("forest classifier").encode(np.full((2, 4), "x"))


def test_columns_of_other_kinds_and_frames() -> None:
    model = reading("xgboost, two")
    given = pandas.DataFrame(GAPS).astype("Float64")
    assert torch.equal(model.encode(given).nan_to_num(9), torch.from_numpy(GAPS).nan_to_num(9))
    assert torch.equal(model.encode(torch.from_numpy(NUMBERS)), torch.from_numpy(NUMBERS))
    assert torch.equal(model.encode(GAPS.astype(object)).nan_to_num(9), torch.from_numpy(GAPS).nan_to_num(9))
    for name, larger in (("xgboost, coded", 5), ("lightgbm, coded", 5)):
        model = reading(name)
        rows = tree_models.CODED[:3].copy()
        rows[:, 4] = [0, 4, 99]
        assert model.encode(rows)[:, 4].tolist() == [0, 4, larger]
        theirs = model.model.predict(rows)
        if model.classes is None:
            assert np.abs(theirs - model.ensemble.scores(model.encode(rows))[:, 0].numpy()).max() < 1e-9
        else:
            assert theirs.tolist() == model.predict(model.encode(rows)).tolist()
        for wrong in (1.5, -1):
            rows[0, 4] = wrong
            with pytest.raises(
                ArgumentError, match=f"`data` must have codes 0, 1, … in column 4; got .*{wrong}"
            ):
                model.encode(rows)
    dropped = OBJECTS.assign(note="text")
    pipeline = make_pipeline(tree_models._columns(), tree.DecisionTreeClassifier(max_depth=3)).fit(
        dropped, TWO
    )
    model = read_ensemble(pipeline)
    assert not model.columns[-1].used
    assert model.encode(dropped)[:, -1].tolist() == [0.0] * len(dropped)


def test_targets() -> None:
    model = reading("boosting, three")
    assert model.encode_targets(np.array(["top", "low"])).tolist() == [2, 0]
    with pytest.raises(ArgumentError, match="labels of the model's classes, low, middle, top; got high"):
        model.encode_targets(["top", "high"])
    assert reading("tree regressor").encode_targets([1, 2]).tolist() == [1.0, 2.0]


def test_ties_and_rounding() -> None:
    """A float32 sigmoid cannot tell a small score from 0; argmax prefers the first class."""
    labels = np.array([0, 1] * 20)
    flat = xgboost.XGBClassifier(n_estimators=1, n_jobs=1, base_score=0.5).fit(np.zeros((40, 1)), labels)
    content = json.loads(bytes(flat.get_booster().save_raw("json")))
    for score, label in ((5e-8, 0), (2.0**-21, 1), (-1e-9, 0)):
        content["learner"]["gradient_booster"]["model"]["trees"][0]["split_conditions"] = [score]
        flat.get_booster().load_model(bytearray(json.dumps(content).encode()))
        model = read_ensemble(flat)
        assert model.ensemble.scores(torch.zeros(1, 1).double()).item() == np.float32(score)
        assert flat.predict(np.zeros((1, 1))).tolist() == [label]
        assert model.ensemble.rounding.item() >= 2.0**-21
    many = reading("xgboost, regression").ensemble
    leaves = [
        many.value[many.leaves(torch.from_numpy(GAPS))[:, tree]].abs().max().item() for tree in range(6)
    ]
    assert many.rounding.item() >= 6 * 2.0**-24 * (abs(many.bias.item()) + sum(leaves))
    assert many.rounding.item() < 20 * 2.0**-24 * (abs(many.bias.item()) + 2 * sum(leaves))


# Refusals


class Subclass(tree.DecisionTreeClassifier):  # type: ignore[misc]
    pass


def _xgboost(**options: Any) -> Any:
    return xgboost.XGBRegressor(n_estimators=2, n_jobs=1, **options).fit(NUMBERS, np.abs(TARGET))


def _lightgbm(**options: Any) -> Any:
    return lightgbm.LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1, **options).fit(
        NUMBERS, np.abs(TARGET)
    )


def _catboost(rows: Any = NUMBERS, targets: Any = TARGET, **options: Any) -> Any:
    shared = {"iterations": 2, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return catboost.CatBoostRegressor(**shared, **options).fit(rows, targets)


def _threshold() -> Any:
    model = catboost.CatBoostClassifier(iterations=2, verbose=0, thread_count=1, allow_writing_files=False)
    model.fit(NUMBERS, TWO).set_probability_threshold(0.3)
    return model


def _gradient(_: Any, scores: Any) -> Any:
    return scores, np.ones_like(scores)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no trees": (
        lambda: LogisticRegression().fit(NUMBERS, TWO),
        "LogisticRegression is not read exactly; `certify_smoothed`",
    ),
    "subclass": (lambda: Subclass().fit(NUMBERS, TWO), "Subclass is not read exactly"),
    "other ensemble": (
        lambda: ensemble.AdaBoostClassifier().fit(NUMBERS, TWO),
        "AdaBoostClassifier is not read",
    ),
    "unfitted": (lambda: tree.DecisionTreeClassifier(), "DecisionTreeClassifier is not fitted"),
    "unfitted pipeline": (
        lambda: make_pipeline(StandardScaler(), tree.DecisionTreeClassifier()),
        "StandardScaler of the pipeline is not fitted",
    ),
    "unfitted xgboost": (lambda: xgboost.XGBClassifier(), "XGBClassifier is not fitted"),
    "unfitted lightgbm": (lambda: lightgbm.LGBMClassifier(), "LGBMClassifier is not fitted"),
    "unfitted catboost": (lambda: catboost.CatBoostClassifier(), "CatBoostClassifier is not fitted"),
    "two targets": (
        lambda: ensemble.RandomForestRegressor(2).fit(NUMBERS, NUMBERS[:, :2]),
        "RandomForestRegressor with several outputs is not read exactly",
    ),
    "single class": (
        lambda: tree.DecisionTreeClassifier().fit(NUMBERS, 0 * TWO),
        "of a single class is not read",
    ),
    "start": (
        lambda: ensemble.GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()).fit(
            NUMBERS, TWO
        ),
        r"GradientBoostingClassifier\(init=LogisticRegression\), an initial model that is not constant",
    ),
    "log link": (
        lambda: ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(
            NUMBERS, np.abs(TARGET)
        ),
        r"HistGradientBoostingRegressor\(loss='poisson'\) is not read",
    ),
    "poisson": (lambda: _xgboost(objective="count:poisson"), "XGBoost objective count:poisson is not read"),
    "logitraw": (
        lambda: xgboost.XGBClassifier(n_estimators=2, objective="binary:logitraw", n_jobs=1).fit(
            NUMBERS, TWO
        ),
        "XGBoost objective binary:logitraw",
    ),
    "own objective": (lambda: _xgboost(objective=_gradient), "XGBRegressor with a custom objective"),
    "missing": (lambda: _xgboost(missing=-999.0), r"XGBRegressor\(missing=-999.0\)"),
    "linear booster": (lambda: _xgboost(booster="gblinear"), "XGBoost booster gblinear"),
    "vector leaves": (
        lambda: xgboost.XGBRegressor(n_estimators=2, n_jobs=1, multi_strategy="multi_output_tree").fit(
            NUMBERS, NUMBERS[:, :2]
        ),
        "with several targets",
    ),
    "vector leaves of classes": (
        lambda: xgboost.XGBClassifier(n_estimators=2, n_jobs=1, multi_strategy="multi_output_tree").fit(
            NUMBERS, THREE
        ),
        "a vector in each leaf",
    ),
    "softmax of two": (
        lambda: xgboost.XGBClassifier(n_estimators=2, n_jobs=1, objective="multi:softprob", num_class=2).fit(
            NUMBERS, TWO
        ),
        "disagrees with the trees read from it: it refuses rows of its columns",
    ),
    "ranker": (
        lambda: xgboost.XGBRanker(n_estimators=2, n_jobs=1).fit(NUMBERS, TWO, group=[len(TWO)]),
        "XGBRanker of XGBoost is not read",
    ),
    "probability regression": (
        lambda: xgboost.XGBRegressor(n_estimators=2, objective="binary:logistic", n_jobs=1).fit(NUMBERS, TWO),
        r"XGBRegressor\(objective='binary:logistic'\)",
    ),
    "linear trees": (lambda: _lightgbm(linear_tree=True), "a LightGBM model with linear trees"),
    "gamma": (lambda: _lightgbm(objective="gamma"), "LightGBM objective gamma"),
    "square root": (lambda: _lightgbm(reg_sqrt=True), "LightGBM objective regression sqrt"),
    "one against all": (
        lambda: lightgbm.LGBMClassifier(n_estimators=2, objective="multiclassova", verbose=-1, n_jobs=1).fit(
            NUMBERS, THREE
        ),
        "LightGBM objective multiclassova",
    ),
    "early predictions": (lambda: _lightgbm(pred_early_stop=True), "LightGBM's option pred_early_stop"),
    "own objective of lightgbm": (
        lambda: _lightgbm(objective=_gradient),
        "LGBMRegressor with a custom objective",
    ),
    "ordered categories": (
        lambda: lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1).fit(
            FRAME.assign(wood=FRAME["wood"].cat.as_ordered()), TWO
        ),
        "2 columns with the category type, of which 1 are",
    ),
    "catboost poisson": (
        lambda: _catboost(targets=np.abs(TARGET), loss_function="Poisson"),
        "loss function Poisson",
    ),
    "catboost categories": (
        lambda: _catboost(OBJECTS.assign(wood=OBJECTS["wood"].fillna("none")), cat_features=["wood"]),
        "a CatBoost model with categorical features",
    ),
    "catboost several": (
        lambda: _catboost(targets=NUMBERS[:, :2], loss_function="MultiRMSE"),
        "loss function MultiRMSE",
    ),
    "catboost threshold": (_threshold, "a CatBoost model with the probability threshold 0.3"),
    "principal components": (
        lambda: make_pipeline(PCA(2), tree.DecisionTreeClassifier()).fit(NUMBERS, TWO),
        "PCA is a step before the trees that is not read exactly; `certify_smoothed`",
    ),
    "clipped": (
        lambda: make_pipeline(MinMaxScaler(clip=True), tree.DecisionTreeClassifier()).fit(NUMBERS, TWO),
        r"MinMaxScaler\(clip=True\) has no rule",
    ),
    "other gaps": (
        lambda: make_pipeline(SimpleImputer(missing_values=0), tree.DecisionTreeClassifier()).fit(
            NUMBERS, TWO
        ),
        r"SimpleImputer\(missing_values=0\)",
    ),
    "sparse numbers": (
        lambda: make_pipeline(
            tree_models._columns(sparse=True), xgboost.XGBClassifier(n_estimators=2, n_jobs=1)
        ).fit(OBJECTS, TWO),
        "of which XGBoost reads zeros as gaps, is not read exactly; set sparse_threshold=0",
    ),
    "scaled categories": (
        lambda: make_pipeline(
            StandardScaler(), OneHotEncoder(handle_unknown="ignore"), tree.DecisionTreeClassifier(max_depth=2)
        ).fit(NUMBERS[:40, 3:], TWO[:40]),
        "OneHotEncoder of scaled numbers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_models_are_named(name: str) -> None:
    make, message = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
        with pytest.raises(UnreadableModelError, match=message):
            read_ensemble(model)


def test_a_model_that_was_changed_after_the_fit_is_refused() -> None:
    """Scores are compared with the model's own: attributes that the reader does not know change them."""
    model = tree.DecisionTreeClassifier(max_depth=3).fit(NUMBERS, TWO)
    model.classes_ = model.classes_[::-1]
    read_ensemble(model)  # the same labels for both
    boosted = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(NUMBERS, TWO)
    text = boosted.booster_.model_to_string
    boosted.booster_.model_to_string = lambda *_: text(num_iteration=2)  # type: ignore[method-assign]
    with pytest.raises(
        UnreadableModelError, match=r"LGBMClassifier of lightgbm .* disagrees .*: scores differ by"
    ):
        read_ensemble(boosted)


def test_damaged_trees_are_refused() -> None:
    content = json.loads(bytes(fitted("xgboost, two").get_booster().save_raw("json")))
    first = content["learner"]["gradient_booster"]["model"]["trees"][0]
    first["left_children"][1] = 0
    parsed = parse_xgboost(content)
    with pytest.raises(UnreadableModelError, match="its nodes do not form a tree"):
        parsed.trees.trees[0].order()
    text = fitted("lightgbm, two").booster_.model_to_string()
    with pytest.raises(UnreadableModelError, match="version v2 of LightGBM's text format"):
        parse_lightgbm(text.replace("version=v4", "version=v2"))
    with pytest.raises(UnreadableModelError, match="categories in the version v3"):
        parse_lightgbm(
            fitted("lightgbm, frame").booster_.model_to_string().replace("version=v4", "version=v3"), []
        )
