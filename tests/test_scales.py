"""Rows far from the origin, of several scales at once, or near the ends of their dtype's range."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import KernelRidge, Nystroem
from nystrom.engine.passes import block_moments
from nystrom.kernels import Cosine, Gaussian, Laplacian, Matern
from nystrom.kernels.pairwise import Exponents
from nystrom.rows.sparse import minus_columns, offset_columns

CLUSTERED = ["kmeans", "auto", "sketched-kmeans"]
WRAPS = {"dense": np.asarray, "sparse": sp.csr_matrix}


def corners(scale, n=1500):
    rng = np.random.default_rng(0)
    corner = np.array([[0, 0], [1, 0], [0, 1], [1, 1.0]])[rng.integers(4, size=n)]
    return rng.normal(size=(n, 2)), corner * scale


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e6, 1e7])
@pytest.mark.parametrize("landmarks", [*CLUSTERED, "rpcholesky", "kmeans++"])
def test_clusters_far_apart_get_as_many_landmarks_and_as_small_an_error_as_near_ones(landmarks, scale):
    if (landmarks, scale) == ("kmeans++", 1e7):
        pytest.skip("D² sampling takes rows for equal whose distance is below 1e-7 of the spread")
    X, corner = corners(scale)
    near = Nystroem(gamma=1.0, n_components=50, landmarks=landmarks, random_state=0).fit(X + corner * (1e3 / scale))
    far = Nystroem(gamma=1.0, n_components=50, landmarks=landmarks, random_state=0).fit(X + corner)
    assert len(far.landmarks_) == 100
    assert far.certificate_.trace.value == pytest.approx(near.certificate_.trace.value, rel=0.1)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("scale", [1e2, 1e4, 1e6, 1e8])
def test_a_gaussian_kernel_is_right_between_near_rows_of_far_clusters(scale, wrap):
    X, corner = corners(scale, 200)
    X = X + corner
    exact = np.exp(-((X[:, None].astype(np.longdouble) - X) ** 2).sum(axis=2)).astype(float)
    np.testing.assert_allclose(Gaussian(1.0)(wrap(X), wrap(X)), exact, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7, 1e8])
@pytest.mark.parametrize("kernel", [Gaussian, Laplacian, *(partial(Matern, nu) for nu in (0.5, 1.5, 2.5))])
def test_kernels_of_distance_are_right_for_sparse_rows_far_from_the_origin(kernel, offset, dtype):
    rng = np.random.default_rng(0)
    # Far in two columns, sparse in the others; on a grid that the dtype has at the offset.
    near = rng.normal(size=(60, 6)) * (rng.random((60, 6)) < 0.4) * (1 if dtype == np.float64 else offset / 100)
    X = near.astype(dtype)
    X[:, :2] += dtype(offset)
    exact = X.astype(np.float64)
    exact[:, :2] -= offset
    k = kernel(0.3 / max(1.0, (exact**2).sum(axis=1).mean()))
    values = k(sp.csr_matrix(X), sp.csr_matrix(X[:20]))
    np.testing.assert_allclose(values, k(exact, exact[:20]), atol=1e-7 if dtype == np.float64 else 2e-4)


@pytest.mark.parametrize("offset", [1e3, 1e7, 1e8])
@pytest.mark.parametrize("landmarks", ["auto", "kmeans", "uniform", "rpcholesky", "kmeans++", "rpcholesky+lloyd"])
def test_sparse_rows_far_from_the_origin_are_fitted_as_dense_ones(landmarks, offset):
    X = np.round(np.random.default_rng(0).normal(size=(400, 5)) * 2**16) / 2**16
    exact = Nystroem(n_components=20, landmarks=landmarks, random_state=0).fit(X)
    for wrap in WRAPS.values():
        far = Nystroem(n_components=20, landmarks=landmarks, random_state=0).fit(wrap(X + offset))
        assert far.kernel_.gamma == pytest.approx(exact.kernel_.gamma, rel=1e-9)
        L = far.transform(wrap(X + offset))
        K = exact.kernel_(X, X)
        assert far.certificate_.trace.value == pytest.approx(np.trace(K - L @ L.T) / len(X), abs=1e-7)
        assert far.certificate_.trace.value == pytest.approx(exact.certificate_.trace.value, rel=0.1)


def test_only_columns_that_are_far_away_are_moved():
    X = sp.random(50, 30, 0.1, format="csr", random_state=0)
    X = sp.csr_matrix(sp.hstack([X, np.full((50, 1), 1e6)]))
    moments = block_moments(X)
    offset = offset_columns(moments.mean, moments.spread)
    assert np.flatnonzero(offset).tolist() == [30]
    np.testing.assert_array_equal(minus_columns(X, offset).toarray(), X.toarray() - offset)
    assert offset_columns(moments.mean[:30], moments.spread) is None


@pytest.mark.parametrize("scale", [1e-35, 1e-20, 1e20, 1e35])
@pytest.mark.parametrize("landmarks", [*CLUSTERED, "rpcholesky", "kmeans++", "rpcholesky+lloyd"])
def test_float32_rows_of_any_size_find_their_landmarks(landmarks, scale):
    X = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    scale = np.float32(2.0 ** np.round(np.log2(scale)))
    near, far = (
        Nystroem(n_components=10, landmarks=landmarks, random_state=0).fit(X * s) for s in (np.float32(1), scale)
    )
    assert len(far.landmarks_) == 20
    assert far.certificate_.trace.value == pytest.approx(near.certificate_.trace.value, rel=0.1)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("landmarks", [*CLUSTERED, "rpcholesky", "kmeans++", "diagonal", "column-norm", "leverage"])
def test_float64_rows_of_any_size_find_their_landmarks(landmarks, scale):
    X = np.random.default_rng(0).normal(size=(300, 3))
    near, far = (Nystroem(n_components=10, landmarks=landmarks, random_state=0).fit(X * s) for s in (1.0, scale))
    assert len(far.landmarks_) == 20
    assert far.certificate_.trace.value == pytest.approx(near.certificate_.trace.value, rel=0.3)


@pytest.mark.parametrize("scale", [1e-170, 1e-200, 1e-310])
def test_rows_too_small_for_a_bandwidth_are_refused_by_that_name(scale):
    X = np.random.default_rng(0).normal(size=(50, 3)) * scale
    with pytest.raises(ValueError, match=r"spread of the rows.*Multiply the rows by a constant"):
        Nystroem(n_components=5, landmarks=np.arange(10)).fit(X)


def test_rows_too_large_for_a_bandwidth_are_refused_by_that_name():
    X = np.random.default_rng(0).normal(size=(50, 3)) * 1e200
    with pytest.raises(ValueError, match=r"spread of the rows.*too large.*Divide the rows by a constant"):
        Nystroem(n_components=5, landmarks=np.arange(10)).fit(X)


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8, 1e-300, 1e150])
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_equal_rows_have_no_spread_and_a_bandwidth_of_one(value, wrap):
    X = np.full((37, 3), value)
    assert block_moments(wrap(X)).scatter == 0
    features = Nystroem(n_components=5, random_state=0).fit(wrap(X))
    assert features.kernel_.gamma == 1
    np.testing.assert_allclose(features.transform(wrap(X)) ** 2, 1.0, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_distances_at_an_offset_leave_ridge_as_it_was(offset):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(200, 4)) * 2**16) / 2**16
    y = np.sin(X[:, 0])
    base = KernelRidge(0.1, gamma=0.2, landmarks=X[:40]).fit(X, y).predict(X)
    for wrap in WRAPS.values():
        Z = X + offset
        far = KernelRidge(0.1, gamma=0.2, landmarks=Z[:40]).fit(wrap(Z), y).predict(wrap(Z))
        np.testing.assert_allclose(far, base, atol=1e-9)


def test_no_landmark_far_out_harms_the_others():
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    Z = np.concatenate([X[:5], [[1e3, 0, 0], [1e15, 0, 0]]]).astype(np.float32)
    values = Exponents(Z, 1.0, exp=True)(X)
    exact = np.exp(-((X[:, None].astype(float) - Z) ** 2).sum(axis=2))
    np.testing.assert_allclose(values, exact, atol=1e-5)


@pytest.mark.parametrize(
    "landmarks", ["auto", "rpcholesky", "uniform", "diagonal", "leverage", "column-norm", "kmeans++"]
)
def test_kernel_values_at_the_end_of_the_range_are_refused_by_that_name(landmarks):
    X = np.random.default_rng(0).normal(size=(50, 3)) * 1e-160
    with pytest.raises(ValueError, match=r"range of float64.*Multiply the rows by a constant|below rounding"):
        Nystroem("linear", n_components=5, landmarks=landmarks, random_state=0).fit(X)


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
@pytest.mark.parametrize("kernel", ["linear", "cosine"])
@pytest.mark.parametrize(
    "landmarks", ["auto", "rpcholesky", "uniform", "diagonal", "leverage", "column-norm", "kmeans++"]
)
def test_a_kernel_that_is_zero_everywhere_is_refused_by_that_name(landmarks, kernel):
    with pytest.raises(ValueError, match="is zero"):
        Nystroem(kernel, n_components=5, n_landmarks=5, landmarks=landmarks, random_state=0).fit(np.zeros((50, 3)))


@pytest.mark.parametrize("landmarks", ["rpcholesky", "leverage", "column-norm", "diagonal", "uniform", "auto"])
def test_landmarks_are_found_where_float32_has_no_room_for_the_kernel(landmarks):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    options = {"degree": 5, "coef0": 0, "n_components": 10, "landmarks": landmarks, "random_state": 0}
    near, wide, far = (
        Nystroem("polynomial", **options).fit(rows) for rows in (X, X.astype(np.float64), X * np.float32(2.0**40))
    )
    assert len(far.landmarks_) == 20
    # The far rows are taken in float64, and a power of two changes no digit.
    assert far.certificate_.trace.value == pytest.approx(wide.certificate_.trace.value, rel=1e-6)
    # In float32 the directions of W below 10 ε √m max k(z, z) are dropped. Here k(z, z) spans eight decades, so some of
    # them matter (uniform: error 0.091 instead of 0.036); the certificate says so, neither less nor more.
    L = near.transform(X).astype(np.float64)
    trace = np.sum(near.kernel_.diag(X.astype(np.float64)))
    assert near.certificate_.trace.value == pytest.approx(1 - np.sum(L**2) / trace, abs=1e-5)
    assert near.certificate_.trace.value >= wide.certificate_.trace.value - 1e-5


@pytest.mark.parametrize("landmarks", ["rpcholesky", "leverage", "column-norm", "diagonal", "uniform", "auto"])
def test_a_kernel_that_overflows_is_refused_by_every_selector(landmarks):
    X = np.random.default_rng(0).normal(size=(60, 3)) * 1e140
    with pytest.raises(ValueError, match=r"not finite.*overflow.*Scale the rows down"):
        Nystroem("polynomial", n_components=5, landmarks=landmarks, random_state=0).fit(X)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_the_cosine_does_not_depend_on_the_size_of_rows(wrap, scale):
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(Cosine()(wrap(X * scale), wrap(X)), Cosine()(X, X), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-100, 1e-60, 1e-14, 1e10, 1e17, 1e60, 1e80])
def test_errors_of_a_linear_kernel_do_not_depend_on_the_scale_of_the_rows(scale, dtype):
    if dtype == np.float32 and not 1e-20 < scale < 1e20:
        pytest.skip("float32 has no such numbers")
    X = np.random.default_rng(0).normal(size=(2500, 6)).astype(dtype)
    Y = (X * scale).astype(dtype)
    one, other = (Nystroem("linear", n_components=3, random_state=0).fit(A) for A in (X, Y))
    for norm in ("fro", "spectral"):
        for exact in (False, True):
            wanted, found = (
                f.approximation_error(A, norm, exact=exact, random_state=1) for f, A in ((one, X), (other, Y))
            )
            assert found.value == pytest.approx(wanted.value, rel=1e-4)
            assert found.low <= found.value <= found.high
    assert other.best_possible(Y).value == pytest.approx(one.best_possible(X).value, rel=1e-3)
    assert other.best_possible(Y[:500]).value == pytest.approx(one.best_possible(X[:500]).value, rel=1e-3)
    for norm in ("fro", "trace", "spectral"):
        sized = Nystroem("linear", tol=0.1, tol_norm=norm, random_state=0).fit(Y)
        assert sized.approximation_error(Y, norm, exact=True).value <= 0.1


def test_a_tolerance_holds_where_float32_cannot_square_the_kernel():
    X = np.random.default_rng(0).integers(0, 256, size=(2500, 20)).astype(np.float32)
    sized = Nystroem("polynomial", gamma=1.0, tol=0.02, random_state=0).fit(X)
    assert sized.error_.value > 0
    assert sized.approximation_error(X, exact=True).value <= 0.02


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(), 2 * Gaussian().on([0])])
def test_a_spread_whose_multiples_overflow_is_refused(kernel):
    X = np.array([[1.4e154], [1e149], [2e149], [9e149]])
    with pytest.raises(ValueError, match=r"spread of the rows.*too large.*Divide the rows"):
        Nystroem(kernel, landmarks=X[1:2]).fit(X)
    # A kernel value between 0 and 1 needs no larger squares than float64 has.
    scaled = Nystroem(kernel, landmarks=X[1:2] / 64).fit(X / 64)
    expected = Nystroem(kernel, landmarks=X[1:2] / 1.4e154).fit(X / 1.4e154)
    np.testing.assert_allclose(scaled.transform(X / 64), expected.transform(X / 1.4e154), rtol=1e-9)
