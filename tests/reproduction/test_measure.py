"""Errors from rows of K are those of the whole matrix."""

import numpy as np
import pytest

from nystrom.kernels import Gaussian
from reproduction import measure
from reproduction.measure import KernelRows, RidgeAnswer

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 5))
KERNEL = Gaussian(0.1)
K = KERNEL(X, X)


def some_factor(r, seed=0):
    values, vectors = np.linalg.eigh(K)
    noise = 0.05 * np.random.default_rng(seed).standard_normal((len(K), r))
    return vectors[:, -r:] * np.sqrt(values[-r:]) + noise


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_error_of_several_factors_is_the_dense_formula_for_each(dtype, monkeypatch):
    monkeypatch.setattr(measure, "_DOUBLE_ROWS", 0 if dtype == np.float32 else 9000)
    factors = [some_factor(2), some_factor(7, 1)]
    rows = KernelRows(X.astype(dtype), KERNEL)
    assert rows.dtype == dtype
    for L, found in zip(factors, rows.errors(factors), strict=True):
        expected = np.linalg.norm(K - L @ L.T) / np.linalg.norm(K)
        assert found.value == pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)
        assert found.low == found.value == found.high


def test_the_interval_from_sampled_rows_holds_the_exact_error_almost_always(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLED_ROWS", 100)
    L = some_factor(3)
    exact = KernelRows(X, KERNEL).errors([L])[0].value
    found = [KernelRows(X, KERNEL, exact_rows=10, seed=seed).errors([L])[0] for seed in range(60)]
    inside = sum(estimate.low <= exact <= estimate.high for estimate in found)
    assert inside >= 51  # 95 % of 60 is 57; below 51 has probability under 1e-2 even at 92 %
    assert all(estimate.low < estimate.value < estimate.high for estimate in found)


@pytest.mark.parametrize("rank", [3, 40, 120])
def test_the_best_approximation_is_that_of_the_full_eigendecomposition(rank):
    values = np.linalg.eigvalsh(K)[::-1]
    rows = KernelRows(X, KERNEL)
    found, vectors = rows.best(rank)
    np.testing.assert_allclose(found, values[:rank], atol=1e-6 * values[0])
    assert rows.best_error(found) == pytest.approx(
        np.sqrt(np.square(values[rank:]).sum() / np.square(values).sum()), abs=1e-5
    )
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-8)


def test_the_dual_of_an_exact_factor_is_exact_and_that_of_none_is_the_target_over_lambda():
    y = RNG.standard_normal(300)
    answer = RidgeAnswer(K, y, 0.25)
    np.testing.assert_allclose((K + 0.25 * np.eye(300)) @ answer.alpha, y, atol=1e-9)
    values, vectors = np.linalg.eigh(K)
    assert answer.error(vectors * np.sqrt(np.maximum(values, 0))) < 1e-9
    nothing = np.linalg.norm(4 * y - answer.alpha) / np.linalg.norm(answer.alpha)
    assert answer.error(np.zeros((300, 1))) == pytest.approx(nothing)
