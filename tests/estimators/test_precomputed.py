"""Rows of a given kernel matrix: training rows have their k(x, x) in it, others must bring theirs."""

import numpy as np
import pytest
import scipy.sparse as sp

from nystrom import GaussianProcessRegressor, KernelRidge, Nystroem, SpectralClustering
from nystrom.kernels import Gaussian, Linear

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(120, 3)), RNG.normal(size=(150, 3)) * 1.5
Y = np.sin(X[:, 0])
KERNELS = {"gaussian": Gaussian(0.5), "linear": 0.5 * Linear()}


@pytest.fixture(params=KERNELS)
def given(request):
    """The kernel, its matrix, that of new rows with the training rows, and the new rows' own k(x, x)."""
    kernel = KERNELS[request.param]
    return kernel, kernel(X, X), kernel(NEW, X), kernel.diag(NEW)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("n", [1, 60, 120, 150])
def test_new_rows_with_their_diagonal_are_judged_as_by_the_kernel_itself(given, n, wrap):
    kernel, K, K_new, diag = given
    options = {"landmarks": np.arange(30), "alpha": 0.1, "amplitude": 1.0}
    known = GaussianProcessRegressor(kernel, **options).fit(X, Y)
    told = GaussianProcessRegressor("precomputed", **options).fit(wrap(K), Y)
    mean, std = told.predict(wrap(K_new[:n]), return_std=True, diag=diag[:n])
    expected = known.predict(NEW[:n], return_std=True)
    np.testing.assert_allclose(mean, expected[0], atol=1e-8)
    np.testing.assert_allclose(std, expected[1], atol=1e-6)
    np.testing.assert_allclose(
        told.residual(wrap(K_new[:n]), diag=diag[:n]), known.residual(NEW[:n]), atol=1e-7 * diag.max()
    )
    error = told.approximation_error(wrap(K_new[:n]), "trace", diag=diag[:n]).value
    assert error == pytest.approx(known.approximation_error(NEW[:n], "trace").value, abs=1e-7)


@pytest.mark.parametrize("n", [1, 60, 120, 150])
def test_new_rows_without_their_diagonal_are_refused_where_it_is_needed(given, n):
    _, K, K_new, _ = given
    model = GaussianProcessRegressor("precomputed", landmarks=np.arange(30), alpha=0.1).fit(K, Y)
    new = K_new[:n]
    assert model.predict(new).shape == (n,)
    for call in (
        lambda: model.predict(new, return_std=True),
        lambda: model.sample_y(new),
        lambda: model.residual(new),
        lambda: model.approximation_error(new, "trace"),
    ):
        with pytest.raises(ValueError, match=r"pass diag=<array of k\(x, x\)"):
            call()
    for norm in ("fro", "spectral"):
        with pytest.raises(ValueError, match="needs the kernel between all rows"):
            model.approximation_error(new, norm)


def test_the_training_matrix_needs_no_diagonal(given):
    kernel, K, _, _ = given
    model = GaussianProcessRegressor("precomputed", landmarks=np.arange(30), alpha=0.1, amplitude=1.0).fit(K, Y)
    known = GaussianProcessRegressor(kernel, landmarks=np.arange(30), alpha=0.1, amplitude=1.0).fit(X, Y)
    np.testing.assert_allclose(model.predict(K, return_std=True)[1], known.predict(X, return_std=True)[1], atol=1e-6)
    assert model.approximation_error(K, "trace").value == pytest.approx(model.certificate_.trace.value, abs=1e-9)
    # A square block of other rows is not the training matrix, though it has its shape.
    with pytest.raises(ValueError, match="pass diag="):
        model.residual(K[::-1])


def test_ridge_and_clusters_of_new_rows_need_no_diagonal():
    kernel = KERNELS["gaussian"]
    K, K_new = kernel(X, X), kernel(NEW, X)
    ridge = KernelRidge(0.1, kernel="precomputed", landmarks=np.arange(30)).fit(K, Y)
    np.testing.assert_allclose(
        ridge.predict(K_new), KernelRidge(0.1, kernel=kernel, landmarks=X[:30]).fit(X, Y).predict(NEW)
    )
    clusters = SpectralClustering(
        2, kernel="precomputed", n_components=20, landmarks=np.arange(60), random_state=0
    ).fit(K)
    assert clusters.predict(K_new).shape == (150,)
    np.testing.assert_array_equal(clusters.predict(K), clusters.labels_)


def test_a_diagonal_that_does_not_fit_is_named():
    K = KERNELS["gaussian"](X, X)
    model = Nystroem("precomputed", n_components=5, landmarks=np.arange(20)).fit(K)
    for diag in (np.ones(3), -np.ones(120), np.full(120, np.nan)):
        with pytest.raises(ValueError, match="diag must hold a finite"):
            model.residual(K, diag=diag)
    with pytest.raises(ValueError, match="diag is for kernel='precomputed' only"):
        Nystroem(n_components=5).fit(X).residual(X, diag=np.ones(120))
