from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics import pairwise

from nystrom.engine.passes import block_moments
from nystrom.kernels import (
    Cosine,
    FromCallable,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Overlap,
    Polynomial,
    Precomputed,
    make_kernel,
)


def dot_of_vectors(x, y):
    return x @ y


def _matern(nu):
    return lambda A, B: gp.Matern(length_scale=1 / np.sqrt(0.3), nu=nu)(A, B)


def _of_norm(A, B, gamma, p, q):
    """Return exp(−(γ‖a − b‖_p)^q) in 40 digits, rounded at the end."""

    def value(a, b):
        total = mpmath.fsum(abs(mpmath.mpf(float(x)) - mpmath.mpf(float(y))) ** p for x, y in zip(a, b, strict=True))
        return float(mpmath.exp(-((gamma * total ** (mpmath.mpf(1) / p)) ** q)))

    with mpmath.workdps(40):
        return np.array([[value(a, b) for b in B] for a in A])


# Every kernel with the slow, literal or foreign form it must equal.
REFERENCES = {
    "gaussian": (Gaussian(0.3), lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3)),
    "gaussian-none": (Gaussian(None), pairwise.rbf_kernel),
    "laplacian": (Laplacian(0.3), lambda A, B: pairwise.laplacian_kernel(A, B, gamma=0.3)),
    "laplacian-none": (Laplacian(None), pairwise.laplacian_kernel),
    "laplacian-q": (Laplacian(0.3, 1, 0.4), lambda A, B: _of_norm(A, B, 0.3, 1, 0.4)),
    "laplacian-p=q": (Laplacian(0.3, 1.5, 1.5), lambda A, B: _of_norm(A, B, 0.3, 1.5, 1.5)),
    "laplacian-p-q": (Laplacian(0.3, 1.8, 0.7), lambda A, B: _of_norm(A, B, 0.3, 1.8, 0.7)),
    "laplacian-small-p": (Laplacian(0.3, 0.5, 0.3), lambda A, B: _of_norm(A, B, 0.3, 0.5, 0.3)),
    "laplacian-2-1": (Laplacian(np.sqrt(0.3), 2, 1), _matern(0.5)),
    "laplacian-2-2": (Laplacian(np.sqrt(0.3), 2, 2), lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3)),
    "laplacian-2-q": (Laplacian(0.3, 2, 0.7), lambda A, B: _of_norm(A, B, 0.3, 2, 0.7)),
    "matern-1/2": (Matern(0.5, 0.3), _matern(0.5)),
    "matern-3/2": (Matern(1.5, 0.3), _matern(1.5)),
    "matern-5/2": (Matern(2.5, 0.3), _matern(2.5)),
    "polynomial": (
        Polynomial(3, 0.3, 2.0),
        lambda A, B: pairwise.polynomial_kernel(A, B, degree=3, gamma=0.3, coef0=2.0),
    ),
    "polynomial-paper": (Polynomial(2), lambda A, B: (A @ B.T + 1) ** 2),
    "polynomial-none": (Polynomial(5, None, 0), lambda A, B: pairwise.polynomial_kernel(A, B, 5, None, 0)),
    "linear": (Linear(), pairwise.linear_kernel),
    "cosine": (Cosine(), pairwise.cosine_similarity),
    "sum": (Gaussian(0.3) + Linear(), lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3) + A @ B.T),
    "product": (Gaussian(0.3) * Linear(), lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3) * (A @ B.T)),
    "multiple": (2.5 * Linear(), lambda A, B: 2.5 * (A @ B.T)),
    "columns": (
        Gaussian(0.3).on([2, 0]) * Polynomial(2, None).on(slice(3, None)) + Linear().on([False] * 5 + [True]),
        lambda A, B: (
            pairwise.rbf_kernel(A[:, [0, 2]], B[:, [0, 2]], gamma=0.3) * (A[:, 3:] @ B[:, 3:].T / 3 + 1) ** 2
            + np.outer(A[:, 5], B[:, 5])
        ),
    ),
    "overlap": (Overlap(0.3), lambda A, B: np.exp(-0.3 * (A[:, None] != B).sum(axis=2))),
    "overlap-columns": (
        Overlap().on([0, 3]) * Gaussian(0.3).on([1, 2]),
        lambda A, B: (
            np.exp(-(A[:, None, [0, 3]] != B[:, [0, 3]]).sum(axis=2))
            * pairwise.rbf_kernel(A[:, [1, 2]], B[:, [1, 2]], gamma=0.3)
        ),
    ),
    "callable-matrices": (FromCallable(pairwise.linear_kernel), pairwise.linear_kernel),
    "callable-vectors": (FromCallable(dot_of_vectors), pairwise.linear_kernel),
}
every_kernel = pytest.mark.parametrize(("kernel", "reference"), REFERENCES.values(), ids=REFERENCES)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def make_rows(n=40, p=6, *, density=0.6, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, p)) * (rng.random((n, p)) < density)).astype(dtype)


