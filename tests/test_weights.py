"""A weight is a number of repetitions: 0 leaves a row out, 2 has it twice, in every statistic and every selector."""

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import GaussianProcessRegressor, KernelRidge, KernelRidgeClassifier
from nystrom.engine import LocalEngine
from nystrom.engine.survey import Survey
from nystrom.kernels import Gaussian
from nystrom.kmeans.lloyd import draw_rows, kmeans
from nystrom.landmarks import SELECTORS, make_selector
from nystrom.moments import block_moments
from nystrom.rows import as_blocks

N = 150


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) + 5
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=N) + 10, rng.integers(0, 4, N).astype(float)


def repeated(weight):
    return np.repeat(np.arange(len(weight)), weight.astype(int))


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, np.asfortranarray])
@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_weighted_ridge_is_the_ridge_of_repeated_rows(data, selection, intercept, container):
    X, y, w = data
    again = repeated(w)
    model = KernelRidge("auto", selection=selection, fit_intercept=intercept, landmarks=X[:30])
    weighted, plain = (
        model.fit(container(X), y, w),
        KernelRidge(**model.get_params()).fit(container(X[again]), y[again]),
    )
    assert weighted.kernel_.gamma == pytest.approx(plain.kernel_.gamma, rel=1e-13)
    np.testing.assert_allclose(weighted.eigenvalues_, plain.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(weighted.alpha_scores_, plain.alpha_scores_, rtol=1e-8)
    assert weighted.alpha_ == pytest.approx(plain.alpha_)
    assert weighted.certificate_.trace.value == pytest.approx(plain.certificate_.trace.value, rel=1e-9)
    np.testing.assert_allclose(weighted.predict(X), plain.predict(X), atol=1e-8)


def test_rows_of_weight_zero_change_nothing_whatever_they_hold(data):
    X, y, w = data
    wild, wild_y = X.copy(), y.copy()
    wild[w == 0] *= 1e6
    wild_y[w == 0] = 1e9
    model = KernelRidge("auto", selection="gcv", n_landmarks=200, random_state=0)
    one = model.fit(wild, wild_y, w).predict(X)
    kept = w > 0
    two = KernelRidge(**model.get_params()).fit(X[kept], y[kept], w[kept]).predict(X)
    np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("weight", [(0.0, 1.0), (1.0, 2.0), (0.5, 1.0)])
def test_weights_in_proportion_scale_the_regularisation(data, weight):
    X, y, _ = data
    w = np.where(np.arange(N) % 2, *weight)
    double = KernelRidge(2.0, gamma=0.3, landmarks=X[:30]).fit(X, y, 2 * w)
    single = KernelRidge(1.0, gamma=0.3, landmarks=X[:30]).fit(X, y, w)
    np.testing.assert_allclose(double.predict(X), single.predict(X), rtol=1e-9)


def test_the_classifier_counts_no_row_of_weight_zero(data):
    X, y, _ = data
    w = (np.random.default_rng(1).random(N) < 0.3).astype(float)
    target = y > np.median(y)
    model = KernelRidgeClassifier(gamma=0.4, landmarks=X[:25])
    alpha = model.fit(X, target, w).alpha_
    assert model.fit(X[w > 0], target[w > 0]).alpha_ == pytest.approx(alpha)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_weighted_moments_are_those_of_repeated_rows(data, offset, sparse):
    X, _, w = data
    X = X + offset
    wrap = sp.csr_matrix if sparse else np.asarray
    halves = [block_moments(wrap(X[part]), w[part]) for part in (slice(0, 70), slice(70, None))]
    weighted, exact = halves[0].merge(halves[1]), X[repeated(w)].astype(np.longdouble)
    assert weighted.count == w.sum()
    np.testing.assert_allclose(weighted.mean, exact.mean(axis=0).astype(float), rtol=1e-14)
    scatter = float(((exact - exact.mean(axis=0)) ** 2).sum())
    assert weighted.scatter == pytest.approx(scatter, rel=1e-12 + 1e-14 * offset)


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
@pytest.mark.parametrize("n_landmarks", [5, 40, 500])
@pytest.mark.parametrize("name", SELECTORS)
def test_no_selector_takes_a_row_of_weight_zero(name, n_landmarks):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    w = rng.uniform(0.5, 3, 400) * (rng.random(400) < 0.5)
    # Rows of weight 0 lie far away: one of them in a mean would show.
    X[w == 0] += 1000
    survey = Survey(as_blocks(X, weight=w), LocalEngine())
    found = make_selector(name).select(survey, n_landmarks, Gaussian(0.3), np.random.default_rng(1))
    assert np.abs(found.points).max() < 100
    assert len(found) == min(n_landmarks, np.count_nonzero(w))
    if found.indices is not None:
        assert (w[found.indices] > 0).all()


@pytest.mark.parametrize("name", ["auto", "kmeans", "sketched-kmeans"])
def test_clusters_follow_the_weights(name):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 50])
    w = rng.integers(1, 5, 200).astype(float)
    survey = Survey(as_blocks(X, weight=w), LocalEngine())
    points = make_selector(name).select(survey, 2, Gaussian(1e-3), np.random.default_rng(1)).points
    means = [np.average(X[part], axis=0, weights=w[part]) for part in (slice(0, 100), slice(100, None))]
    np.testing.assert_allclose(np.sort(points, axis=0), np.array(means), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weighted_kmeans_has_the_inertia_of_repeated_rows(dtype):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(dtype)
    w = rng.integers(0, 4, 300).astype(float)
    found = kmeans(as_blocks(X), 8, engine=LocalEngine(), rng=rng, weight=w)
    again = repeated(w)
    distances = ((X[again, None].astype(float) - found.centers) ** 2).sum(axis=2)
    assert found.inertia == pytest.approx(distances.min(axis=1).sum(), rel=1e-5)
    assert found.counts.sum() == np.count_nonzero(w)


def test_heavy_rows_are_drawn_for_certain_and_stand_for_themselves():
    w = np.concatenate([np.full(5, 1e6), np.ones(1000), np.zeros(50)])
    numbers, stands = draw_rows(len(w), 100, w, np.random.default_rng(0))
    assert set(range(5)) <= set(numbers)
    assert (w[numbers] > 0).all()
    np.testing.assert_array_equal(stands[:5], 1e6)


def test_weighted_and_unweighted_rows_merge_and_extend(data):
    X, y, w = data
    settings = {"alpha": 0.5, "gamma": 0.3, "landmarks": X[:30]}
    plain = KernelRidge(**settings).fit(X, y)
    whole = KernelRidge(**settings).fit(np.concatenate([X, X]), np.concatenate([y, y]), np.concatenate([w, np.ones(N)]))
    merged = KernelRidge(**settings).fit(X, y, w).merge(plain)
    extended = KernelRidge(**settings).fit(X, y, w).partial_fit(X, y)
    for model in (merged, extended):
        np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-8)


