"""Sizes by tolerance, and the error that no landmarks can beat."""

import re
import warnings

import numpy as np
import pytest

from nystrom import KernelRidge, Nystroem, best_possible
from nystrom.errors.trace import ErrorEstimate
from nystrom.exceptions import ApproximationWarning
from nystrom.kernels import Gaussian
from nystrom.sizing.tolerance import cut_rank, extrapolate


def clusters(n, seed=0, p=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(12, p))[rng.integers(12, size=n)] * 2 + rng.normal(size=(n, p))


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "polynomial"])
@pytest.mark.parametrize("tol", [0.1, 0.03])
def test_the_exact_error_is_below_the_tolerance(kernel, tol):
    X = clusters(2500)
    held = 0
    for seed in range(3):
        features = Nystroem(kernel, tol=tol, random_state=seed).fit(X)
        assert features.error_.high <= tol
        held += features.approximation_error(X, exact=True).value <= tol
    assert held >= 2


@pytest.mark.parametrize("norm", ["fro", "trace", "spectral"])
def test_a_tolerance_is_met_in_its_norm_on_all_rows_exactly_when_they_are_few(norm):
    X = clusters(600)
    features = Nystroem(gamma=0.05, tol=0.05, tol_norm=norm, random_state=0).fit(X)
    K, L = Gaussian(0.05)(X, X), features.transform(X)
    order = {"fro": "fro", "trace": "nuc", "spectral": 2}[norm]
    assert np.linalg.norm(K - L @ L.T, order) <= 0.05 * np.linalg.norm(K, order) * (1 + 1e-9)


def test_a_smaller_tolerance_takes_more_landmarks_and_the_rank_is_cut():
    X = clusters(2500)
    coarse, fine = (Nystroem(tol=tol, random_state=0).fit(X) for tol in (0.2, 0.02))
    assert len(coarse.landmarks_) < len(fine.landmarks_)
    assert fine.n_components_ <= len(fine.landmarks_)
    assert fine.transform(X).shape == (2500, fine.n_components_)
    assert np.array_equal(fine.fit_transform(X), fine.transform(X))


def test_a_limit_on_the_landmarks_warns_with_what_was_reached_and_what_it_would_take():
    X = clusters(1500)
    with pytest.warns(
        ApproximationWarning, match=r"40 landmarks reach .* n_landmarks allows no more; it would take about"
    ):
        features = Nystroem(gamma=1.0, tol=0.01, n_landmarks=40, random_state=0).fit(X)
    assert len(features.landmarks_) == 40
    assert features.error_.high > 0.01


def test_a_tolerance_works_with_other_selectors_and_precomputed_kernels():
    X = clusters(700)
    K = Gaussian(0.05)(X, X)
    rows = Nystroem(gamma=0.05, tol=0.05, landmarks="rpcholesky", random_state=0).fit(X)
    assert np.array_equal(X[rows.landmark_indices_], rows.landmarks_)
    given = Nystroem("precomputed", tol=0.05, random_state=0).fit(K)
    assert given.approximation_error(K).value <= 0.05


@pytest.mark.parametrize("count", [20, 32, 90])
def test_landmarks_that_were_given_are_neither_merged_nor_tried_twice(count):
    X = clusters(1500)
    enough = Nystroem(gamma=0.01, tol=0.9, landmarks=X[:count]).fit(X)
    assert np.array_equal(enough.landmarks_, X[:count])
    assert len(enough.sizes_tried_) == 1
    with pytest.warns(ApproximationWarning, match="these are the landmarks that were given"):
        few = Nystroem(gamma=1.0, tol=0.001, landmarks=np.arange(count)).fit(X)
    assert [size for size, _ in few.sizes_tried_] == [count]


@pytest.mark.parametrize("landmarks", ["auto", "kmeans", "uniform", "rpcholesky"])
def test_few_distinct_rows_are_soon_all_landmarks(landmarks):
    rng = np.random.default_rng(9)
    X = rng.normal(size=(45, 3))[rng.integers(45, size=2500)]
    features = Nystroem(gamma=3.0, tol=1e-4, landmarks=landmarks, random_state=0).fit(X)
    assert len(features.landmarks_) <= 45
    assert features.approximation_error(X, exact=True).value <= 1e-4
    assert len(features.sizes_tried_) <= 4


def test_the_search_comes_back_from_a_size_that_is_too_large():
    X = clusters(2500, seed=3)
    features = Nystroem(gamma=0.02, tol=0.2, random_state=0).fit(X)
    sizes = [size for size, _ in features.sizes_tried_]
    assert len(features.landmarks_) < sizes[0]
    assert features.approximation_error(X, exact=True).value <= 0.2


@pytest.mark.parametrize(
    ("params", "match"), [({"tol": 0}, "tol must be"), ({"tol": 0.1, "tol_norm": "l1"}, "tol_norm")]
)
def test_wrong_tolerances_are_named(params, match):
    with pytest.raises(ValueError, match=match):
        Nystroem(**params).fit(clusters(50))


def test_errors_that_fall_as_a_power_are_extrapolated():
    assert extrapolate([(100, 0.1), (200, 0.05)], 0.01) == 1000