def assert_near(actual, expected, dtype, factor=50):
    tolerance = factor * np.finfo(dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * max(1, abs(expected).max()))


@every_kernel
@both_dtypes
def test_every_kernel_equals_its_reference_and_keeps_the_dtype(kernel, reference, dtype):
    A, B = make_rows(dtype=dtype), make_rows(9, seed=1, dtype=dtype)
    values = kernel(A, B)
    assert values.dtype == dtype
    assert_near(values, reference(A.astype(np.float64), B.astype(np.float64)), dtype)


@every_kernel
def test_every_kernel_is_symmetric_and_positive_semidefinite(kernel, reference):
    A = make_rows()
    K = kernel(A, A)
    assert_near(K, K.T, np.float64)
    assert np.linalg.eigvalsh((K + K.T) / 2).min() >= -1e-12 * np.trace(K)


@every_kernel
@both_dtypes
@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array])
def test_sparse_dense_and_mixed_rows_give_the_same_values(kernel, reference, dtype, container):
    A, B = make_rows(dtype=dtype, density=0.2), make_rows(7, dtype=dtype, density=0.2, seed=1)
    expected = kernel(A.astype(np.float64), B.astype(np.float64))
    for left, right in [(container(A), container(B)), (A, container(B)), (container(A), B)]:
        values = kernel(left, right)
        assert isinstance(values, np.ndarray)
        assert values.dtype == dtype
        assert_near(values, expected, dtype)
        np.testing.assert_allclose(kernel.diag(left), kernel.diag(A), rtol=100 * np.finfo(dtype).eps)


@every_kernel
def test_landmarks_too_wide_to_be_made_dense_give_the_same_values(kernel, reference, monkeypatch):
    monkeypatch.setattr("nystrom.kernels.pairwise._DENSE_BYTES", 0)
    A, B = make_rows(density=0.2), make_rows(7, density=0.2, seed=1)
    expected = kernel(A, B)
    for left in (A, sp.csr_array(A)):
        values = kernel(left, sp.csr_array(B))
        assert values.flags.c_contiguous
        assert_near(values, expected, np.float64)


@every_kernel
@both_dtypes
def test_the_diagonal_is_that_of_the_matrix_in_float64(kernel, reference, dtype):
    A = make_rows(37, dtype=dtype)
    diagonal = kernel.diag(A, start=5)
    assert diagonal.dtype == np.float64
    assert_near(diagonal, np.diag(kernel(A, A)).astype(np.float64), dtype)


