"""The accuracy of distances and products, seen through the kernels that use them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import pairwise

from nystrom.engine.passes import block_moments
from nystrom.kernels import Cosine, Gaussian, Laplacian, Matern
from nystrom.kernels.pairwise import Exponents


def literal_gaussian(X, Z, gamma):
    difference = X[:, None].astype(np.float64) - Z[None].astype(np.float64)
    return np.exp(-gamma * (difference**2).sum(axis=2))


def assert_near(actual, expected, dtype, factor=50):
    tolerance = factor * np.finfo(dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * max(1, abs(expected).max()))


def test_unsorted_sparse_indices_are_neither_trusted_nor_sorted_in_place():
    A = sp.csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    values = Laplacian(1.0)(A, A)
    np.testing.assert_array_equal(A.indices, [2, 0, 1])
    np.testing.assert_allclose(values, pairwise.laplacian_kernel(A.toarray(), gamma=1.0))


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kernel", [Gaussian, lambda gamma: Matern(2.5, gamma)])
def test_float32_rows_far_from_the_origin_lose_no_accuracy(offset, container, kernel):
    X = (np.random.default_rng(0).normal(size=(200, 20)) + offset).astype(np.float32)
    Z, moments = X[:30], block_moments(X)
    resolved = kernel("scale").resolve(moments)
    expected = resolved(X.astype(np.float64) - X[0], Z.astype(np.float64) - X[0])
    for center in (None, moments.mean):
        values = resolved.prepare(container(Z), center)(container(X))
        assert abs(values - expected).max() < 1e-5
        assert abs(np.diag(values) - 1).max() < 2e-6


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_equal_rows_have_kernel_one_even_far_out_and_for_narrow_kernels(container):
    X = np.random.default_rng(0).normal(size=(60, 10)).astype(np.float32)
    X[3] *= 1e4  # far beyond the others: its norm swamps every distance in float32
    values = Gaussian(0.1)(container(X), container(X))
    assert abs(np.diag(values) - 1).max() < 1e-5
    assert_near(values, literal_gaussian(X, X, 0.1), np.float32, 100)
    narrow = Gaussian(1e4)(container(X[:3]), container(X[:3]))
    np.testing.assert_allclose(narrow, np.eye(3), atol=1e-5)


def test_half_matern_is_accurate_for_nearly_equal_rows():
    X = np.random.default_rng(0).normal(size=(30, 4)) + 3
    Y = X + 1e-7
    expected = np.exp(-np.linalg.norm(X[:, None] - Y[None], axis=2))
    for left in (X, sp.csr_array(X)):
        for right in (Y, sp.csr_array(Y)):
            assert_near(Matern(0.5, 1.0)(left, right), expected, np.float64, 100)
    X32 = X.astype(np.float32)
    assert abs(np.diag(Matern(0.5, 1.0)(X32, X32)) - 1).max() <= np.finfo(np.float32).eps


def test_centring_is_skipped_where_it_gains_nothing():
    Z = np.random.default_rng(0).normal(size=(20, 5))
    assert Exponents(Z, 0.2)._centred(np.dtype(np.float64), False)[1] is None
    assert Exponents(Z + 100, 0.2)._centred(np.dtype(np.float64), False)[1] is not None
    assert Exponents(Z + 100, 0.2)._centred(np.dtype(np.float64), True)[1] is None


@settings(deadline=None)
@given(
    n=st.integers(1, 30),
    m=st.integers(1, 8),
    p=st.integers(1, 12),
    exponent=st.integers(-8, 8),
    offset=st.sampled_from([0.0, 1.0, 30.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    is_sparse=st.booleans(),
    seed=st.integers(0, 10),
)
def test_the_resolved_gaussian_ignores_the_scale_of_the_rows(n, m, p, exponent, offset, dtype, is_sparse, seed):
    X = ((np.random.default_rng(seed).normal(size=(n, p)) + offset) * 10.0**exponent).astype(dtype)
    Z = X[np.arange(m) % n]
    kernel = Gaussian().resolve(block_moments(X))
    values = kernel(sp.csr_array(X), Z) if is_sparse else kernel(X, Z)
    assert values.shape == (n, m)
    assert values.max() <= 1
    assert abs(values - literal_gaussian(X, Z, kernel.gamma)).max() < 200 * np.finfo(dtype).eps * (
        1 + is_sparse * (dtype is np.float64) * offset**2 * p * kernel.gamma * 10.0 ** (2 * exponent)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-25, 1e-8, 1e8, 1e17])
def test_kernels_without_units_work_at_any_scale(dtype, scale):
    X = np.random.default_rng(0).normal(size=(40, 6)).astype(dtype)
    moments, scaled_moments = block_moments(X), block_moments(X * dtype(scale))
    for kernel in (Gaussian(), Matern(0.5), Matern(2.5), Laplacian(), Cosine()):
        scaled = kernel.resolve(scaled_moments)(X * dtype(scale), X[:5] * dtype(scale))
        assert_near(scaled, kernel.resolve(moments)(X, X[:5]), dtype, 200)
