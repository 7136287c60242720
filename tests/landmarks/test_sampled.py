"""The probabilities behind the selectors that draw rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from sklearn.cluster import kmeans_plusplus

from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.kernels import Gaussian, Linear, Polynomial, Precomputed
from nystrom.landmarks import Diagonal, KMeansPlusPlus, Leverage, RPCholesky, sampled, select_landmarks
from nystrom.landmarks.sampled import column_norms, draw_weighted
from nystrom.rows import as_blocks


def passes_of(X, block_rows=None):
    return Passes(as_blocks(X, block_rows=block_rows), LocalEngine(2))


@pytest.mark.parametrize("tile_bytes", [1, 40_000, 2**26])
@pytest.mark.parametrize("kernel", [Gaussian(0.3), Polynomial(2)])
def test_column_norms_equal_those_of_the_whole_matrix(kernel, tile_bytes, monkeypatch):
    monkeypatch.setattr(sampled, "_TILE_BYTES", tile_bytes)
    X = np.random.default_rng(0).standard_normal((150, 3))
    literal = np.square(kernel(X, X)).sum(axis=0)
    np.testing.assert_allclose(column_norms(passes_of(X, block_rows=64), kernel), literal, rtol=1e-12)
    K = kernel(X, X)
    np.testing.assert_allclose(column_norms(passes_of(K, block_rows=64), Precomputed()), literal, rtol=1e-12)


def test_a_row_is_drawn_first_in_proportion_to_its_weight():
    X = np.arange(4.0)[:, None]
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    rng = np.random.default_rng(0)
    first = [draw_weighted(passes_of(X), weights, 1, rng).indices[0] for _ in range(3000)]
    np.testing.assert_allclose(np.bincount(first, minlength=4) / 3000, weights / 10, atol=0.03)


def test_rows_of_weight_zero_are_never_drawn():
    X = np.arange(6.0)[:, None]
    found = draw_weighted(passes_of(X), np.array([0.0, 1, 0, 1, 1, 0]), 5, np.random.default_rng(0))
    assert sorted(found.indices) == [1, 3, 4]


def test_diagonal_prefers_long_rows_under_the_linear_kernel():
    X = np.ones((1000, 2))
    X[:10] *= 10
    X += 1e-3 * np.random.default_rng(0).standard_normal(X.shape)
    found = [
        select_landmarks(X, 1, method=Diagonal(), kernel=Linear(), random_state=s).indices[0] < 10 for s in range(60)
    ]
    # Ten rows of weight 10⁴ against 990 of weight 1.
    assert np.mean(found) > 0.9


def leverage(K, ridge):
    return np.diag(K @ np.linalg.inv(K + ridge * np.eye(len(K))))


def test_leverage_scores_are_bounded_by_a_factor_of_the_exact_ones():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((380, 2)), 6 * rng.standard_normal((20, 2))])
    kernel, ridge, n = Gaussian(0.2), 0.5, 400
    exact = leverage(kernel(X, X), ridge)
    chosen = np.sort(rng.choice(n, 200, replace=False))
    found = Leverage(ridge)._scores(
        passes_of(X), kernel, np.ones(n), np.ones(n, bool), chosen, np.full(200, 2.0), rank=10
    )
    assert (found >= 0.5 * exact).all()
    assert found.sum() < 3 * exact.sum()


def test_leverage_finds_rare_rows_that_uniform_misses():
    rng = np.random.default_rng(0)
    X = 0.05 * rng.standard_normal((4000, 2))
    X[:8] += 10 * rng.standard_normal((8, 2))

    def rare(method):
        drawn = [select_landmarks(X, 30, method=method, gamma=1.0, random_state=s).indices for s in range(8)]
        return np.mean([np.sum(indices < 8) for indices in drawn])

    assert rare("uniform") < 1
    assert rare("leverage") > 4


@pytest.mark.parametrize("block_size", [1, 5, 64])
def test_randomly_pivoted_cholesky_has_the_same_distribution_for_any_block(block_size):
    X = np.array([[0.0], [0.3], [1.0], [3.0], [3.1]])
    kernel = Gaussian(1.0)
    K = kernel(X, X)
    literal = np.zeros((5, 5))
    for i in range(5):
        residual = np.diag(K) - K[:, i] ** 2 / K[i, i]
        literal[i] = residual.clip(0) / residual.clip(0).sum() / 5
    counts = np.zeros((5, 5))
    rng = np.random.default_rng(block_size)
    passes = passes_of(X)
    for _ in range(2000):
        first, second = RPCholesky(block_size=block_size).select(passes, 2, kernel, rng).indices
        counts[first, second] += 1
    np.testing.assert_allclose(counts / 2000, literal, atol=0.025)


@pytest.mark.parametrize("block_size", [1, 16])
def test_three_pivots_have_the_distribution_of_one_by_one_drawing(block_size):
    # The third is where rejections matter: two of a block may be near each other.
    X = np.array([[0.0], [0.1], [1.0], [3.0], [3.1]])
    K = Gaussian(1.0)(X, X)
    literal = np.zeros((5, 5, 5))
    for i, j in itertools.permutations(range(5), 2):
        first = K - np.outer(K[i], K[i]) / K[i, i]
        second = first - np.outer(first[j], first[j]) / first[j, j]
        chances = np.diag(second).clip(0)
        chances[[i, j]] = 0
        literal[i, j] = first[j, j] / np.trace(first) / 5 * chances / chances.sum()
    draws, rng, passes = 3000, np.random.default_rng(1), passes_of(X)
    counts = np.zeros((5, 5, 5))
    for _ in range(draws):
        counts[tuple(RPCholesky(block_size=block_size).select(passes, 3, Gaussian(1.0), rng).indices)] += 1
    likely = draws * literal >= 5
    rest = [counts[~likely].sum()], [draws * literal[~likely].sum()]
    found, expected = np.append(counts[likely], rest[0]), np.append(draws * literal[likely], rest[1])
    assert scipy.stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 1e-3


def test_randomly_pivoted_cholesky_explains_a_low_rank_kernel_fully_and_then_stops():
    X = np.random.default_rng(0).standard_normal((300, 3))
    with pytest.warns(UserWarning, match="Found 3 landmarks where 10"):
        found = select_landmarks(X, 10, method="rpcholesky", kernel="linear", random_state=0)
    Z = found.points
    np.testing.assert_allclose((X @ Z.T) @ np.linalg.pinv(Z @ Z.T) @ (Z @ X.T), X @ X.T, atol=1e-10)


@pytest.mark.parametrize("block_size", [1, 64])
def test_distant_rows_have_the_distribution_of_kmeans_plus_plus(block_size):
    X = np.array([[0.0], [1.0], [4.0], [4.5]])
    squares = np.square(X - X.T)
    literal = squares / squares.sum(axis=1, keepdims=True) / 4
    counts = np.zeros((4, 4))
    rng = np.random.default_rng(block_size)
    passes = passes_of(X)
    for _ in range(2000):
        first, second = KMeansPlusPlus(block_size=block_size).select(passes, 2, Gaussian(), rng).indices
        counts[first, second] += 1
    np.testing.assert_allclose(counts / 2000, literal, atol=0.025)


def test_distant_rows_spread_as_widely_as_those_of_scikit_learn():
    X = np.random.default_rng(0).standard_normal((800, 5)).astype(np.float32) + 100

    def inertia(Z):
        return np.square(X[:, None] - Z[None]).sum(axis=2).min(axis=1).sum()

    ours = [inertia(select_landmarks(X, 30, method="kmeans++", random_state=s).points) for s in range(6)]
    theirs = [inertia(kmeans_plusplus(X, 30, random_state=s, n_local_trials=1)[0]) for s in range(6)]
    assert np.mean(ours) < 1.1 * np.mean(theirs)
