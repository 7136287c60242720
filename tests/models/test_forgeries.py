"""Damaged and forged files of every kind of model: refused in one line, or a model whose every method works."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from forgeries import forgeries
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import nystrom
from nystrom.exceptions import ModelFileError, NotInModelFileError
from nystrom.models.registry import ESTIMATORS
from nystrom.preprocessing import TableEncoder

# Of all kinds together.
MANY = int(os.environ.get("NYSTROM_FORGERIES", "5000"))
FEW = 16

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.sin(X[:, 0]) + X[:, 1]
WORDS = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
SPARSE = sp.random(120, 200, density=0.02, format="csr", random_state=0)
TABLE = pd.DataFrame(
    {
        "size": np.where(RNG.random(120) < 0.1, np.nan, X[:, 0]),
        "town": RNG.choice(["Bern", "Oslo", "Rome", None], 120),
        "since": pd.date_range("2020-01-01", periods=120).where(RNG.random(120) < 0.9),
        "member": X[:, 1] > 0,
    }
)
PRECOMPUTED = np.exp(-np.square(X[:, None] - X).sum(axis=2))
FEW_LANDMARKS: dict[str, Any] = {"n_landmarks": 20, "random_state": 0}

Fit = tuple[Callable[[], Any], Any]


def on(rows: Any, machine: Any, y: Any = None, *, before: Any = None) -> Fit:
    """Return how to fit a machine, in a pipeline behind another step if one is given, and the rows to try it on."""
    return (lambda: (machine if before is None else make_pipeline(before, machine)).fit(rows, y)), rows[:3]


def small(name: str, **settings: Any) -> Any:
    return getattr(nystrom, name)(**{**FEW_LANDMARKS, **settings})


KINDS: dict[str, Fit] = {
    "features": on(X, small("Nystroem", n_components=5)),
    "features by tolerance": on(X, nystrom.Nystroem(tol=0.2, random_state=0)),
    "features of sparse rows": on(SPARSE, small("Nystroem", n_components=5)),
    "features of a kernel matrix": on(PRECOMPUTED, small("Nystroem", kernel="precomputed", n_components=5)),
    "pca": on(X, small("KernelPCA", n_components=3)),
    "pca with its inverse": on(X, small("KernelPCA", n_components=3, fit_inverse_transform=True)),
    "k-means": on(X, small("KernelKMeans", n_clusters=3, n_components=5)),
    "spectral": on(X, small("SpectralClustering", n_clusters=3, n_components=5)),
    "ridge": on(X, small("KernelRidge", alpha="auto", fit_intercept=True), Y),
    "ridge of two targets": on(X, small("KernelRidge"), np.column_stack([Y, -Y])),
    "ridge by cg": on(X, small("KernelRidge", solver="cg"), Y),
    "ridge on all rows": on(X, small("KernelRidge", solver="exact"), Y),
    "ridge of sparse rows": on(SPARSE, small("KernelRidge"), Y),
    "ridge of a kernel matrix": on(PRECOMPUTED, small("KernelRidge", kernel="precomputed"), Y),
    "ridge in a metric": on(X, small("KernelRidge", metric="full"), Y),
    "ridge with scales": on(X, small("KernelRidge", gamma=np.array([1.0, 0.5, 0.1])), Y),
    "ridge classifier": on(X, small("KernelRidgeClassifier"), WORDS),
    "logistic": on(X, small("KernelLogisticRegression", C=1.0), WORDS),
    "logistic in a metric": on(X, small("KernelLogisticRegression", C=1.0, metric="diagonal"), Y > 0),
    "svc": on(X, small("KernelSVC", C=1.0), WORDS),
    "svr": on(X, small("KernelSVR", C=1.0), Y),
    "gp": on(X, small("GaussianProcessRegressor"), Y),
    "gp in a metric": on(X, small("GaussianProcessRegressor", metric="diagonal", normalize_y=True), Y),
    "scaled ridge": on(X, small("KernelRidge"), Y, before=StandardScaler()),
    "scaled gp": on(X, small("GaussianProcessRegressor"), Y, before=RobustScaler()),
    "scaled clusters": on(X, small("KernelKMeans", n_clusters=2, n_components=5), before=MinMaxScaler()),
    "encoder": on(TABLE, TableEncoder()),
    "table to ridge": on(TABLE, small("KernelRidge"), Y, before=TableEncoder()),
    "table to logistic": on(TABLE, small("KernelLogisticRegression", C=1.0), WORDS, before=TableEncoder()),
    "table to svc": on(TABLE, small("KernelSVC", C=1.0), Y > 0, before=TableEncoder()),
    "table to gp": on(TABLE, small("GaussianProcessRegressor"), Y, before=TableEncoder()),
    "table to pca": on(TABLE, small("KernelPCA", n_components=2), before=TableEncoder()),
    "table to clusters": on(TABLE, small("KernelKMeans", n_clusters=2, n_components=5), before=TableEncoder()),
    "table to features": on(TABLE, small("Nystroem", n_components=4), before=TableEncoder()),
}
METHODS = ("predict", "transform", "predict_proba", "decision_function")


@cache
def fitted(kind: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind][0]()


def steps_of(model: Any) -> list[Any]:
    return [step for _, step in model.steps] if hasattr(model, "steps") else [model]


def use(model: Any, rows: Any) -> None:
    """Call every method that makes something of new rows; each gives a result for each row."""
    for method in METHODS:
        if hasattr(model, method):
            found = getattr(model, method)(rows)
            assert found.shape[0] == 3, method
    if isinstance(model, nystrom.GaussianProcessRegressor):
        assert model.predict(rows, return_std=True)[1].shape[0] == 3
    if hasattr(model, "inverse_coef_"):
        assert model.inverse_transform(model.transform(rows)).shape == rows.shape
    assert repr(model)


def try_forgery(path: Path, rows: Any, kinds: list[type]) -> bool:
    """Return whether the file was refused, as it should be: in one line that names it. What loads must work."""
    try:
        loaded = nystrom.load(path)
    except ModelFileError as error:
        message = str(error)
        assert "\n" not in message
        assert str(path) in message
        assert len(message) < 1500
        return True
    if [*map(type, steps_of(loaded))] != kinds:
        return False  # a model of other steps, which wants other rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(NotInModelFileError):  # whoever knew the format left something out, and the model says so
            use(loaded, rows)
    return False


def check_forgeries(kind: str, tmp_path: Path, count: int, seed: int, *, full: bool = False) -> Counter[str]:
    good, path, canary = tmp_path / "good", tmp_path / "forged.nystrom", tmp_path / "canary"
    nystrom.save(fitted(kind), good, full=full)
    kinds = [*map(type, steps_of(fitted(kind)))]
    tally: Counter[str] = Counter()
    failures = []
    for label, raw in forgeries(good.read_bytes(), count, seed, canary):
        path.write_bytes(raw)
        try:
            tally["refused" if try_forgery(path, KINDS[kind][1], kinds) else "loaded"] += 1
        except Exception as error:
            failures.append(f"{kind}, {label}: {type(error).__name__}: {str(error)[:300]}")
        if canary.exists():
            failures.append(f"{kind}, {label}: code in the file was run")
            canary.rmdir()
    assert not failures, "\n".join(failures)
    return tally


def test_every_kind_of_estimator_is_forged() -> None:
    forged = {type(step).__name__ for kind in KINDS for step in steps_of(fitted(kind))}
    assert {name.rpartition(".")[2] for name in ESTIMATORS} - forged == {"MaxAbsScaler"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_file_of_each_kind_works(kind: str, tmp_path: Path) -> None:
    nystrom.save(fitted(kind), tmp_path / "good")
    use(nystrom.load(tmp_path / "good"), KINDS[kind][1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_damaged_and_forged_files_of_each_kind_are_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    check_forgeries(kind, tmp_path, FEW, seed=1)


@pytest.mark.fuzz
def test_thousands_of_damaged_and_forged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    each = -(-MANY // len(KINDS))
    total: Counter[str] = Counter()
    failures = []
    for number, kind in enumerate(KINDS):
        try:
            total += check_forgeries(kind, tmp_path, each, seed=100 + number, full=number % 4 == 3)
        except AssertionError as error:
            failures.append(str(error))
    print(f"\n{sum(total.values())} forged files of {len(KINDS)} kinds of models: {dict(total)}")
    assert not failures, "\n".join(failures)
