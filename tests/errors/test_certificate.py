"""Errors without K, against errors with it."""

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import KernelPCA, KernelRidge, Nystroem, open_rows
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.errors import ErrorEstimate, certify, frobenius_error, spectral_error, trace_error
from nystrom.errors.measure import largest_eigenvalue
from nystrom.kernels import Gaussian, Polynomial, Precomputed
from nystrom.landmarks.base import Landmarks
from nystrom.loops import instruction_set
from nystrom.nystroem.factor import optimal, standard
from nystrom.rows import as_blocks


def clusters(n, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(8, 5))[rng.integers(8, size=n)] * 3 + rng.normal(size=(n, 5))).astype(dtype)


def fit(X, m=20, rank=10, kernel=None, factor=optimal):
    return factor(Passes(as_blocks(X), LocalEngine(1)), kernel or Gaussian(0.05), Landmarks(X[:m]), rank)


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
    bracket = spectral_error(as_blocks(X), fitted, LocalEngine(2), rng=rng)
    assert bracket.low <= exact(X, fitted, 2) <= bracket.high
    assert bracket.value == pytest.approx(exact(X, fitted, 2), rel=0.02)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_interval_holds_the_error_as_often_as_it_says(monkeypatch, dtype):
    monkeypatch.setattr("nystrom.errors.frobenius.EXACT_ROWS", 0)
    X = clusters(1500, dtype=dtype)
    fitted = fit(X)
    true = exact(X.astype(np.float64), fitted, "fro")
    found = [
        frobenius_error(as_blocks(X), fitted, LocalEngine(2), rng=np.random.default_rng(seed), n_pairs=40_000)
        for seed in range(60)
    ]
    assert sum(e.low <= true <= e.high for e in found) >= 50  # 57 expected; below 50 has probability 1e-3
    assert np.mean([e.value for e in found]) == pytest.approx(true, rel=0.02)


def test_many_pairs_give_a_narrow_interval(monkeypatch):
    monkeypatch.setattr("nystrom.errors.frobenius.EXACT_ROWS", 0)
    X = clusters(1500)
    found = frobenius_error(as_blocks(X), fit(X), LocalEngine(2), rng=np.random.default_rng(0))
    assert (found.high - found.low) / found.value < 0.03


def test_a_precomputed_kernel_has_the_same_error(monkeypatch):
    monkeypatch.setattr("nystrom.errors.frobenius.EXACT_ROWS", 0)
    X = clusters(500)
    K = Gaussian(0.05)(X, X)
    rows = as_blocks(K)
    fitted = optimal(Passes(rows, LocalEngine(1)), Precomputed(), Landmarks(K[:20], np.arange(20)), 10)
    found = frobenius_error(rows, fitted, LocalEngine(2), rng=np.random.default_rng(0))
    true = exact(X, fit(X), "fro")
    assert found.low <= true <= found.high


def test_an_exact_error_says_so():
    X = clusters(50)
    assert "exact" in str(certify(fit(X)).trace)
    assert "95%" in str(ErrorEstimate(0.1, 0.09, 0.11, "fro", 0.95))


def near_duplicates(n, rng):
    half = rng.normal(size=(n // 2, 5))
    return np.concatenate([half, half + 0.01 * rng.normal(size=half.shape)])


HARD = {
    "narrow": (lambda n, rng: rng.normal(size=(n, 5)), {"gamma": 20.0}),
    "near-duplicates": (near_duplicates, {"gamma": 1.0}),
    "heavy tails": (lambda n, rng: rng.standard_t(1.5, size=(n, 4)), {"gamma": 0.1}),
    "polynomial": (lambda n, rng: rng.standard_t(5, size=(n, 4)), {"kernel": "polynomial"}),
    "sparse": (lambda n, rng: sp.random(n, 50, 0.1, format="csr", random_state=0), {}),
}


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.ApproximationWarning")
@pytest.mark.parametrize("name", HARD)
def test_the_interval_covers_where_few_pairs_hold_the_error(name):
    make, params = HARD[name]
    X = make(2500, np.random.default_rng(0))
    fitted = Nystroem(n_components=20, random_state=0, **params).fit(X)
    true = fitted.approximation_error(X, exact=True)
    assert true.low == true.value == true.high
    found = [fitted.approximation_error(X, n_pairs=100_000, random_state=seed) for seed in range(40)]
    assert sum(e.low <= true.value <= e.high for e in found) >= 34  # 38 expected; below 34 has probability 0.01
    assert all(e.low <= e.value <= e.high for e in found)


def test_exact_errors_do_not_depend_on_how_many_rows_a_side_holds(monkeypatch):
    X = clusters(700)
    fitted = fit(X)
    whole = frobenius_error(as_blocks(X), fitted, LocalEngine(2), rng=np.random.default_rng(0), exact=True)
    monkeypatch.setattr("nystrom.errors.frobenius._SIDE_ROWS", 96)
    parts = frobenius_error(as_blocks(X), fitted, LocalEngine(2), rng=np.random.default_rng(0), exact=True)
    assert parts.value == pytest.approx(whole.value, rel=1e-12)


@pytest.mark.parametrize("norm", ["fro", "trace", "spectral"])
def test_every_estimator_measures_its_error_from_memory_and_files(norm, tmp_path):
    X = clusters(300)
    np.save(tmp_path / "rows.npy", X)
    y = X[:, 0]
    params = {"kernel": "gaussian", "gamma": 0.05, "landmarks": X[:20], "n_components": None}
    found = {
        make(**params).fit(data, y).approximation_error(data, norm)
        for make in (Nystroem, KernelRidge, KernelPCA)
        for data in (X, open_rows(tmp_path / "rows.npy"))
        if not (make is KernelRidge and data is not X)
    }
    values = [e.value for e in found]
    assert np.ptp(values) <= 1e-9 * max(values)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"confidence": 2}, "confidence must be a number between 0 and 1"),
        ({"confidence": np.nan}, "confidence must be"),
        ({"n_pairs": 1}, "n_pairs must be a whole number of at least 100"),
        ({"n_pairs": 1e5}, "n_pairs must be"),
        ({"norm": "l2"}, "norm must be one of"),
    ],
)
def test_wrong_arguments_of_the_error_are_named(bad, match):
    X = clusters(60)
    with pytest.raises(ValueError, match=match):
        Nystroem(n_components=5, random_state=0).fit(X).approximation_error(X, **bad)