SHIFTS = [1e3, 1e6, 1e8]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("selection", ["loo", "gcv", "likelihood"])
def test_ridge_with_an_intercept_does_not_feel_a_shift_of_the_target(data, selection, shift):
    X, y, w = data
    # A target on a grid that the shifted one has too, so that both hold the same numbers.
    y = np.round(y * 2**20) / 2**20
    for weight in (None, w):
        model = KernelRidge("auto", selection=selection, fit_intercept=True, gamma=0.3, landmarks=X[:40])
        near = model.fit(X, y, weight).predict(X)
        alpha, scores = model.alpha_, model.alpha_scores_
        far = model.fit(X, y + shift, weight).predict(X)
        np.testing.assert_allclose(model.alpha_scores_, scores, rtol=1e-6)
        assert model.alpha_ == pytest.approx(alpha)
        np.testing.assert_allclose(far - shift, near, atol=8 * np.finfo(np.float64).eps * shift + 1e-8)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_normalised_process_does_not_feel_a_shift_of_the_target(data, shift):
    X, y, _ = data
    y = np.round(y * 2**20) / 2**20
    models = [GaussianProcessRegressor(normalize_y=True, gamma=0.3, landmarks=X[:40]).fit(X, y + s) for s in (0, shift)]
    (near, std), (far, far_std) = (model.predict(X, return_std=True) for model in models)
    np.testing.assert_allclose(far_std, std, rtol=1e-4)
    np.testing.assert_allclose(far - shift, near, atol=1e-4)
    values = [model.log_marginal_likelihood_value_ for model in models]
    assert values[1] == pytest.approx(values[0], rel=1e-6)


def test_a_target_whose_squares_overflow_is_refused_as_such(data):
    X, y, _ = data
    for machine in (KernelRidge(landmarks=X[:20]), GaussianProcessRegressor(landmarks=X[:20])):
        with pytest.raises(ValueError, match="whose squares overflow"):
            machine.fit(X, y * 1e200)
