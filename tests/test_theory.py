"""The paper's bounds hold, as numbers, for the errors that are measured."""

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.kernels import Gaussian, Laplacian, Linear, Polynomial
from nystrom.theory import bounds, constants, sketch_sizes

KERNELS = [
    Gaussian(0.3),
    Linear(),
    Polynomial(degree=2, gamma=0.5, coef0=1.0),
    Polynomial(degree=3, gamma=0.2, coef0=1.0),
    Polynomial(),
    Polynomial(gamma=None),
    Gaussian(None),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("m", [10, 60])
def test_the_error_is_below_every_bound(kernel, m):
    X = np.random.default_rng(0).normal(size=(400, 3))
    features = Nystroem(kernel, n_components=None, landmarks="kmeans", n_landmarks=m, random_state=0).fit(X)
    found = bounds(features, X)
    assert found.error <= found.trace * (1 + 1e-9) + 1e-9
    assert found.error <= found.proposition <= found.theorem
    assert features.certificate_.trace_norm <= found.trace * (1 + 1e-9) + 1e-9
    nearest = ((X[:, None] - features.landmarks_[None]) ** 2).sum(axis=2).min(axis=1)
    assert found.quantization == pytest.approx(nearest.sum(), rel=1e-9)
    assert "Proposition 1" in str(found)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_constants_bound_differences_of_kernel_values(kernel):
    rng = np.random.default_rng(1)
    a, b, c, d = (rng.uniform(-1, 1, size=(500, 3)) for _ in range(4))
    radius = np.sqrt(3)
    eta, stretch = constants(kernel, radius, 3)
    values = [
        np.array([kernel(x[None], y[None])[0, 0] for x, y in zip(u, v, strict=True)]) for u, v in ((a, b), (c, d))
    ]
    moved = ((a - c) ** 2).sum(axis=1) + ((b - d) ** 2).sum(axis=1)
    assert np.all((values[0] - values[1]) ** 2 <= eta * moved * (1 + 1e-9))
    across = np.array([kernel(x[None], y[None])[0, 0] for x, y in zip(a, c, strict=True)])
    apart = kernel.diag(a) - 2 * across + kernel.diag(c)
    assert np.all(apart <= stretch * ((a - c) ** 2).sum(axis=1) * (1 + 1e-9) + 1e-12)


def test_the_newer_sketch_is_smaller_and_wrong_values_are_named():
    paper, newer = sketch_sizes(500, 0.2)
    assert (paper, newer) == (12_500, 196)
    with pytest.raises(ValueError, match=r"epsilon must lie between 0 and 1; got 2\.0"):
        sketch_sizes(10, 2.0)
    with pytest.raises(ValueError, match="n_landmarks must be a whole number of at least 1; got '10'"):
        sketch_sizes("10", 0.1)
    with pytest.raises(ValueError, match="epsilon must be a finite number; got None"):
        sketch_sizes(10, None)
    with pytest.raises(ValueError, match="Gaussian, linear and polynomial"):
        constants(Laplacian(1.0), 1.0)
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ValueError, match="between 0 and 1/3"):
        bounds(Nystroem(n_components=10, random_state=0).fit(X), X, epsilon=0.5)
