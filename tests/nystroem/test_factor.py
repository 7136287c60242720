"""Both factorisations against the paper's own words, slow references and the laws they obey."""

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nystrom import Nystroem, kernel_eigh
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.errors import certify
from nystrom.kernels import Gaussian, Linear, Polynomial
from nystrom.landmarks.base import Landmarks
from nystrom.nystroem import factor as factors
from nystrom.nystroem.factor import naive_eigh, optimal, orthonormal_eigh, prepare, standard
from nystrom.rows import as_blocks

FACTORS = [standard, optimal]


def passes_of(X, n_jobs=1, block_rows=None):
    return Passes(as_blocks(X, block_rows=block_rows), LocalEngine(n_jobs))


def fit(factor, X, Z, rank, kernel=None, **options):
    return factor(passes_of(X, **options), kernel or Gaussian(0.3), Landmarks(Z), rank)


def approximation(fitted, X):
    L = fitted.features(X).astype(np.float64)
    return L @ L.T


def literal_algorithm_1(K_XZ, W, rank):
    values, V = np.linalg.eigh(W)
    values, V = values[::-1][:rank], V[:, ::-1][:, :rank]
    L = K_XZ @ V / np.sqrt(values)
    return L @ L.T


def literal_algorithm_2(K_XZ, W, rank):
    Q, R = np.linalg.qr(K_XZ)
    values, V = np.linalg.eigh(R @ np.linalg.pinv(W, hermitian=True) @ R.T)
    values, V = values[::-1][:rank], V[:, ::-1][:, :rank]
    return (Q @ V * values) @ (Q @ V).T


