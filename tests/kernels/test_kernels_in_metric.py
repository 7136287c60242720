"""Kernels in a metric: the kernel of transformed rows, in every container, and one bandwidth per column."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom.kernels import Cosine, Gaussian, InMetric, Laplacian, Matern, Polynomial, make_kernel, to_metric

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(30, 4)), RNG.normal(size=(7, 4))
SCALES = np.array([0.5, 2.0, 0.0, 1.0])
MATRIX = RNG.normal(size=(4, 4))
INNER = [Gaussian(0.3), Matern(0.5, 0.3), Laplacian(0.3), Polynomial(2, 0.3), Cosine(), Gaussian(0.3) * Gaussian(0.1)]


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("root", [SCALES, MATRIX])
def test_a_kernel_in_a_metric_is_the_kernel_of_transformed_rows(inner, root):
    A = np.diag(root) if root.ndim == 1 else root
    kernel = InMetric(inner, root)
    np.testing.assert_allclose(kernel(X, Z), inner(X @ A, Z @ A), atol=1e-12)
    np.testing.assert_allclose(kernel.prepare(Z, Z.mean(axis=0))(X), kernel(X, Z), atol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), inner.diag(X @ A), atol=1e-12)
    assert kernel(X.astype(np.float32), Z.astype(np.float32)).dtype == np.float32


def test_sparse_rows_take_scales_and_stay_as_they_are():
    S = sp.random(30, 4, 0.5, format="csr", random_state=0)
    before = S.copy()
    kernel = InMetric(Gaussian(0.3), SCALES)
    np.testing.assert_allclose(kernel(S, Z), kernel(S.toarray(), Z), atol=1e-12)
    np.testing.assert_array_equal(S.toarray(), before.toarray())
    with pytest.raises(ValueError, match="sparse rows allow a diagonal metric"):
        InMetric(Gaussian(0.3), MATRIX)(S, Z)


def test_equal_metrics_make_equal_kernels():
    a, b = InMetric(Gaussian(0.3), SCALES), InMetric(Gaussian(0.3), SCALES.copy())
    assert a == b
    assert hash(a) == hash(b)
    assert a != InMetric(Gaussian(0.3), 2 * SCALES)
    assert a != Gaussian(0.3)
    assert pickle.loads(pickle.dumps(a)) == a


def test_the_metric_is_a_copy():
    scales = SCALES.copy()
    kernel = InMetric(Gaussian(0.3), scales)
    scales[:] = 7
    np.testing.assert_array_equal(kernel.root, SCALES)


@pytest.mark.parametrize(("name", "power"), [("gaussian", 2), ("laplacian", 1)])
def test_gamma_for_each_column_weighs_its_differences(name, power):
    gamma = [0.5, 0.0, 2.0, 1.0]
    expected = np.exp(-(np.abs(X[:, None] - Z) ** power * gamma).sum(axis=2))
    np.testing.assert_allclose(make_kernel(name, gamma=gamma)(X, Z), expected, atol=1e-12)


@pytest.mark.parametrize("gamma", [[], [1.0, -1.0], [np.nan], [0.0, 0.0], [["a"]]])
def test_wrong_bandwidths_are_named(gamma):
    with pytest.raises(ValueError, match="gamma as an array must have one finite number for each column"):
        make_kernel("gaussian", gamma=gamma)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="kernel='linear' has no bandwidth"):
        make_kernel("linear", gamma=[1.0, 2.0])
    with pytest.raises(ValueError, match="for rows of 4 columns; these have 3"):
        to_metric(X[:, :3], SCALES)
    with pytest.raises(ValueError, match="one finite scale per column"):
        InMetric(Gaussian(1.0), np.array([np.nan]))


@pytest.mark.parametrize("root", [SCALES, MATRIX])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16])
def test_rows_of_integers_do_not_round_the_metric(root, dtype):
    rows = RNG.integers(0, 5, (20, 4)).astype(dtype)
    kernel = InMetric(Gaussian(0.3), root)
    for as_given in (rows, sp.csr_matrix(rows.astype(np.float64)).astype(np.int64) if root.ndim == 1 else rows):
        exact = as_given.astype(np.float64)
        np.testing.assert_array_equal(kernel(as_given, as_given), kernel(exact, exact))
        np.testing.assert_array_equal(kernel.diag(as_given), kernel.diag(exact))


@pytest.mark.parametrize("root", [SCALES, MATRIX])
@pytest.mark.parametrize("inner", [*INNER[:3], Gaussian(0.3) + Matern(1.5, 0.1)])
@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_float32_rows_far_from_the_origin_keep_their_digits(root, inner, offset):
    rows = (RNG.normal(size=(30, 4)) + offset).astype(np.float32)
    kernel, exact = InMetric(inner, root), rows.astype(np.float64)
    near = exact - offset
    np.testing.assert_allclose(kernel(rows, rows), kernel(near, near), atol=2e-6)
