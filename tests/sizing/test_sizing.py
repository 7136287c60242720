"""Landmarks enough for a score, or for components that stay as they are."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA as ScikitKernelPCA

from nystrom import (
    KernelKMeans,
    KernelLogisticRegression,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    Nystroem,
    open_rows,
)
from nystrom.exceptions import ApproximationWarning


def waves(n, frequency, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(frequency * X[:, 0]) * np.cos(frequency * X[:, 1]) + 0.1 * rng.normal(size=n)


def test_a_target_that_moves_faster_takes_more_landmarks():
    sizes = []
    for frequency in (1.0, 12.0):
        X, y = waves(1500, frequency)
        model = KernelRidge("auto", gamma=20.0, n_landmarks="auto", random_state=0).fit(X, y)
        sizes.append(len(model.landmarks_))
        assert model.sizes_tried_[0][0] == 100
    assert sizes[0] <= 200 <= sizes[1]
    assert sizes[0] < sizes[1]


def test_landmarks_found_predict_as_well_as_many_more():
    X, y = waves(2500, 8.0)
    model = KernelRidge("auto", gamma=20.0, n_landmarks="auto", random_state=0).fit(X[:1500], y[:1500])
    many = KernelRidge("auto", gamma=20.0, n_landmarks=500, random_state=0).fit(X[:1500], y[:1500])
    assert model.score(X[1500:], y[1500:]) > many.score(X[1500:], y[1500:]) - 0.01


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_small_gains_at_every_doubling_add_up_to_at_least_the_usual_size(fit_intercept):
    """Each doubling gains little beside the noise, and all of them much."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 8))
    y = np.sin(3 * X[:, 0]) + np.abs(X).sum(axis=1) + rng.standard_t(3, size=3000)
    learn, test = slice(0, 1500), slice(1500, None)
    params = {"fit_intercept": fit_intercept, "random_state": 0}
    grown, usual = (KernelRidge("auto", n_landmarks=m, **params).fit(X[learn], y[learn]) for m in ("auto", None))
    assert grown.score(X[test], y[test]) > usual.score(X[test], y[test]) - 0.01


def test_rows_of_weight_zero_have_no_part_in_the_choice_of_a_size():
    X, y = waves(900, 6.0)
    weight = np.random.default_rng(1).integers(0, 3, size=900).astype(float)
    y = np.where(weight == 0, 100 * np.random.default_rng(2).normal(size=900), y)
    params = {"gamma": 20.0, "n_landmarks": "auto", "random_state": 0}
    all_rows = KernelRidge("auto", **params).fit(X, y, sample_weight=weight)
    without = KernelRidge("auto", **params).fit(X[weight > 0], y[weight > 0], sample_weight=weight[weight > 0])
    assert [size for size, _ in all_rows.sizes_tried_] == [size for size, _ in without.sizes_tried_]
    np.testing.assert_allclose(
        [error for _, error in all_rows.sizes_tried_], [error for _, error in without.sizes_tried_], rtol=1e-6
    )


@pytest.mark.parametrize("machine", [KernelRidgeClassifier, KernelLogisticRegression])
def test_classifiers_find_their_landmarks(machine):
    X, y = waves(1200, 3.0)
    model = machine(n_landmarks="auto", gamma=5.0, random_state=0).fit(X, y > 0)
    assert 100 <= len(model.landmarks_) <= 1200
    assert model.score(X, y > 0) > 0.8


def test_sparse_rows_and_files_find_the_same_landmarks_as_dense_rows_in_memory(tmp_path):
    X, y = waves(600, 2.0)
    np.save(tmp_path / "rows.npy", X)
    here = KernelPCA(2, n_landmarks="auto", random_state=0).fit(X)
    there = KernelPCA(2, n_landmarks="auto", random_state=0).fit(open_rows(tmp_path / "rows.npy"))
    np.testing.assert_array_equal(here.landmarks_, there.landmarks_)
    sparse = KernelRidge(alpha=1.0, n_landmarks="auto", random_state=0).fit(sp.csr_matrix(X), y)
    assert len(sparse.landmarks_) >= 100


@pytest.mark.parametrize("n_landmarks", [None, "auto"])
def test_two_components_are_those_of_exact_kernel_pca(n_landmarks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 10))[rng.integers(10, size=1500)] * 2 + rng.normal(size=(1500, 10))
    ours = KernelPCA(2, gamma=0.02, n_landmarks=n_landmarks, random_state=0).fit(X)
    assert len(ours.landmarks_) >= 100
    found, exact = ours.transform(X), ScikitKernelPCA(2, kernel="rbf", gamma=0.02).fit_transform(X)
    for j in range(2):
        assert abs(np.corrcoef(found[:, j], exact[:, j])[0, 1]) > 0.999


def test_machines_of_few_components_take_a_hundred_landmarks_and_features_twice_their_rank():
    X, _ = waves(400, 1.0)
    assert len(KernelKMeans(2, random_state=0).fit(X).landmarks_) >= 100
    assert len(Nystroem(n_components=3, random_state=0).fit(X).landmarks_) == 6


def test_growth_that_meets_its_limit_says_so(monkeypatch):
    monkeypatch.setattr("nystrom.engine.Resources.most_landmarks", lambda *_: 150)
    X, y = waves(1500, 25.0)
    with pytest.warns(ApproximationWarning, match="stopped at 150 landmarks"):
        KernelRidge("auto", gamma=50.0, n_landmarks="auto", random_state=0).fit(X, y)


def test_other_words_for_the_number_of_landmarks_are_refused():
    X, y = waves(50, 1.0)
    with pytest.raises(ValueError, match="n_landmarks must be one of"):
        KernelRidge(alpha=1.0, n_landmarks="many").fit(X, y)


@pytest.mark.parametrize("n_landmarks", ["auto", None])
def test_landmarks_given_by_number_are_those_rows_of_any_number_of_rows(n_landmarks):
    X = np.random.default_rng(3).normal(size=(21_000, 3))
    numbers = np.array([20_500, 7, 19_999, 12])
    model = KernelRidge(1.0, n_landmarks=n_landmarks, landmarks=numbers, random_state=0).fit(X, X[:, 0])
    np.testing.assert_array_equal(model.landmarks_, X[numbers])