def test_the_rank_cut_keeps_the_sum_below_the_tolerance():
    values = np.array([10.0, 1.0, 0.1, 0.01])
    found = ErrorEstimate(0.01, 0.01, 0.01, "fro")
    rank = cut_rank(values, found, 0.03)
    assert rank == 2
    assert cut_rank(values, found, 0.01) == 4


@pytest.mark.parametrize("norm", ["fro", "trace"])
@pytest.mark.parametrize("gamma", [0.05, 5.0])
def test_the_best_possible_error_is_that_of_the_exact_eigenvalues(norm, gamma, monkeypatch):
    X = clusters(900)
    values = np.linalg.eigvalsh(Gaussian(gamma)(X, X))[::-1]
    power = 2 if norm == "fro" else 1
    true = (np.sum(values[10:] ** power) / np.sum(values**power)) ** (1 / power)
    assert best_possible(X, 10, gamma=gamma, norm=norm).value == pytest.approx(true, rel=1e-9)
    monkeypatch.setattr("nystrom.errors.measure.EXACT_ROWS", 100)
    found = best_possible(X, 10, gamma=gamma, norm=norm)
    assert found.low <= true * (1 + 1e-9)
    assert true <= found.high * (1 + 1e-9)


def test_no_landmarks_beat_the_best_possible():
    X, y = clusters(500), np.ones(500)
    model = KernelRidge(alpha=1.0, n_components=10, random_state=0).fit(X, y)
    best = model.best_possible(X)
    assert best.value <= model.approximation_error(X).value
    assert model.best_possible(X, 20).value < best.value
    with pytest.raises(ValueError, match="n_components must be"):
        best_possible(X, 0)


def test_a_fit_to_a_tolerance_says_nothing_where_it_is_met():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Nystroem(tol=0.1, random_state=0).fit(clusters(300))


def steep(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(4000, 6)) * np.exp(0.5 * rng.normal(size=(4000, 1)))


def clustered(seed):
    rng = np.random.default_rng(seed)
    return 3 * rng.normal(size=(30, 20))[rng.integers(30, size=4000)] + rng.normal(size=(4000, 20))


@pytest.mark.parametrize("most", [5, 15, 60])
@pytest.mark.parametrize(
    ("make", "tol", "params"),
    [
        (lambda seed: np.random.default_rng(seed).normal(size=(4000, 10)), 0.05, {}),
        (lambda seed: np.random.default_rng(seed).normal(size=(4000, 4)), 0.02, {"kernel": "laplacian"}),
        (lambda seed: np.random.default_rng(seed).normal(size=(4000, 3)), 0.001, {}),
        (clustered, 0.02, {}),
        (steep, 0.05, {"kernel": "polynomial"}),
    ],
    ids=["normal", "laplacian", "few columns", "clusters", "84 dimensions"],
)
def test_the_warning_says_about_how_many_landmarks_it_would_take(make, tol, params, most):
    X = make(0)
    enough = len(Nystroem(tol=tol, random_state=0, **params).fit(X).landmarks_)
    with pytest.warns(ApproximationWarning, match="it would take about") as warned:
        Nystroem(tol=tol, n_landmarks=most, random_state=0, **params).fit(X)
    said = int(re.search(r"it would take about ([\d,]+)", str(warned[0].message))[1].replace(",", ""))
    assert enough / 3 <= said <= 3 * enough


def roll(seed, n=2000):
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 4 * np.pi, n)
    return np.c_[t * np.cos(t), 10 * rng.random(n), t * np.sin(t)]


@pytest.mark.parametrize("norm", ["fro", "trace"])
@pytest.mark.parametrize("tol", [0.1, 0.03])
@pytest.mark.parametrize("n", [1500, 900], ids=["by a sample", "exactly"])
def test_the_error_is_that_of_the_map_as_cut(norm, tol, n):
    held, cut = 0, 0
    for seed in range(10):
        X = roll(seed, n)
        # Landmarks that are not spread out leave directions to cut.
        model = Nystroem(tol=tol, tol_norm=norm, landmarks="uniform", random_state=seed).fit(X)
        K, L = model.kernel_(X, X), model.transform(X)
        E = K - L @ L.T
        error = np.trace(E) / len(K) if norm == "trace" else np.linalg.norm(E) / np.linalg.norm(K)
        held += model.error_.low <= error <= model.error_.high
        cut += model.n_components_ < len(model.landmarks_)
        assert model.error_.high <= tol
    assert cut >= 5
    assert held >= (9 if n == 1500 and norm == "fro" else 10)


@pytest.mark.parametrize("gamma", [[0.01, 0.02, 0.01], "scale"])
def test_the_error_of_a_kernel_of_any_size_in_a_metric_is_that_of_the_map(gamma):
    X = roll(3, 1500)
    kernel = 1e9 * Gaussian(0.01) if gamma == "scale" else "gaussian"
    model = Nystroem(kernel, gamma=gamma, tol=0.05, random_state=0).fit(X)
    K, L = model.kernel_(X, X), model.transform(X)
    assert model.error_.low <= np.linalg.norm(K - L @ L.T) / np.linalg.norm(K) <= model.error_.high