def test_the_spectral_error_of_equal_rows_is_nothing():
    found = Nystroem(n_components=1).fit(np.ones((2, 2))).approximation_error(np.ones((2, 2)), "spectral")
    assert found.low == 0 <= found.value <= found.high < 1e-13


@pytest.mark.parametrize("kernel", ["polynomial", "cosine", "gaussian", "linear"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_rows_leave_nothing_whatever_the_sign_of_the_rounding(kernel, dtype):
    for seed in range(6):
        X = np.tile(np.random.default_rng(seed).normal(size=4).astype(dtype), (300, 1))
        found = Nystroem(kernel, n_components=1, random_state=0).fit(X).approximation_error(X, "spectral")
        if dtype == np.float32 and instruction_set() is None:
            # NumPy takes distances in float32 as differences of squares, which leaves some tens of roundings.
            assert found.high <= 100 * np.finfo(np.float32).eps
            continue
        assert found.low == 0
        assert found.high <= (1e-6 if dtype == np.float32 else 1e-12)


def test_an_interval_allows_for_the_rounding_of_the_features():
    X = np.random.default_rng(1003).standard_cauchy(size=(2600, 4))
    fitted = Nystroem(n_components=40, random_state=3).fit(X)
    true = fitted.approximation_error(X, exact=True).value
    assert true < 1e-12
    found = [fitted.approximation_error(X, random_state=seed, n_pairs=100_000) for seed in range(20)]
    assert sum(e.low <= true <= e.high for e in found) >= 17


def test_an_error_below_what_the_dtype_resolves_says_so():
    X = clusters(200, dtype=np.float32)
    found = Nystroem(kernel="linear", n_components=None, landmarks=X[:50]).fit(X).approximation_error(X)
    assert "below" in str(found)
    assert "float32" in str(found)
    assert found.low == 0 <= found.value <= found.high
    assert str(ErrorEstimate(3e-7, 3e-7, 3e-7, "fro").resolved(np.float32)) == "below 1e-6 (fro, float32)"


def test_many_rows_bracket_the_spectral_error_by_the_other_norms(monkeypatch):
    X = clusters(2200)
    fitted = Nystroem(gamma=0.05, n_components=20, random_state=0).fit(X)
    narrow = fitted.approximation_error(X, "spectral")
    monkeypatch.setattr("nystrom.errors.measure.LANCZOS_ROWS", 100)
    wide = fitted.approximation_error(X, "spectral")
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert fitted.approximation_error(X, "spectral", exact=True) == narrow


def test_the_error_of_new_rows_of_a_precomputed_kernel_is_refused():
    X = clusters(100)
    K = Gaussian(0.05)(X, X)
    fitted = Nystroem(kernel="precomputed", n_components=5, random_state=0).fit(K)
    with pytest.raises(ValueError, match="square kernel matrix of the training rows"):
        fitted.approximation_error(K[:50])


@pytest.mark.parametrize("n", [1, 2, 30])
def test_lanczos_brackets_the_largest_eigenvalue(n):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    A = A @ A.T
    top = float(np.linalg.eigvalsh(A)[-1])
    found = largest_eigenvalue(lambda v: A @ v, n, rng, 0.01, steps=25)
    assert found.low <= top * (1 + 1e-12)
    assert top <= found.high * (1 + 1e-12)
