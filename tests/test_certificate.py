"""Errors without K, against errors with it."""

import numpy as np
import pytest

from nystrom import certificate
from nystrom.certificate import certify, frobenius_error, spectral_error, trace_error
from nystrom.engine import LocalEngine
from nystrom.engine.survey import Survey
from nystrom.factor import optimal, standard
from nystrom.kernels import Gaussian, Polynomial, Precomputed
from nystrom.landmarks.base import Landmarks
from nystrom.rows import as_blocks


def clusters(n, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(8, 5))[rng.integers(8, size=n)] * 3 + rng.normal(size=(n, 5))).astype(dtype)


def fit(X, m=20, rank=10, kernel=None, factor=optimal):
    return factor(Survey(as_blocks(X), LocalEngine(1)), kernel or Gaussian(0.05), Landmarks(X[:m]), rank)


def exact(X, fitted, order):
    K = fitted.kernel(X, X)
    L = fitted.features(X).astype(np.float64)
    return np.linalg.norm(K - L @ L.T, order) / np.linalg.norm(K, order)


@pytest.mark.parametrize("factor", [optimal, standard])
def test_the_certificate_is_the_trace_norm(factor):
    X = clusters(300)
    fitted = fit(X, factor=factor)
    assert certify(fitted).trace.value == pytest.approx(exact(X, fitted, "nuc"), rel=1e-9)
    assert trace_error(as_blocks(X), fitted, LocalEngine(2)).value == pytest.approx(exact(X, fitted, "nuc"), rel=1e-9)


@pytest.mark.parametrize("kernel", [Gaussian(0.05), Polynomial(degree=2)])
def test_few_rows_give_exact_errors(kernel):
    X = clusters(400)
    fitted = fit(X, kernel=kernel)
    rng = np.random.default_rng(0)
    found = frobenius_error(as_blocks(X), fitted, LocalEngine(2), rng=rng)
    assert found.low == found.value == found.high == pytest.approx(exact(X, fitted, "fro"), rel=1e-9)
    assert spectral_error(as_blocks(X), fitted, rng=rng).value == pytest.approx(exact(X, fitted, 2), rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_interval_holds_the_error_as_often_as_it_says(monkeypatch, dtype):
    monkeypatch.setattr(certificate, "_EXACT_ROWS", 0)
    X = clusters(1500, dtype=dtype)
    fitted = fit(X)
    true = exact(X.astype(np.float64), fitted, "fro")
    found = [
        frobenius_error(as_blocks(X), fitted, LocalEngine(2), rng=np.random.default_rng(seed), n_pairs=4000)
        for seed in range(60)
    ]
    assert sum(e.low <= true <= e.high for e in found) >= 50  # 57 expected; below 50 has probability 1e-3
    assert np.mean([e.value for e in found]) == pytest.approx(true, rel=0.02)


def test_many_pairs_give_a_narrow_interval(monkeypatch):
    monkeypatch.setattr(certificate, "_EXACT_ROWS", 0)
    X = clusters(1500)
    found = frobenius_error(as_blocks(X), fit(X), LocalEngine(2), rng=np.random.default_rng(0))
    assert (found.high - found.low) / found.value < 0.05


def test_a_precomputed_kernel_has_the_same_error(monkeypatch):
    monkeypatch.setattr(certificate, "_EXACT_ROWS", 0)
    X = clusters(500)
    K = Gaussian(0.05)(X, X)
    rows = as_blocks(K)
    fitted = optimal(Survey(rows, LocalEngine(1)), Precomputed(), Landmarks(K[:20], np.arange(20)), 10)
    found = frobenius_error(rows, fitted, LocalEngine(2), rng=np.random.default_rng(0))
    true = exact(X, fit(X), "fro")
    assert found.low <= true <= found.high


def test_an_exact_error_says_so():
    X = clusters(50)
    assert "exact" in str(certify(fit(X)).trace)
    assert "95%" in str(certificate.ErrorEstimate(0.1, 0.09, 0.11, "fro", 0.95))
