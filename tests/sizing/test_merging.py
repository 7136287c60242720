"""Fewer landmarks from many."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.cluster.hierarchy import fcluster, linkage

from nystrom import Nystroem
from nystrom.kernels import Gaussian, Linear
from nystrom.landmarks import select_landmarks
from nystrom.landmarks.base import Landmarks
from nystrom.sizing.size_trial import Merging


def merging(X, landmarks, kernel):
    Z = landmarks.points
    return Merging(landmarks, kernel(Z, Z), kernel(X, Z))


@pytest.mark.parametrize("seed", range(4))
def test_merging_is_wards_rule(seed):
    # One row at each landmark: all masses are alike, and SciPy's linkage knows that case.
    X = np.random.default_rng(seed).normal(size=(40, 3))
    fewer = merging(X, Landmarks(X), Linear())
    for size in (39, 25, 9, 2, 1):
        label = fcluster(linkage(X, "ward"), size, "maxclust")
        means = np.stack([X[label == c].mean(axis=0) for c in np.unique(label)])
        found = fewer.to(size).points
        np.testing.assert_allclose(np.sort(found, axis=0), np.sort(means, axis=0), rtol=1e-10, atol=1e-12)


def test_masses_count_the_rows_of_each_landmark():
    # Neighbours are equally far from each other. The outer two have few rows, and go.
    Z = np.array([[0.0], [1.0], [2.0], [3.0]])
    X = np.repeat(Z, [1, 100, 100, 1], axis=0)
    np.testing.assert_allclose(merging(X, Landmarks(Z), Linear()).to(2).points, [[1.0], [2.0]], atol=0.02)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_merged_landmarks_are_nested_whatever_was_asked_for_before(make):
    X = make(np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32))
    found = select_landmarks(X, 30, random_state=0)
    one, two = (merging(X, found, Gaussian(0.2)) for _ in range(2))
    sizes = (12, 20, 5, 12)
    many, few = [one.to(size).points for size in sizes], two.to(12).points
    assert [points.shape[0] for points in many] == list(sizes)
    assert many[0].dtype == np.float32
    for points in (many[0], many[3]):
        assert abs(points - few).max() == 0


def test_landmarks_that_are_rows_stay_rows():
    X = np.random.default_rng(1).normal(size=(300, 4))
    found = select_landmarks(X, 30, method="uniform", random_state=0)
    fewer = merging(X, found, Gaussian(0.2)).to(18)
    assert len(fewer) == len(np.unique(fewer.indices)) == 18
    assert np.array_equal(X[fewer.indices], fewer.points)


@pytest.mark.parametrize("seed", range(3))
def test_merged_landmarks_are_about_as_good_as_selected_ones(seed):
    rng = np.random.default_rng(60 + seed)
    X = rng.normal(size=(20, 6))[rng.integers(20, size=1500)] + 0.5 * rng.normal(size=(1500, 6))
    kernel = Gaussian(0.3)
    fewer = merging(X, select_landmarks(X, 60, kernel=kernel, random_state=seed), kernel).to(40).points

    def error(points):
        fitted = Nystroem(kernel, landmarks=points, n_components=None).fit(X)
        return fitted.approximation_error(X).value

    selected = select_landmarks(X, 40, kernel=kernel, random_state=seed).points
    assert error(fewer) < 1.1 * error(selected)


@pytest.mark.parametrize("kernel", ["gaussian", "precomputed"])
def test_equal_rows_are_merged_first(kernel):
    X = np.repeat(np.random.default_rng(2).normal(size=(10, 3)), 3, axis=0)
    K = Gaussian(0.5)(X, X)
    rows = Landmarks(X) if kernel == "gaussian" else Landmarks(K, np.arange(30))
    fewer = Merging(rows, K, K).to(10).points
    assert len(np.unique(np.round(fewer, 10), axis=0)) == 10