@every_kernel
def test_a_prepared_kernel_serves_blocks_of_any_dtype_from_many_threads(kernel, reference):
    Z, X = make_rows(5, seed=1), make_rows(64)
    prepared = pickle.loads(pickle.dumps(kernel.prepare(Z, X.mean(axis=0))))
    blocks = [X[i : i + 8].astype(dtype) for i in range(0, 64, 8) for dtype in (np.float32, np.float64)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(prepared, blocks))
    for block, result in zip(blocks, results, strict=True):
        assert result.dtype == block.dtype
        assert_near(result, kernel(block.astype(np.float64), Z), block.dtype)


@every_kernel
def test_kernels_survive_pickling_copying_and_cloning(kernel, reference):
    class Estimator(BaseEstimator):
        def __init__(self, kernel=None):
            self.kernel = kernel

    for twin in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        assert twin == kernel
        assert hash(twin) == hash(kernel)
    assert clone(Estimator(kernel)).kernel == kernel


@every_kernel
def test_calling_a_kernel_leaves_the_arguments_as_they_were(kernel, reference):
    A, B = make_rows() + 50.0, sp.csr_array(make_rows(4, seed=1))
    before, sparse_before = A.copy(), B.copy()
    kernel(A, A[:3])
    kernel(A, B)
    kernel(B, A)
    kernel.diag(A)
    np.testing.assert_array_equal(A, before)
    np.testing.assert_array_equal(B.toarray(), sparse_before.toarray())


def test_zero_rows_have_cosine_zero():
    A = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(Cosine()(A, A), [[0, 0], [0, 1]], atol=1e-15)
    np.testing.assert_array_equal(Cosine().diag(A), [0, 1])


def test_scale_is_the_papers_bandwidth():
    X = make_rows(50, 4) * 3 + 1
    moments = block_moments(X)
    spread = ((X - X.mean(axis=0)) ** 2).sum() / 50
    assert Gaussian().resolve(moments).gamma == pytest.approx(1 / spread)
    assert Matern(2.5).resolve(moments) == Matern(2.5, 1 / moments.spread)
    assert Laplacian().resolve(moments).gamma == pytest.approx(1 / np.sqrt(4 * spread))
    assert Polynomial().resolve(moments) == Polynomial(3, 1.0, 1)
    assert Gaussian(None).resolve(moments).gamma == 0.25
    assert type(Gaussian(2).resolve(moments).gamma) is float
    both = 2.0 * (Gaussian() + Linear()) * Laplacian()
    assert both.needs_moments
    assert not both.resolve(moments).needs_moments
    assert not (Polynomial() + Gaussian(None)).needs_moments


def test_equal_rows_resolve_to_bandwidth_one():
    moments = block_moments(np.full((5, 3), 7.0))
    assert Gaussian().resolve(moments).gamma == Laplacian().resolve(moments).gamma == 1.0