def relative(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


def test_the_toy_of_the_paper_gives_its_errors():
    X = np.array([[1, 0, 1], [0, np.sqrt(2.02), 0], [10, 0, 10]]) / np.sqrt(2)
    K = X @ X.T
    for factor, error in ((standard, 0.99995), (optimal, 0.0099995)):
        G = approximation(fit(factor, X, X[:2], 1, Linear()), X)
        assert relative(G, K) == pytest.approx(error, abs=5e-8 if error < 0.1 else 5e-6)


def rings(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    radius = np.where(np.arange(n) < n // 2, 1.0, 3.0) + 0.1 * rng.normal(size=n)
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([radius * np.cos(angle), 0.5 * radius * np.sin(angle)])


def test_the_quadratic_example_agrees_at_m_equal_r_and_is_exact_at_twice_that():
    X = rings()
    K = (X @ X.T) ** 2
    values = scipy.linalg.eigh(K, eigvals_only=True, subset_by_index=[3997, 3999])
    best = values[0] / np.linalg.norm(K)
    kernel = Polynomial(degree=2, coef0=0)
    Z = X[np.random.default_rng(3).choice(4000, 4, replace=False)]
    low = [relative(approximation(fit(f, X, Z[:2], 2, kernel), X), K) for f in FACTORS]
    assert low[0] == pytest.approx(low[1], rel=1e-10)
    high = relative(approximation(fit(optimal, X, Z, 2, kernel), X), K)
    assert high == pytest.approx(best, rel=1e-10)
    assert relative(approximation(fit(standard, X, Z, 2, kernel), X), K) > high


@pytest.mark.parametrize(("factor", "literal"), [(standard, literal_algorithm_1), (optimal, literal_algorithm_2)])
@pytest.mark.parametrize("rank", [1, 4, 12])
def test_each_factor_equals_its_literal_algorithm(factor, literal, rank):
    rng = np.random.default_rng(4)
    X, Z = rng.normal(size=(150, 5)), rng.normal(size=(12, 5))
    kernel = Gaussian(0.3)
    assert relative(approximation(fit(factor, X, Z, rank), X), literal(kernel(X, Z), kernel(Z, Z), rank)) < 1e-10


def reference_gram(X, Z, gamma):
    """Return C W⁺ Cᵀ in 100 digits, where the landmarks' kernel is invertible."""
    with mpmath.workdps(100):

        def kernel(A, B):
            return mpmath.matrix(
                [
                    [
                        mpmath.exp(
                            -gamma
                            * sum((mpmath.mpf(float(a)) - mpmath.mpf(float(b))) ** 2 for a, b in zip(x, z, strict=True))
                        )
                        for z in B
                    ]
                    for x in A
                ]
            )

        W, C = kernel(Z, Z), kernel(X, Z)
        half = mpmath.cholesky(W)
        B = half**-1 * C.T
        G = B.T * B
        return np.array([[float(G[i, j]) for j in range(G.cols)] for i in range(G.rows)])


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_a_hopelessly_conditioned_kernel_keeps_its_digits(dtype, bound):
    Z = np.linspace(-1, 1, 20)[:, None].astype(dtype)
    X = np.linspace(-1.1, 1.1, 40)[:, None].astype(dtype)
    W = Gaussian(0.2)(Z.astype(np.float64), Z.astype(np.float64))
    assert np.linalg.cond(W) > 1e15  # float64 cannot say more; the true condition exceeds 1e20
    G = approximation(fit(optimal, X, Z, None, Gaussian(0.2)), X)
    assert relative(G, reference_gram(X, Z, 0.2)) < bound


@pytest.mark.parametrize("factor", FACTORS)
def test_landmarks_that_are_all_rows_give_the_kernel_exactly(factor):
    X = np.random.default_rng(5).normal(size=(60, 3))
    K = Gaussian(0.3)(X, X)
    assert relative(approximation(fit(factor, X, X, None), X), K) < 1e-10


@pytest.mark.parametrize("factor", FACTORS)
def test_the_approximation_interpolates_the_landmarks(factor):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(80, 4))
    fitted = fit(factor, X, X[:15], None)
    np.testing.assert_allclose(approximation(fitted, X)[:15, :15], Gaussian(0.3)(X[:15], X[:15]), atol=1e-9)


@pytest.mark.parametrize("factor", FACTORS)
def test_duplicate_landmarks_change_nothing(factor):
    rng = np.random.default_rng(7)
    X, Z = rng.normal(size=(100, 4)), rng.normal(size=(10, 4))
    once = approximation(fit(optimal, X, Z, None), X)
    twice = approximation(fit(factor, X, np.vstack([Z, Z]), None), X)
    assert relative(twice, once) < 1e-9


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_of_the_rows_cancels_with_the_bandwidth(factor, scale):
    rng = np.random.default_rng(8)
    X, Z = rng.normal(size=(100, 4)), rng.normal(size=(10, 4))
    plain = approximation(fit(factor, X, Z, 5), X)
    scaled = approximation(fit(factor, X * scale, Z * scale, 5, Gaussian(0.3 / scale**2)), X * scale)
    assert relative(scaled, plain) < 1e-9


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_of_an_inner_product_kernel_is_no_obstacle(scale):
    X = np.random.default_rng(9).normal(size=(100, 4)) * scale
    assert relative(approximation(fit(optimal, X, X[:10], None, Linear()), X), X @ X.T) < 1e-12


def test_a_rank_deficient_kernel_gives_fewer_columns():
    X = np.random.default_rng(10).normal(size=(50, 3))
    fitted = fit(optimal, X, X[:20], 10, Linear())
    assert fitted.n_components == 3
    assert len(fitted.eigenvalues) == 3


def test_a_kernel_that_is_zero_is_explained():
    with pytest.raises(ValueError, match="zero between all landmarks"):
        fit(optimal, np.zeros((5, 2)), np.zeros((2, 2)), 1, Linear())


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 30))
def test_in_trace_norm_optimal_is_never_worse_than_standard(seed, m, rank):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) * rng.uniform(0.1, 3, size=3)
    errors = [certify(fit(f, X, X[:m], min(rank, m))).trace_norm for f in FACTORS]
    assert errors[1] <= errors[0] + 1e-9 * 60


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(1, 20))
def test_in_trace_norm_more_landmarks_never_hurt(seed, m, more):
    X = np.random.default_rng(seed).normal(size=(60, 3))
    few, many = (certify(fit(optimal, X, X[:k], 2)).trace_norm for k in (m, m + more))
    assert many <= few + 1e-9 * 60


@pytest.mark.parametrize("factor", FACTORS)
def test_the_error_is_positive_semidefinite(factor):
    X = np.random.default_rng(11).normal(size=(80, 3))
    K = Gaussian(0.3)(X, X)
    G = approximation(fit(factor, X, X[:20], 7), X)
    assert np.linalg.eigvalsh(K - G)[0] > -1e-12


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("factor", FACTORS)
def test_the_result_is_the_same_bits_for_any_number_of_threads(factor, dtype):
    X = np.random.default_rng(12).normal(size=(3000, 6)).astype(dtype)
    fits = [fit(factor, X, X[:40], 20, n_jobs=j, block_rows=256) for j in (1, 2, 8)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].projection, other.projection)
        np.testing.assert_array_equal(fits[0].eigenvalues, other.eigenvalues)


