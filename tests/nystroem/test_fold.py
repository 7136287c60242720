"""What docs/numerics.md promises of the fold, on both sides of every switch between its ways."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import kernel_ridge

from nystrom import GaussianProcessRegressor, KernelRidge, Nystroem
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.exceptions import NotFiniteError
from nystrom.kernels import FromCallable, Gaussian, Polynomial
from nystrom.landmarks import Landmarks
from nystrom.linalg import whiten, whitened
from nystrom.loops import instruction_set
from nystrom.nystroem import factor
from nystrom.nystroem import fit_pass as fold
from nystrom.nystroem.factor import optimal, standard
from nystrom.rows import as_blocks

RNG = np.random.default_rng(1)
SETS = {
    "uniform": RNG.uniform(-3, 3, (400, 2)),
    "normal": RNG.normal(size=(400, 3)),
    "unbalanced": np.concatenate([RNG.normal(size=(390, 2)), RNG.normal(size=(10, 2)) + 9]),
    "stretched": RNG.normal(size=(400, 4)) * [1, 1e-1, 1e-2, 10],
}
M = 24
GAMMAS = np.geomspace(0.1, 300, 30)


def passes_of(X):
    return Passes(as_blocks(X), LocalEngine())


def long_gaussian(A, B, gamma):
    A, B = A.astype(np.longdouble), B.astype(np.longdouble)
    return np.exp(-np.longdouble(gamma) * ((A[:, None] - B) ** 2).sum(axis=2))


def long_cholesky(W):
    """The upper Cholesky factor in extended precision."""
    R = np.zeros_like(W)
    for j in range(len(W)):
        R[j, j] = np.sqrt(W[j, j] - R[:j, j] @ R[:j, j])
        R[j, j + 1 :] = (W[j, j + 1 :] - R[:j, j] @ R[:j, j + 1 :]) / R[j, j]
    return R


def long_solve(C, R):
    """``C R⁻¹`` in extended precision."""
    B = np.zeros_like(C)
    for j in range(len(R)):
        B[:, j] = (C[:, j] - B[:, :j] @ R[:j, j]) / R[j, j]
    return B


def long_features(X, Z, gamma):
    """Whitened features ``B`` with ``B Bᵀ = C W⁻¹ Cᵀ`` in extended precision, and the extreme eigenvalues of W."""
    W, C = long_gaussian(Z, Z, gamma), long_gaussian(X, Z, gamma)
    values = np.linalg.eigvalsh(W.astype(np.float64))
    return long_solve(C, long_cholesky(W)), values[0], values[-1]


def long_eigenvalues(X, Z, gamma):
    """Eigenvalues of C W⁻¹ Cᵀ: the squared singular values of the features; and the condition of W."""
    B, least, largest = long_features(X, Z, gamma)
    return np.linalg.svd(B.astype(np.float64), compute_uv=False) ** 2, largest / least


def value_error(Z, gamma, dtype):
    """The error of a kernel value: some roundings, and those of an exponent taken from products about the centre."""
    largest = gamma * ((Z - Z.mean(axis=0)) ** 2).sum(axis=1).max()
    return 4 * np.finfo(dtype).eps * (1 + (min(largest, 32) if dtype == np.float32 else largest))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", [1e-3, 1e-2, 1e-1])
@pytest.mark.parametrize("n_landmarks", [2, 5, 40])
def test_the_promise_holds_with_all_landmarks_in_one_of_two_far_clusters(dtype, width, n_landmarks):
    rng = np.random.default_rng(n_landmarks)
    near, far = rng.normal(size=(60, 3)) * width, 20 + rng.normal(size=(40, 3)) * width
    X, gamma = np.concatenate([near, far]).astype(dtype), 1e-2
    found = optimal(passes_of(X), Gaussian(gamma), Landmarks(X[:n_landmarks]), None)
    Z = X[:n_landmarks].astype(np.longdouble)
    C = np.exp(-gamma * ((X.astype(np.longdouble)[:, None] - Z) ** 2).sum(axis=2))
    features = C @ found.whitening.astype(np.longdouble)
    exact = np.linalg.eigvalsh((features.T @ features).astype(np.float64))[::-1][: found.n_components]
    # In the whitened basis a value's error is multiplied by the columns of T.
    rounding = value_error(X[:n_landmarks].astype(np.float64), gamma, dtype) + 4 * np.finfo(dtype).eps * n_landmarks
    moved = rounding * np.sqrt(len(X)) * np.abs(found.whitening).sum(axis=0).max()
    allowed = 2 * moved * np.sqrt(exact) + moved**2 + fold.PROMISE[np.dtype(dtype).name] * exact
    assert (np.abs(found.eigenvalues - exact) <= allowed).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SETS)
def test_every_eigenvalue_keeps_the_promise_through_all_bandwidths(name, dtype):
    promise = fold.PROMISE[np.dtype(dtype).name]
    X = SETS[name].astype(dtype)
    Z = X[np.random.default_rng(0).choice(len(X), M, replace=False)]
    ways = set()
    for gamma in GAMMAS:
        exact, condition = long_eigenvalues(X, Z, gamma)
        found = optimal(passes_of(X), Gaussian(gamma), Landmarks(Z), None)
        W = factor.landmark_kernel(found.kernel, found.landmarks)
        ways.add(fold.choose_way(W, found.whitening, found.kernel, np.dtype(dtype))[0])
        # Dropped directions are an approximation, not rounding: they are judged by the cut-off's tests.
        if found.n_components < M:
            continue
        error = np.abs(found.eigenvalues - exact)
        rounding = value_error(Z, gamma, dtype)
        assert (error <= (promise + rounding * condition) * exact).all(), (gamma, condition)
        # ‖δB‖ is at most rounding √(n m) ‖T‖, and ‖B‖² is the largest eigenvalue.
        least = np.linalg.eigvalsh(W)[0]
        share = 2 * rounding * np.sqrt(len(X) * M / (least * exact[0]))
        assert error.max() <= (promise / condition + share) * exact[0], (gamma, condition)
    assert len(ways) > 1 or name == "unbalanced"  # the sweep goes through a switch


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["uniform", "unbalanced"])
def test_ridge_and_the_variance_of_a_process_keep_their_bounds_through_all_bandwidths(name, dtype):
    X = SETS[name].astype(dtype)
    Z = X[np.random.default_rng(0).choice(len(X), M, replace=False)]
    y = np.sin(X[:, 0].astype(np.float64))
    for gamma in GAMMAS[::3]:
        B, least, largest = long_features(X, Z, gamma)
        if largest / least > 0.01 / np.finfo(dtype).eps:
            continue  # directions are dropped
        alpha = 1e-3
        gram = B.T @ B
        top = float(np.trace(gram))
        inverse = long_solve(np.eye(M, dtype=np.longdouble), long_cholesky(gram + alpha * np.eye(M)))
        solved = inverse @ (inverse.T @ (B.T @ y))
        rounding = value_error(Z, gamma, dtype)
        # The features are off by rounding √m ‖T‖ in each row; the sums by ε of the largest eigenvalue.
        row = rounding * np.sqrt(M / least)
        eps = np.finfo(np.float64).eps
        model = KernelRidge(alpha, gamma=gamma, landmarks=Z).fit(X, y)
        error = np.abs(model.predict(X) - (B @ solved).astype(np.float64)).max()
        bound = (row * np.sqrt(len(X) / alpha) + eps * top / alpha + promise_of(dtype)) * np.linalg.norm(y)
        assert error <= bound, (gamma, largest / least)
        process = GaussianProcessRegressor(alpha=alpha, amplitude=1.0, gamma=gamma, landmarks=Z).fit(X, y)
        variance = process.predict(X, return_std=True)[1] ** 2
        squares = (B**2).sum(axis=1)
        exact = (np.maximum(1 - squares, 0) + alpha * ((B @ inverse) ** 2).sum(axis=1)).astype(np.float64)
        assert np.abs(variance - exact).max() <= 4 * row + promise_of(dtype), (gamma, largest / least)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_standard_factor_keeps_its_bound_through_all_bandwidths(dtype):
    X = SETS["uniform"].astype(dtype)
    Z, rank = X[np.random.default_rng(0).choice(len(X), M, replace=False)], 8
    for gamma in GAMMAS:
        W, C = long_gaussian(Z, Z, gamma).astype(np.float64), long_gaussian(X, Z, gamma).astype(np.float64)
        values, V = np.linalg.eigh(W)
        values, V = values[: -rank - 1 : -1], V[:, : -rank - 1 : -1]
        exact = np.linalg.svd(C @ V / np.sqrt(values), compute_uv=False) ** 2
        found = standard(passes_of(X), Gaussian(gamma), Landmarks(Z), rank)
        # The rank is cut in W, whose leading directions turn by rounding / (gap to the next eigenvalue).
        gap = values[-1] - np.sort(np.linalg.eigvalsh(W))[-rank - 1]
        if gap < 1e-6 * values[0]:
            continue  # as good as equal: either may be cut
        rounding = value_error(Z, gamma, dtype)
        turned = np.sqrt(M) * np.finfo(np.float64).eps * values[0] / gap
        bound = 4 * rounding * values[0] / values[-1] + 4 * turned * np.sqrt(M)
        assert (np.abs(found.eigenvalues - exact) <= bound * exact[0]).all(), gamma


def promise_of(dtype):
    return fold.PROMISE[np.dtype(dtype).name]


@pytest.mark.parametrize("gamma", np.geomspace(1.0, 30.0, 12))
def test_ridge_on_all_rows_is_the_exact_one_through_the_switch(gamma):
    X = np.random.default_rng(1).uniform(-3, 3, (400, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    ours = KernelRidge(1e-8, gamma=gamma, landmarks=X).fit(X, y).predict(X)
    theirs = kernel_ridge.KernelRidge(alpha=1e-8, kernel="rbf", gamma=gamma).fit(X, y).predict(X)
    # Both solve a system of condition λ₁/α, about 400/1e-8, in float64.
    np.testing.assert_allclose(ours, theirs, atol=64 * np.finfo(np.float64).eps * 400 / 1e-8)


def test_a_triangular_whitening_multiplies_as_any_other():
    rng = np.random.default_rng(0)
    T = np.triu(rng.normal(size=(53, 53)))
    C = rng.normal(size=(40, 53))
    np.testing.assert_allclose(whitened(C, T), C @ T, atol=1e-13)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("degree", [2, 3, 5])
def test_float32_kernel_values_whose_squares_overflow_are_summed_all_the_same(seed, degree):
    X = np.random.default_rng(seed).integers(0, 256, (600, 64)).astype(np.float32)
    fits = [
        Nystroem("polynomial", degree=degree, n_components=20, landmarks=np.arange(40)).fit(X.astype(dtype))
        for dtype in (np.float32, np.float64)
    ]
    assert fits[0].n_components_ == fits[1].n_components_ == 20
    np.testing.assert_allclose(fits[0].eigenvalues_, fits[1].eigenvalues_, rtol=1e-3)
    assert fits[0].certificate_.trace.value == pytest.approx(fits[1].certificate_.trace.value, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e-80, 1e80, 1e100, 1e150])
@pytest.mark.parametrize("kernel", ["linear", "cosine", "gaussian", "laplacian", "matern"])
def test_rows_of_any_size_in_float64_give_the_same_approximation(kernel, scale):
    X = np.random.default_rng(0).normal(size=(200, 5))
    near, far = (Nystroem(kernel, n_components=None, landmarks=np.arange(20)).fit(X * s) for s in (1.0, scale))
    ratio = far.eigenvalues_ / near.eigenvalues_
    np.testing.assert_allclose(ratio / ratio[0], 1.0, rtol=1e-8)
    assert far.certificate_.trace.value == pytest.approx(near.certificate_.trace.value, abs=1e-8)


@pytest.mark.parametrize("scale", [1e-18, 1e18])
@pytest.mark.parametrize("kernel", ["linear", "cosine", "gaussian", "laplacian", "matern"])
def test_rows_of_any_size_in_float32_give_the_same_approximation(kernel, scale):
    X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    scale = np.float32(2.0 ** np.round(np.log2(scale)))
    near, far = (
        Nystroem(kernel, n_components=None, landmarks=np.arange(20)).fit(X * s) for s in (np.float32(1), scale)
    )
    L = far.transform(X * scale) / (scale if kernel == "linear" else 1)
    np.testing.assert_allclose(L @ L.T, near.transform(X) @ near.transform(X).T, atol=2e-4)
    assert far.certificate_.trace.value == pytest.approx(near.certificate_.trace.value, abs=1e-4)


def test_features_that_float32_cannot_hold_are_refused():
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32) * np.float32(1e16)
    features = Nystroem("polynomial", degree=5, n_components=None, landmarks=np.arange(10)).fit(X)
    assert features.certificate_.trace.value < 1
    with pytest.raises(ValueError, match=r"beyond the range of float32\. Give the rows as float64"):
        features.transform(X)


def test_kernel_values_that_overflow_are_refused():
    X = np.random.default_rng(0).normal(size=(60, 3)) * 1e120
    with pytest.raises(ValueError, match=r"not finite.*overflow.*Scale the rows down"):
        Nystroem("polynomial", n_components=5, landmarks=np.arange(10)).fit(X)
    small = np.concatenate([np.full((10, 3), 1.0) + np.arange(10)[:, None], X])
    with pytest.raises(ValueError, match=r"not finite.*overflow.*Scale the rows down"):
        Nystroem("polynomial", n_components=5, landmarks=np.arange(10)).fit(small)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_same_features_are_found_whether_whitened_first_or_later(monkeypatch, dtype):
    X = np.random.default_rng(0).normal(size=(500, 4)).astype(dtype)
    y = X[:, 0]
    fits = [KernelRidge(0.1, gamma=0.3, landmarks=np.arange(60), fit_intercept=True).fit(X, y)]
    monkeypatch.setattr(factor, "choose_way", lambda *_: (fold.WHITEN_FIRST, None))
    fits.append(KernelRidge(0.1, gamma=0.3, landmarks=np.arange(60), fit_intercept=True).fit(X, y))
    assert fits[1].map_.statistics.margin < np.inf
    np.testing.assert_allclose(fits[0].predict(X), fits[1].predict(X), atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("p", "gamma"), [(2, 20.0), (5, 1.0), (10, 0.05), (10, 0.2), (20, 0.02), (20, 0.1)])
def test_the_promise_holds_where_leading_directions_leave_first(p, gamma, dtype, monkeypatch):
    X = np.random.default_rng(p).normal(size=(3000, p)).astype(dtype)
    Z = X[:320]
    exact_rows = X.astype(np.float64)
    found = optimal(passes_of(X), Gaussian(gamma), Landmarks(Z), None)
    W = factor.landmark_kernel(found.kernel, found.landmarks)
    way = fold.choose_way(W, found.whitening, found.kernel, np.dtype(dtype))[0]
    monkeypatch.setattr(factor, "choose_way", lambda *_: (fold.WHITEN_FIRST, None))
    exact = optimal(passes_of(exact_rows), Gaussian(gamma), Landmarks(Z.astype(np.float64)), None)
    if found.n_components < len(Z):
        pytest.skip("directions were dropped")
    condition = np.linalg.cond(W)
    rounding = value_error(Z.astype(np.float64), gamma, dtype)
    error = np.abs(found.eigenvalues / exact.eigenvalues - 1)
    assert error.max() <= fold.PROMISE[np.dtype(dtype).name] + rounding * condition, (way, condition)


def test_leading_directions_leave_first_in_either_precision():
    ways = set()
    for dtype, p, gamma in ((np.float32, 20, 0.02), (np.float64, 10, 0.05)):
        X = np.random.default_rng(5).normal(size=(320, p)).astype(dtype)
        found = optimal(passes_of(X), Gaussian(gamma), Landmarks(X), None)
        W = factor.landmark_kernel(found.kernel, found.landmarks)
        ways.add(fold.choose_way(W, found.whitening, found.kernel, np.dtype(dtype))[0])
    assert {way.sum_dtype.name for way in ways if way.n_leading > 1} == {"float32", "float64"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fold_with_leading_directions_is_the_fold_without(dtype):
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(900, 4)).astype(dtype), rng.normal(size=900), rng.integers(0, 3, 900).astype(float)
    Z = Landmarks(X[:40])
    kernel = Gaussian(0.5)
    W = factor.landmark_kernel(kernel, Z)
    T, values, _ = whiten(W, block_dtype=np.float64)
    T = T[:, values > 1e-3 * values[0]]
    Q = np.linalg.qr(rng.normal(size=(40, 3)))[0].astype(dtype)
    plain = factor._make_fold(kernel, factor.prepare(kernel, Z), W, T, np.dtype(dtype), len(X))
    results = []
    for way, leading in (
        (fold.WHITEN_FIRST, None),
        (fold.Way(False, np.dtype(dtype)), None),
        (fold.Way(False, np.dtype(dtype), 3), fold.Leading(Q)),
    ):
        passes = Passes(as_blocks(X, y, weight=weight, block_rows=250), LocalEngine())
        results.append(replace(plain, way=way, leading=leading).over(passes))
    for other in results[1:]:
        tolerance = 1e4 * np.finfo(dtype).eps
        for name in ("count", "weight", "trace", "mean", "scatter", "cross", "target_mean", "target_scatter"):
            exact = np.asarray(getattr(results[0], name))
            scale = np.abs(exact).max()
            np.testing.assert_allclose(getattr(other, name), exact, rtol=0, atol=tolerance * scale, err_msg=name)


def test_a_certificate_says_whether_each_row_was_checked():
    X = SETS["normal"]
    Z = X[:M]
    late, first = (Nystroem(gamma=gamma, n_components=5, landmarks=Z).fit(X) for gamma in (300.0, 0.01))
    function = Nystroem(kernel=lambda A, B: A @ B.T, n_components=2, landmarks=Z).fit(X)
    assert [each.certificate_.each_row for each in (late, first, function)] == [False, True, True]
    assert "for the sum over all rows; for each row it holds by theorem" in str(late.certificate_)
    assert "≥ 0 was checked for each row" in str(first.certificate_)
    # Of these rows some were checked and some were not.
    half = Nystroem(gamma=0.01, n_components=5, landmarks=Z).fit(X)
    half.map_ = replace(half.map_, statistics=replace(half.map_.statistics, n_checked=0))
    assert not half.merge(first).certificate_.each_row
    assert first.merge(first).certificate_.each_row


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kernel", [Gaussian(0.5), Polynomial(2, gamma=0.1), FromCallable(lambda A, B: A @ B.T)])
def test_the_pass_itself_refuses_rows_that_are_not_finite_by_their_number(kernel, bad):
    X = np.random.default_rng(0).normal(size=(900, 4))
    Z = Landmarks(X[:20].copy())
    X[[713, 402], 2] = bad
    passes = Passes(as_blocks(X, block_rows=250), LocalEngine(2))
    with pytest.raises(NotFiniteError, match="row 402"):
        optimal(passes, kernel, Z, None)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [40, 300])
@pytest.mark.parametrize("sparse", [False, True])
def test_kept_values_are_the_kernel_and_the_largest_of_each_row(m, sparse, dtype):
    X = np.random.default_rng(0).normal(size=(3000, 6)).astype(dtype)
    X = sp.csr_matrix(np.where(X > 0, X, 0)) if sparse else X
    Z, kernel = Landmarks(X[:m]), Gaussian(0.1)
    C = factor.prepare(kernel, Z)(X)
    # NumPy's products of blocks differ in the last bits with the number of rows; the loops' do not.
    rounding = 8 * np.finfo(dtype).eps if instruction_set() is None else 0.0
    n = X.shape[0]
    for weight in (None, np.random.default_rng(1).integers(0, 3, n).astype(float)):
        keep = fold.Kept(np.empty((n, m), dtype), np.empty(n, dtype))
        passes = Passes(as_blocks(X, weight=weight, block_rows=700), LocalEngine())
        fitted = optimal(passes, kernel, Z, 20, keep=keep)
        np.testing.assert_allclose(keep.values, C, rtol=0, atol=rounding)
        np.testing.assert_allclose(keep.largest, C.max(axis=1), rtol=0, atol=rounding)
        rows = as_blocks(X)
        kept, computed = (factor.emit_features(rows, LocalEngine(), fitted, keep=each) for each in (keep, None))
        assert kept.dtype == dtype
        moved = rounding * np.abs(fitted.projection).sum(axis=0).max()
        np.testing.assert_allclose(kept, computed, rtol=0, atol=moved)


def test_features_are_the_same_in_one_piece_and_in_place():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    for dtype in (np.float64, np.float32):
        fitted = optimal(passes_of(X.astype(dtype)), Gaussian(0.5), Landmarks(X[:600].astype(dtype)), 50)
        out = np.empty((5000, fitted.n_components), dtype)
        assert fitted.features(X.astype(dtype), out) is out
        np.testing.assert_array_equal(out, fitted.features(X.astype(dtype)))
        C = fitted.evaluate(X.astype(dtype)).astype(np.float64)
        scale = np.abs(fitted.projection).sum(axis=0).max()
        np.testing.assert_allclose(out, C @ fitted.projection, rtol=0, atol=8 * np.finfo(dtype).eps * scale)
