"""A function that is no inner product is refused, however it is given; one that is passes."""

import numpy as np
import pytest

from nystrom import KernelRidge, Nystroem
from nystrom.engine import LocalEngine
from nystrom.engine.passes import Passes
from nystrom.exceptions import AccuracyWarning, NotPositiveSemidefiniteError
from nystrom.kernels import FromCallable, Gaussian, Kernel, Linear, Matern, Polynomial, Precomputed
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import optimal
from nystrom.rows import as_blocks


def indefinite_kernels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    yield "tanh", np.tanh(X @ X.T - 1)
    yield "distance", -((X[:, None] - X) ** 2).sum(axis=2)
    A = rng.normal(size=(300, 300))
    yield "random", A + A.T + 20 * np.eye(300)
    # The landmarks, the first rows, see an inner product; the others are too like them.
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    K[:40, 40:] *= 1.3
    K[40:, :40] *= 1.3
    yield "hidden", K


INDEFINITE = dict(indefinite_kernels())


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.AccuracyWarning")
@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("machine", ["features", "ridge"])
@pytest.mark.parametrize("landmarks", ["auto", "uniform", np.arange(40)], ids=["auto", "uniform", "given"])
@pytest.mark.parametrize("name", INDEFINITE)
def test_an_indefinite_kernel_is_an_error_whatever_the_landmarks(name, landmarks, machine, dtype):
    K = INDEFINITE[name].astype(dtype)
    options = {"kernel": "precomputed", "n_components": 20, "landmarks": landmarks, "random_state": 0}
    fit = Nystroem(**options).fit if machine == "features" else KernelRidge(**options).fit
    with pytest.raises(NotPositiveSemidefiniteError, match="not positive semidefinite"):
        fit(K, np.arange(300.0))


@pytest.mark.filterwarnings("ignore::nystrom.exceptions.FewerLandmarksWarning")
def test_an_indefinite_function_is_an_error():
    X = np.random.default_rng(0).normal(size=(300, 5))
    with pytest.raises(NotPositiveSemidefiniteError, match="not positive semidefinite"):
        Nystroem(lambda A, B: np.tanh(A @ B.T - 1), n_components=20, random_state=0).fit(X)


def test_an_asymmetric_kernel_is_an_error():
    X = np.abs(np.random.default_rng(0).normal(size=(100, 5)))
    with pytest.raises(NotPositiveSemidefiniteError, match="not symmetric"):
        Nystroem(lambda A, B: A @ B.T + A.sum(axis=1)[:, None], n_components=5, landmarks=X[:10]).fit(X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "cosine"])
def test_an_inner_product_that_is_given_as_numbers_passes_the_check(kernel, dtype):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(dtype)
    reference = Nystroem(kernel, gamma=0.1, n_components=None, landmarks=np.arange(50)).fit(X)
    K = reference.kernel_(X, X)
    given = Nystroem("precomputed", n_components=None, landmarks=np.arange(50)).fit(K)
    error = abs(given.certificate_.trace.value - reference.certificate_.trace.value)
    assert error <= np.sqrt(np.finfo(dtype).eps) * 50**0.25


def test_kernels_that_a_theorem_vouches_for_say_so():
    good: list[Kernel] = [Gaussian(1.0), Matern(gamma=1.0), Linear(), Polynomial(2)]
    good += [2.0 * Gaussian(1.0) + Linear(), Linear() * Polynomial(3)]
    assert all(kernel.is_psd for kernel in good)
    other = FromCallable(lambda A, B: A @ B.T)
    assert not any(kernel.is_psd for kernel in (other, Precomputed(), Linear() + other, Linear() * other, 2.0 * other))


def test_a_kernel_that_varies_from_call_to_call_is_refused():
    class Grows(Gaussian):
        """A false kernel: values between rows and landmarks are too large for its diagonal."""

        def prepare(self, Z, center=None):
            inner = super().prepare(Z, center)
            return lambda X: 1.5 * inner(X)

        def __call__(self, A, B):
            return super().prepare(B)(A)

    X = np.linspace(0, 1, 60)[:, None]
    with (
        pytest.warns(AccuracyWarning, match="exceed the kernel"),
        pytest.raises(NotPositiveSemidefiniteError, match="give the rows as float64"),
    ):
        optimal(Passes(as_blocks(X), LocalEngine()), Grows(1.0), Landmarks(X[:20]), None)


NO_KERNELS = {
    "flat top": lambda A, B: np.maximum(0, 1 - ((A[:, None] - B) ** 2).sum(axis=-1) / 12),
    "wave": lambda A, B: np.cos(3 * np.sqrt(((A[:, None] - B) ** 2).sum(axis=-1))),
    "difference": lambda A, B: (
        np.exp(-0.3 * ((A[:, None] - B) ** 2).sum(axis=-1)) - 0.9 * np.exp(-0.1 * ((A[:, None] - B) ** 2).sum(axis=-1))
    ),
    "sigmoid": "sigmoid",
}


@pytest.mark.parametrize("n_landmarks", [1, 2, 5])
@pytest.mark.parametrize("kernel", NO_KERNELS.values(), ids=NO_KERNELS)
def test_a_function_that_is_no_kernel_is_refused_with_any_number_of_landmarks(kernel, n_landmarks):
    X = np.random.default_rng(2).normal(size=(400, 5))
    weight = (np.arange(400) % 2).astype(float)
    machines = [
        Nystroem(kernel, n_components=1, n_landmarks=n_landmarks),
        KernelRidge(alpha=1.0, kernel=kernel, landmarks=X[:1]),
    ]
    with pytest.raises(NotPositiveSemidefiniteError, match="not positive semidefinite"):
        machines[0].set_params(random_state=0).fit(X)
    with pytest.raises(NotPositiveSemidefiniteError, match="not positive semidefinite"):
        machines[1].fit(X, X[:, 0], weight)