@pytest.mark.parametrize("factor", FACTORS)
def test_block_sizes_and_containers_agree(factor):
    X = np.random.default_rng(13).normal(size=(700, 6))
    X[X < 0.3] = 0
    base = approximation(fit(factor, X, X[:30], 10), X)
    for rows, Z, size in (
        (X, X[:30], 100),
        (sp.csr_array(X), sp.csr_array(X[:30]), 64),
        (np.asfortranarray(X), X[:30], 333),
    ):
        # The condition of W is 2.5e7, so rounding alone may make 5e-9.
        assert relative(approximation(fit(factor, rows, Z, 10, block_rows=size), rows), base) < 1e-9


def test_float32_rows_give_float32_features_close_to_float64():
    X = np.random.default_rng(14).normal(size=(2000, 8))
    exact = approximation(fit(optimal, X, X[:50], 20, Gaussian(0.1)), X)
    X32 = X.astype(np.float32)
    fitted = fit(optimal, X32, X32[:50], 20, Gaussian(0.1))
    assert fitted.features(X32).dtype == np.float32
    assert relative(approximation(fitted, X32), exact) < 1e-5


@pytest.mark.parametrize("factor", FACTORS)
def test_eigenvectors_are_orthonormal_and_rebuild_the_approximation(factor):
    X = np.random.default_rng(15).normal(size=(500, 5))
    passes = passes_of(X)
    fitted = factor(passes, Gaussian(0.3), Landmarks(X[:40]), 12)
    values, U = orthonormal_eigh(passes, fitted)
    assert np.abs(U.T @ U - np.eye(12)).max() < 1e-14
    assert relative((U * values) @ U.T, approximation(fitted, X)) < 1e-9


def test_the_naive_estimate_follows_its_formula():
    X = np.random.default_rng(16).normal(size=(90, 4))
    kernel = Gaussian(0.3)
    values, U = naive_eigh(passes_of(X), kernel, Landmarks(X[:9]), 3)
    S, V = np.linalg.eigh(kernel(X[:9], X[:9]))
    S, V = S[::-1][:3], V[:, ::-1][:, :3]
    np.testing.assert_allclose(values, 10 * S, rtol=1e-12)
    expected = np.sqrt(0.1) * kernel(X, X[:9]) @ V / S
    np.testing.assert_allclose(np.abs(U), np.abs(expected), rtol=1e-9)
    assert np.abs(U.T @ U - np.eye(3)).max() > 1e-3


def test_maps_of_two_halves_merge_into_the_map_of_the_whole():
    X = np.random.default_rng(17).normal(size=(400, 4))
    whole, a, b = (fit(optimal, part, X[:20], 8) for part in (X, X[:150], X[150:]))
    before = a.statistics.gram.copy()
    merged = a.merge(b)
    assert relative(approximation(merged, X), approximation(whole, X)) < 1e-10
    np.testing.assert_array_equal(a.statistics.gram, before)


def test_maps_of_other_landmarks_do_not_merge():
    X = np.random.default_rng(18).normal(size=(50, 4))
    with pytest.raises(ValueError, match="share landmarks"):
        fit(optimal, X, X[:5], 3).merge(fit(optimal, X, X[5:10], 3))


@pytest.mark.parametrize("landmarks", ["uniform", "auto"])
def test_a_fit_and_its_features_prepare_the_landmarks_once(monkeypatch, landmarks):
    made = []
    monkeypatch.setattr(factors, "prepare", lambda *each: made.append(each) or prepare(*each))
    X = np.random.default_rng(0).normal(size=(500, 3))
    model = Nystroem(n_components=10, landmarks=landmarks, random_state=0).fit(X)
    model.transform(X)
    assert len(made) == 1


@pytest.mark.parametrize("factor", ["optimal", "standard"])
@pytest.mark.parametrize("gamma", [1e3, 1e5, 1e300])
def test_eigenpairs_of_rows_that_the_landmarks_hardly_see_are_orthonormal_or_refused(factor, gamma):
    # Eigenvalues that are rounding error once made eigenvectors without a length, and an error of LAPACK's.
    X = np.random.default_rng(0).normal(size=(60, 3))
    far, near = X[:20] + 0.1, np.vstack([X[:1], X[1:20] + 0.1])
    with pytest.raises(ValueError, match="Lower gamma"):
        kernel_eigh(X, n_components=5, gamma=gamma, landmarks=far, factor=factor)
    values, vectors = kernel_eigh(X, n_components=20, gamma=gamma, landmarks=near, factor=factor)
    np.testing.assert_allclose(values, 1.0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(1), atol=1e-12)
