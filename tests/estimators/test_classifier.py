"""Classification: the regression it is, the classes it knows, and support vectors by way of the features."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_moons
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from nystrom.datasets import is_available, load
from nystrom.estimators import KernelLogisticRegression, KernelRidge, KernelRidgeClassifier, Nystroem
from nystrom.rows import as_blocks


@parametrize_with_checks([KernelRidgeClassifier(1.0, gamma=None)])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@parametrize_with_checks([KernelRidgeClassifier()])
def test_scikit_learn_accepts_the_defaults(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def test_two_classes_are_one_regression(digits):
    X, y = digits
    X, y = X[y < 2], np.array(["zero", "one"])[y[y < 2]]
    model = KernelRidgeClassifier(0.5, landmarks=X[:40]).fit(X, y)
    ridge = KernelRidge(0.5, landmarks=X[:40], fit_intercept=True).fit(X, np.where(y == "zero", 1.0, -1.0))
    assert list(model.classes_) == ["one", "zero"]
    np.testing.assert_allclose(model.decision_function(X), ridge.predict(X), atol=1e-10)
    np.testing.assert_array_equal(model.predict(X) == "zero", model.decision_function(X) > 0)


def test_many_classes_are_told_apart(digits):
    X, y = digits
    model = KernelRidgeClassifier(n_landmarks=300, random_state=0).fit(X[::2], y[::2])
    assert model.decision_function(X[:7]).shape == (7, 10)
    assert model.score(X[1::2], y[1::2]) > 0.97


@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
def test_every_selection_serves(digits, selection):
    X, y = digits
    model = KernelRidgeClassifier(selection=selection, n_landmarks=100, random_state=0).fit(X[::2], y[::2])
    assert len(model.alpha_scores_) == 100
    assert model.score(X[1::2], y[1::2]) > 0.94


def test_balanced_weights_are_weights(digits):
    X, y = digits
    kept = (y == 0) | ((y == 1) & (np.arange(len(y)) % 6 == 0))
    X, y = X[kept], y[kept]
    parameters = {"landmarks": X[:30], "gamma": 1e-3}
    balanced = KernelRidgeClassifier(1.0, class_weight="balanced", **parameters).fit(X, y)
    weight = len(y) / (2 * np.bincount(y))
    weighted = KernelRidgeClassifier(1.0, **parameters).fit(X, y, weight[y])
    named = KernelRidgeClassifier(1.0, class_weight={0: weight[0], 1: weight[1]}, **parameters).fit(X, y)
    for model in (weighted, named):
        np.testing.assert_allclose(model.decision_function(X), balanced.decision_function(X), atol=1e-10)
    plain = KernelRidgeClassifier(1.0, **parameters).fit(X, y)
    assert plain.decision_function(X).mean() < balanced.decision_function(X).mean()


def test_classes_inside_the_rows_are_found(digits):
    X, y = digits
    rows = as_blocks(X, y.astype(float), block_rows=256)
    inside = KernelRidgeClassifier(n_landmarks=50, random_state=0).fit(rows)
    outside = KernelRidgeClassifier(n_landmarks=50, random_state=0).fit(as_blocks(X, block_rows=256), y)
    np.testing.assert_array_equal(inside.predict(X), outside.predict(X))
    assert inside.score(rows) == outside.score(X, y)


def test_the_exact_solver_classifies_too(digits):
    X, y = digits[0][:400], digits[1][:400]
    exact = KernelRidgeClassifier(0.5, solver="exact", n_landmarks=100, random_state=0).fit(X, y)
    full = KernelRidgeClassifier(0.5, landmarks=X).fit(X, y)
    np.testing.assert_allclose(exact.decision_function(X), full.decision_function(X), atol=1e-6)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least 2 classes; got 1 class"):
        KernelRidgeClassifier().fit(np.eye(3), np.zeros(3))


@pytest.mark.parametrize(
    "linear",
    [
        LinearSVC(C=10.0),
        LogisticRegression(C=100.0, max_iter=2000),
        SGDClassifier(alpha=1e-5, max_iter=2000, random_state=0),
    ],
)
def test_a_linear_model_on_the_features_is_a_kernel_machine(linear):
    X, y = make_moons(400, noise=0.1, random_state=0)
    machine = make_pipeline(Nystroem(gamma=2.0, n_components=60, random_state=0), linear).fit(X[:300], y[:300])
    assert machine.score(X[300:], y[300:]) >= SVC(gamma=2.0).fit(X[:300], y[:300]).score(X[300:], y[300:]) - 0.02
    assert linear.__class__().fit(X, y).score(X, y) < 0.93


@pytest.mark.slow
@pytest.mark.skipif(not is_available("mnist"), reason="NYSTROM_DATA has no mnist.bz2")
def test_mnist_error_is_below_three_and_a_half_percent():
    X, y = load("mnist", dtype=np.float32)
    new, target = load("mnist", split="test", dtype=np.float32)
    model = KernelRidgeClassifier(n_landmarks=1000, random_state=0).fit(X, y)
    assert model.score(new, target) > 1 - 0.035


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("even", "class_weight must be 'balanced', a dict from classes to weights, or None; got 'even'"),
        ([1.0, 2.0], "class_weight must be 'balanced', a dict"),
        ({"low": -1.0}, r"class_weight\['low'\] must be a finite number of at least 0; got -1\.0"),
        ({"low": "2"}, r"class_weight\['low'\] must be a finite number of at least 0; got '2'"),
        ({"middle": 1.0}, r"class_weight names 'middle', which is no class of y; its classes are \['high', 'low'\]"),
    ],
)
@pytest.mark.parametrize("machine", [KernelRidgeClassifier, KernelLogisticRegression])
def test_wrong_weights_of_classes_are_named(machine, class_weight, message):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(rows[:, 0] > 0, "high", "low")
    with pytest.raises(ValueError, match=message):
        machine(class_weight=class_weight).fit(rows, y)


def test_weights_may_name_a_class_that_has_no_row_here():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(rows[:, 0] > 0, "high", "low")
    weights = {"high": 2.0, "low": 1.0, "middle": 5.0}
    given = KernelRidgeClassifier(1.0, class_weight=weights, random_state=0).fit(rows, y)
    fewer = KernelRidgeClassifier(1.0, class_weight={"high": 2.0}, random_state=0).fit(rows, y)
    np.testing.assert_array_equal(given.decision_function(rows), fewer.decision_function(rows))