def test_composition_obeys_the_laws_of_arithmetic():
    A, B = make_rows(), make_rows(6, seed=1)
    k1, k2, k3 = Gaussian(0.5), Polynomial(2), Cosine()

    def assert_equal(left, right):
        np.testing.assert_allclose(left(A, B), right(A, B), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(left.diag(A), right.diag(A), rtol=1e-12)

    assert_equal(k1 + k2, k2 + k1)
    assert_equal(k1 * k2, k2 * k1)
    assert_equal((k1 + k2) + k3, k1 + (k2 + k3))
    assert_equal(k3 * (k1 + k2), k3 * k1 + k3 * k2)
    assert_equal(k1 + k1, 2 * k1)
    assert_equal(np.float64(3.0) * k1, k1 * 3)
    assert_equal(reduce(lambda a, b: a * b, [Linear()] * 3), Polynomial(3, coef0=0))


def test_representations_read_like_the_expression():
    kernel = 2.0 * (Gaussian(0.5) + Linear()) * Matern(gamma=1.0)
    assert repr(kernel) == "2.0 * (Gaussian(gamma=0.5) + Linear()) * Matern(nu=1.5, gamma=1.0)"
    assert eval(repr(kernel)) == kernel


@pytest.mark.parametrize("factor", [0, -1.0, np.inf, np.nan])
def test_only_positive_multiples_are_kernels(factor):
    with pytest.raises(ValueError, match="positive finite number only; got"):
        factor * Gaussian(1.0)


def test_kernels_combine_with_kernels_and_numbers_only():
    with pytest.raises(TypeError, match="unsupported operand"):
        Gaussian() + 1
    with pytest.raises(TypeError, match="unsupported operand"):
        Gaussian() * object()


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_both_forms_of_callable_are_told_apart_for_any_shape(n, p):
    X = make_rows(n, p, density=1)
    functions = {
        pairwise.linear_kernel: Linear(),
        dot_of_vectors: Linear(),
        (lambda x, y: np.exp(-np.sum((x - y) ** 2))): Gaussian(1.0),
        (lambda A, B: sp.csr_array(A @ B.T)): Linear(),
        gp.RBF(length_scale=np.sqrt(0.5)).__call__: Gaussian(1.0),
    }
    for function, same in functions.items():
        np.testing.assert_allclose(FromCallable(function)(X, X), same(X, X), atol=1e-12)
        np.testing.assert_allclose(FromCallable(function).diag(X), same.diag(X), atol=1e-12)


def test_a_gaussian_process_kernel_has_the_diagonal_of_its_matrix():
    noisy = FromCallable(gp.RBF() + gp.WhiteKernel(0.5))
    np.testing.assert_allclose(noisy.diag(make_rows(20)), np.ones(20))


def test_a_callable_of_neither_form_is_refused_with_both_reasons():
    with pytest.raises(TypeError, match=r"returned shape \(\).*result for two vectors has shape \(2,\)"):
        FromCallable(lambda x, y: 1.0 if x.ndim == 2 else np.ones(2))(make_rows(), make_rows())
    with pytest.raises(ValueError, match=r"gave shape \(2, 3\) for 40 and 40 rows"):
        FromCallable(lambda A, B: np.ones((2, 3)))(make_rows(), make_rows())
    with pytest.raises(TypeError, match="function must be callable; got 3"):
        FromCallable(3)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_precomputed_takes_columns_and_the_shifted_diagonal(container):
    X = make_rows(12)
    K = Gaussian(0.5)(X, X) * np.arange(1, 13)[:, None] * np.arange(1, 13)
    kernel = Precomputed().at(np.array([3, 8]))
    np.testing.assert_array_equal(kernel.prepare(container(K[[3, 8]]))(container(K)), K[:, [3, 8]])
    np.testing.assert_array_equal(kernel(container(K[[3, 8]]), container(K[[3, 8]])), K[np.ix_([3, 8], [3, 8])])
    np.testing.assert_array_equal(kernel.diag(container(K[4:9]), start=4), np.diag(K)[4:9])
    assert kernel == pickle.loads(pickle.dumps(kernel)) == Precomputed([3, 8])
    assert hash(kernel) == hash(Precomputed((3, 8)))


def test_precomputed_says_what_it_lacks():
    K = np.eye(5)
    with pytest.raises(ValueError, match="row number of each of the 2 landmarks; none given"):
        Precomputed()(K, K[:2])
    with pytest.raises(ValueError, match="row number of each of the 2 landmarks; 1 given"):
        Precomputed([0])(K, K[:2])
    with pytest.raises(ValueError, match="Rows 3 to 6 of a precomputed kernel with 5 columns have no diagonal"):
        Precomputed().diag(K[:4], start=3)
    with pytest.raises(ValueError, match="have 3 columns, but a landmark is row 4"):
        Precomputed([4])(K[:, :3], K[[4]])


def test_make_kernel_knows_every_name():
    names = {
        "gaussian": Gaussian(0.5),
        "rbf": Gaussian(0.5),
        "polynomial": Polynomial(2, 0.5, 3),
        "poly": Polynomial(2, 0.5, 3),
        "linear": Linear(),
        "laplacian": Laplacian(0.5),
        "matern": Matern(1.5, 0.5),
        "cosine": Cosine(),
        "precomputed": Precomputed(),
    }
    for name, kernel in names.items():
        assert make_kernel(name, gamma=0.5, degree=2, coef0=3) == kernel
    assert make_kernel("rbf") == Gaussian("scale")
    own = Gaussian(3.0)
    assert make_kernel(own, gamma=0.5) is own
    assert make_kernel(dot_of_vectors) == FromCallable(dot_of_vectors)


def test_make_kernel_lists_what_is_allowed():
    with pytest.raises(ValueError, match=r"'gaussian', 'rbf', .*'precomputed'.*a callable; got 'tanh'"):
        make_kernel("tanh")
    with pytest.raises(TypeError, match=r"one of 'gaussian'.* got 3"):
        make_kernel(3)
    with pytest.raises(TypeError, match=r"not the class Gaussian; use Gaussian\(\)"):
        make_kernel(Gaussian)


@pytest.mark.parametrize("gamma", [[0.0], [-1.0, 1.0], [np.nan], np.array([np.inf, 1.0])])
def test_a_wrong_bandwidth_per_column_is_refused_at_once(gamma):
    with pytest.raises(ValueError, match="gamma as an array must have one finite number for each column"):
        make_kernel("gaussian", gamma=gamma)


@pytest.mark.parametrize("gamma", [0, -1.0, np.inf, np.nan, "auto", True, 1j])
def test_a_wrong_gamma_is_refused_at_once(gamma):
    for build in (Gaussian, Laplacian, Overlap, lambda g: Matern(gamma=g), lambda g: Polynomial(gamma=g)):
        with pytest.raises(ValueError, match=r"gamma must be 'scale', None .* positive finite number; got"):
            build(gamma)
    with pytest.raises(ValueError, match="gamma must be"):
        make_kernel("linear", gamma=gamma)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Laplacian(p=3), "0 < q ≤ p ≤ 2, .* got p=3, q=1"),
        (lambda: Laplacian(p=1, q=1.5), "0 < q ≤ p ≤ 2, .* got p=1, q=1.5"),
        (lambda: Laplacian(q=0), "0 < q ≤ p ≤ 2, .* got p=1, q=0"),
        (lambda: Laplacian(p=np.nan), "0 < q ≤ p ≤ 2, .* got p=nan"),
        (lambda: Laplacian(p="1"), "0 < q ≤ p ≤ 2, .* got p='1'"),
        (lambda: Matern(nu=2), "nu must be 0.5, 1.5 or 2.5; got 2"),
        (lambda: Polynomial(degree=0), "degree must be a whole number, 1 or more; got 0"),
        (lambda: Polynomial(degree=2.5), "degree must be a whole number, 1 or more; got 2.5"),
        (lambda: Polynomial(degree="3"), "degree must be a whole number, 1 or more; got '3'"),
        (lambda: Polynomial(degree=np.inf), "degree must be a whole number, 1 or more; got inf"),
        (lambda: Polynomial(coef0=-1), "coef0 must be a finite number, 0 or more; got -1"),
        (lambda: Gaussian()(np.eye(2), np.eye(2)), "no bandwidth yet: gamma='scale'"),
        (lambda: Gaussian(1.0)(np.eye(2), np.eye(3)), "rows have 2 columns, .* have 3"),
        (lambda: Gaussian(1.0)(np.ones(2), np.eye(2)), r"A must have two dimensions .* shape \(2,\)"),
        (lambda: Gaussian().resolve(block_moments(np.array([[1e200], [0.0]]))), "inf is too large for that"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_wrong_values_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_whole_numbers_are_taken_as_rows():
    assert_near(Gaussian(0.5)([[1], [2]], [[1]]), np.exp([[0.0], [-0.5]]), np.float64)


def test_kernel_itself_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Kernel()
