"""The kernel of a fit has a number for every parameter, and the way back from components has its width."""

import numpy as np
import pytest

import nystrom
from nystrom.kernels import Chi2, Gaussian, Kernel, Laplacian, Linear, Overlap, Polynomial

MACHINES = [
    nystrom.Nystroem,
    nystrom.KernelRidge,
    nystrom.KernelRidgeClassifier,
    nystrom.KernelPCA,
    nystrom.KernelKMeans,
    nystrom.SpectralClustering,
    nystrom.GaussianProcessRegressor,
    nystrom.KernelLogisticRegression,
    nystrom.KernelSVC,
    nystrom.KernelSVR,
]
KERNELS = [
    Gaussian(None),
    Polynomial(2, gamma="scale"),
    Polynomial(2, gamma=None),
    Chi2(None) + Gaussian("scale"),
    2.0 * Laplacian(None).on([0, 2]) + Linear(),
    Overlap("scale").on([1]) * Gaussian(None),
]


def gammas(kernel: Kernel) -> list:
    return [value for name, value in kernel.get_params().items() if name.split("__")[-1] == "gamma"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.random((60, 4))
    X[:, 1] = rng.integers(0, 3, 60)
    return X, rng.integers(0, 2, 60)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_parameter_of_the_fitted_kernel_is_a_number(rows, machine, kernel):
    X, y = rows
    few = {"n_clusters": 2} if hasattr(machine, "fit_predict") else {}
    fitted = machine(kernel=kernel, n_landmarks=20, random_state=0, **few).fit(X, y)
    assert gammas(fitted.kernel_)
    assert all(isinstance(gamma, float) for gamma in gammas(fitted.kernel_))


@pytest.mark.parametrize("parameters", [{}, {"gamma": [0.3, 0.3, 0.3, 0.3]}, {"metric": np.diag([1.0, 2.0, 3.0, 4.0])}])
def test_a_bandwidth_per_column_leaves_numbers_too(rows, parameters):
    X, y = rows
    fitted = nystrom.KernelRidge(1.0, **{"gamma": None} | parameters, n_landmarks=20, random_state=0).fit(X, y)
    assert all(isinstance(gamma, float) for gamma in gammas(fitted.kernel_))


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_the_way_back_takes_the_width_of_the_columns(rows, kernel):
    X, _ = rows
    results = []
    for gamma in (None, 1 / 4, np.full(4, 1 / 4)):
        if kernel == "poly" and isinstance(gamma, np.ndarray):
            continue
        pca = nystrom.KernelPCA(2, kernel=kernel, gamma=gamma, fit_inverse_transform=True, alpha=1e-3, landmarks=X)
        results.append(pca.fit(X).inverse_transform(pca.transform(X)))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=1e-7)


def test_the_way_back_does_not_depend_on_the_order_of_the_columns(rows):
    X, _ = rows
    gamma, order = np.array([1e-6, 1.0, 2.0, 1.0]), [1, 2, 3, 0]

    def back(X, gamma):
        pca = nystrom.KernelPCA(4, gamma=gamma, fit_inverse_transform=True, alpha=1e-3, landmarks=X).fit(X)
        return pca.inverse_transform(pca.transform(X))

    np.testing.assert_allclose(back(X, gamma)[:, order], back(X[:, order], gamma[order]), atol=1e-7)


def test_the_way_back_of_a_kernel_of_some_columns_uses_every_component(rows):
    X, _ = rows
    kernel = Gaussian(0.5).on([0, 3]) + Gaussian(2.0).on([2])
    pca = nystrom.KernelPCA(2, kernel=kernel, fit_inverse_transform=True, random_state=0).fit(X)
    assert pca.inverse_map_.kernel == Gaussian(0.5) + Gaussian(2.0)
    assert pca.inverse_transform(pca.transform(X)).shape == X.shape
