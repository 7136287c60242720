"""The chi-squared and sigmoid kernels: scikit-learn's values, an inner product or a clear refusal."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import chi2_kernel, sigmoid_kernel

from nystrom import Nystroem
from nystrom.exceptions import NotPositiveSemidefiniteError
from nystrom.kernels import AdditiveChi2, Chi2, Sigmoid

RNG = np.random.default_rng(0)
A, B = RNG.gamma(1.0, size=(40, 6)), RNG.gamma(1.0, size=(30, 6))
A[:, 2] = 0  # a bin that is empty everywhere must not divide by zero
B[:, 2] = 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_chi2_equals_scikit_learns(dtype, gamma):
    found = Chi2(gamma)(A.astype(dtype), B)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, chi2_kernel(A, B, gamma=gamma), rtol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(np.diag(Chi2(gamma)(A, A)), Chi2(gamma).diag(A))


def test_additive_chi2_is_its_sum():
    total = np.zeros((40, 30))
    for a, b in zip(A.T, B.T, strict=True):
        both = a[:, None] + b
        total += np.divide(2 * np.outer(a, b), both, out=np.zeros_like(both), where=both > 0)
    np.testing.assert_allclose(AdditiveChi2()(A, B), total, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(np.diag(AdditiveChi2()(A, A)), AdditiveChi2().diag(A))


def test_sigmoid_equals_scikit_learns():
    np.testing.assert_allclose(Sigmoid()(A, B), sigmoid_kernel(A, B), rtol=1e-12)
    np.testing.assert_allclose(np.diag(Sigmoid(0.2, 0.5)(A, A)), Sigmoid(0.2, 0.5).diag(A), rtol=1e-12)


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
def test_the_map_is_exact_when_every_row_is_a_landmark(kernel):
    model = Nystroem(kernel, n_components=None, landmarks=A).fit(A)
    L = model.transform(A)
    np.testing.assert_allclose(L @ L.T, model.kernel_(A, A), atol=1e-6)


def test_a_sigmoid_kernel_that_is_no_inner_product_is_refused():
    X = RNG.normal(size=(300, 5))
    with pytest.raises(NotPositiveSemidefiniteError, match="not positive semidefinite"):
        Nystroem(Sigmoid(1.0, -1.0), n_components=20, random_state=0).fit(X)


@pytest.mark.parametrize("kernel", [Chi2(), AdditiveChi2()])
def test_negative_entries_and_sparse_rows_are_named(kernel):
    with pytest.raises(ValueError, match="without negative entries"):
        kernel(A - 5, B)
    with pytest.raises(TypeError, match="need dense rows"):
        kernel(sp.csr_matrix(A), B)


@pytest.mark.parametrize("kernel", [Chi2(), AdditiveChi2()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_below_zero_by_rounding_are_zero(kernel, dtype):
    A = np.array([[0.5, 0.0], [0.25, 0.75]], dtype=dtype)
    rounded = A.copy()
    rounded[0, 1] = -4 * np.finfo(dtype).eps * 0.75
    np.testing.assert_array_equal(kernel(rounded, rounded), kernel(A, A))
    rounded[0, 1] = -1e-3
    with pytest.raises(ValueError, match="without negative entries"):
        kernel(rounded, A)
