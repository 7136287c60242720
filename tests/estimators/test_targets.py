"""What may be a target: numbers for regressions, classes for classifiers, and a clear error for all else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from nystrom import (
    GaussianProcessRegressor,
    KernelLogisticRegression,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, 0])
CLASSES = np.array(["no", "yes"])[(Y > 0).astype(int)]
REGRESSIONS = [KernelRidge, KernelSVR, GaussianProcessRegressor]
CLASSIFIERS = [KernelRidgeClassifier, KernelLogisticRegression, KernelSVC]


@pytest.mark.parametrize("machine", REGRESSIONS)
@pytest.mark.parametrize(
    "values",
    [
        Y.astype(str),
        Y.astype("S"),
        Y.astype(str).astype(object),
        [*map(str, Y)],
        np.array([str(value) if row % 7 == 6 else value for row, value in enumerate(Y)], dtype=object),
        pd.Series(Y.astype(str), dtype="category"),
        np.full(60, "2026-01-01", "M8[D]"),
        np.arange(60).astype("m8[s]"),
    ],
    ids=["text", "bytes", "objects", "list", "some text", "category", "dates", "spans"],
)
def test_a_regression_refuses_targets_and_weights_that_are_not_numbers(machine: Any, values: Any) -> None:
    with pytest.raises(ValueError, match=r"^y holds .* which are not numbers"):
        machine(landmarks=X[:9]).fit(X, values)
    fitted = machine(landmarks=X[:9]).fit(X, Y)
    with pytest.raises(ValueError, match=r"^y holds .* which are not numbers; a score needs numbers"):
        fitted.score(X, values)
    with pytest.raises(ValueError, match=r"^sample_weight holds .* which are not numbers"):
        fitted.score(X, Y, sample_weight=values)
    if machine is not GaussianProcessRegressor:
        with pytest.raises(ValueError, match=r"^sample_weight holds .* which are not numbers; weights must be"):
            machine(landmarks=X[:9]).fit(X, Y, sample_weight=values)


@pytest.mark.parametrize("machine", CLASSIFIERS)
def test_a_classifier_takes_text_for_classes_but_not_for_weights(machine: Any) -> None:
    digits = np.where(Y > 0, "1", "0")
    assert machine(landmarks=X[:9]).fit(X, digits).classes_.tolist() == ["0", "1"]
    with pytest.raises(ValueError, match=r"^sample_weight holds .* which are not numbers; weights must be"):
        machine(landmarks=X[:9]).fit(X, digits, sample_weight=np.ones(60).astype(str))


@pytest.mark.parametrize("machine", [*REGRESSIONS, *CLASSIFIERS])
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (sp.csr_matrix(Y[:, None]), "y is a sparse matrix"),
        (3.0, "y must be an array with one entry per row; got float"),
        ({*Y}, "y must be an array with one entry per row; got set"),
        ("y", r"got str. The name of a column needs the path of a file as X; of a table, give table\['y'\]"),
        (pd.Series(Y).astype("Float64").mask(np.arange(60) == 7), r"y contains NaN \(first in row 7\)"),
        (pd.Series(CLASSES, dtype="string").mask(np.arange(60) == 7), r"y contains NaN \(first in row 7\)"),
    ],
    ids=["sparse", "number", "set", "name", "numbers with a gap", "text with a gap"],
)
def test_a_target_that_is_none_is_named(machine: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        machine(landmarks=X[:9]).fit(X, y)
    right = Y if machine in REGRESSIONS else CLASSES
    with pytest.raises(ValueError, match=message):
        machine(landmarks=X[:9]).fit(X, right).score(X, y)


@pytest.mark.parametrize("machine", REGRESSIONS)
@pytest.mark.parametrize(
    "form",
    [
        list,
        pa.array,
        lambda y: pd.Series(y, index=RNG.permutation(len(y))),
        lambda y: pd.Series(y).astype("Float64"),
        lambda y: y.astype(object),
        lambda y: y.astype(">f8"),
        lambda y: np.repeat(y, 2)[::2],
        lambda y: pa.chunked_array([y[:20], y[20:]]),
    ],
)
def test_the_same_numbers_in_any_container_are_the_same_target(machine: Any, form: Any) -> None:
    made = [machine(landmarks=X[:9], gamma=0.5, random_state=0).fit(X, y).predict(X) for y in (Y, form(Y))]
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("machine", CLASSIFIERS)
@pytest.mark.parametrize("form", [list, pa.array, pd.Categorical, lambda y: pd.Series(y, dtype="string")])
def test_the_same_classes_in_any_container_are_the_same_target(machine: Any, form: Any) -> None:
    made = [
        machine(landmarks=X[:9], gamma=0.5, random_state=0).fit(X, y).decision_function(X)
        for y in (CLASSES, form(CLASSES))
    ]
    np.testing.assert_array_equal(*made)
