"""Covariances of Gaussian processes: kernel, amplitude and noise, also as one of scikit-learn's kernels.

``ConstantKernel() * RBF() + WhiteKernel()`` is a covariance. Its parameters are learned by scikit-learn from the exact
likelihood of some rows; its amplitude and noise are then found again on all rows, within their bounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nystrom.devices import to_host
from nystrom.kernels import Kernel, Scaled, from_scikit
from nystrom.kernels.scikit import ScikitKernel, class_name, signal_of
from nystrom.types import Array, Matrix, to_dense

Bounds = tuple[float, float]
ANYWHERE: Bounds = (0.0, float("inf"))

# Rows of the exact likelihood: its time grows with their cube.
MOST_EXACT_ROWS = 2000
# With more rows than those, an optimum on so many of them is where the search on all of them begins.
_FIRST_ROWS = 500
# Evaluations of the likelihood of 2,000 rows, some seconds each, that improve on that optimum.
_LAST_EVALUATIONS = 15


@dataclass(frozen=True)
class Variance:
    """The noise or the amplitude: a number, or None for one to be found within ``bounds``."""

    value: float | None = None
    bounds: Bounds = ANYWHERE


@dataclass(frozen=True)
class Covariance:
    """``amplitude · kernel + noise · I``.

    ``gamma_bounds`` is None where the kernel's bandwidth is given. ``source`` is the kernel of scikit-learn, if any,
    and ``jitter`` what is added to its own noise: scikit-learn's ``alpha``.
    """

    kernel: Kernel
    gamma_bounds: Bounds | None
    amplitude: Variance
    noise: Variance
    source: ScikitKernel | None = None
    jitter: float = 0.0

    def settled(self, noise: float, amplitude: float) -> ScikitKernel:
        """Return the kernel of scikit-learn with this noise and amplitude, where they were to be found."""
        assert self.source is not None
        found = self.source.clone_with_theta(self.source.theta)
        given, bounds = found.get_params(), _bounds_by_name(found)
        changed: dict[str, float] = {}
        if self.amplitude.value is None:
            factor = amplitude / _signal(self.source)[1]
            changed |= {name: given[name] * factor**power for name, power in _amplitudes(found) or ()}
        if self.noise.value is None:
            free = _free_noises(found)
            own = sum(given[name] for name in free)
            share = (noise - self.jitter - (noise_level(found) or 0.0) + own) / own
            changed |= {name: given[name] * share for name in free}
        return found.set_params(**{name: float(np.clip(value, *bounds[name])) for name, value in changed.items()})


class ExactSample(NamedTuple):
    """The rows whose exact likelihood is taken: their columns, normalised target, and noise beside the kernel's."""

    X: Array
    y: Array
    alpha: float | Array


def covariance_of(kernel: ScikitKernel, alpha: float, *, refined: bool) -> Covariance:
    """Return what a kernel of scikit-learn says of kernel, amplitude and noise; ``refined`` leaves the last two free.

    ``alpha`` is added to the noise of its WhiteKernels.
    """
    ours, amplitude = _signal(kernel)
    noise = alpha + (noise_level(kernel) or 0.0)
    found, left = Variance(amplitude), Variance(noise)
    names, free = _amplitudes(kernel), _free_noises(kernel)
    bounds, values = _bounds_by_name(kernel), kernel.get_params()
    if refined and names:
        ranges = np.array([(np.asarray(bounds[name]) / values[name]) ** (1 / power) for name, power in names])
        found = Variance(None, (amplitude * float(ranges[:, 0].max()), amplitude * float(ranges[:, 1].min())))
    if refined and free and noise_level(kernel) is not None:
        fixed = noise - sum(values[name] for name in free)
        low, high = (fixed + sum(bounds[name][end] for name in free) for end in (0, 1))
        left = Variance(None, (low, high))
    return Covariance(ours, None, found, left, kernel, alpha)


def noise_level(kernel: ScikitKernel) -> float | None:
    """Return the variance of the noise in a kernel of scikit-learn, or None if it varies from row to row."""
    match class_name(kernel):
        case "WhiteKernel":
            return float(kernel.noise_level)
        case "Sum":
            left, right = noise_level(kernel.k1), noise_level(kernel.k2)
            return None if left is None or right is None else left + right
        case "Product":
            levels = [noise_level(part) for part in (kernel.k1, kernel.k2)]
            for constant, level in ((kernel.k1, levels[1]), (kernel.k2, levels[0])):
                if class_name(constant) == "ConstantKernel" and level is not None:
                    return float(constant.constant_value) * level
            return 0.0 if levels == [0.0, 0.0] else None
        case "Exponentiation":
            return 0.0 if noise_level(kernel.kernel) == 0 else None
    return 0.0


def noise_of_rows(kernel: ScikitKernel, X: Matrix) -> Array:
    """Return the variance of the noise in a kernel of scikit-learn at each row of X."""
    level, signal = noise_level(kernel), signal_of(kernel)
    if level is not None or signal is None:
        return np.full(X.shape[0], level)
    rows = to_dense(to_host(X)).astype(np.float64)
    return np.maximum(kernel.diag(rows) - signal.diag(rows), 0.0)


def exact_process(kernel: ScikitKernel, sample: ExactSample, **options: Any) -> Any:
    """Return scikit-learn's process of some rows, not fitted, but ready to give its likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    process = GaussianProcessRegressor(kernel, alpha=sample.alpha, **options)
    process.kernel_, process.X_train_, process.y_train_ = kernel, sample.X, sample.y
    return process


def learn(
    kernel: ScikitKernel, sample: ExactSample, *, optimizer: str | Callable[..., Any] | None, n_restarts: int, seed: int
) -> ScikitKernel:
    """Return the kernel with the parameters that maximise the exact likelihood of the sample.

    The optimiser of scikit-learn works on scikit-learn's gradients. Of a sample of 2,000 rows, the restarts are made
    on 500, and their best optimum is improved on all, by 15 evaluations.
    """
    if optimizer is None or kernel.n_dims == 0:
        return kernel.clone_with_theta(kernel.theta)
    options = {"optimizer": optimizer, "n_restarts_optimizer": n_restarts, "random_state": seed}
    if len(sample.X) >= MOST_EXACT_ROWS:
        some = np.random.default_rng(seed).choice(len(sample.X), _FIRST_ROWS, replace=False)
        alpha = sample.alpha[some] if isinstance(sample.alpha, np.ndarray) else sample.alpha
        kernel = _optimised(kernel, ExactSample(sample.X[some], sample.y[some], alpha), options, warns=False)
        options["n_restarts_optimizer"] = 0
        if isinstance(optimizer, str):
            options["optimizer"] = _few_steps
    return _optimised(kernel, sample, options, warns=True)


def _few_steps(objective: Callable[..., Any], theta: Array, bounds: Array) -> tuple[Array, float]:
    """Improve parameters that are near their optimum, by the search that scikit-learn makes."""
    from scipy.optimize import minimize

    options = {"maxfun": _LAST_EVALUATIONS}
    found = minimize(objective, theta, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    return found.x, float(found.fun)


def _optimised(kernel: ScikitKernel, sample: ExactSample, options: dict[str, Any], *, warns: bool) -> ScikitKernel:
    process = exact_process(kernel, sample, **options)
    with warnings.catch_warnings():
        if not warns:
            warnings.simplefilter("ignore")
        # Where it fails, the parameters are found, and only scikit-learn's own posterior is not.
        with suppress(np.linalg.LinAlgError):
            process.fit(sample.X, sample.y)
    return process.kernel_


def _signal(kernel: ScikitKernel) -> tuple[Kernel, float]:
    """Return the kernel without noise, as one of ours, and the constant that it is multiplied by."""
    ours = from_scikit(kernel)
    return (ours.kernel, float(ours.factor)) if isinstance(ours, Scaled) else (ours, 1.0)


def _bounds_by_name(kernel: ScikitKernel) -> dict[str, Bounds]:
    """Return the bounds of every parameter of one number that is not fixed."""
    return {
        each.name: (float(each.bounds[0, 0]), float(each.bounds[0, 1]))
        for each in kernel.hyperparameters
        if not each.fixed and each.n_elements == 1
    }


def _amplitudes(kernel: ScikitKernel, prefix: str = "") -> list[tuple[str, float]] | None:
    """Return the constants that together multiply the signal, each with its power; None if they cannot."""
    if signal_of(kernel) is None:
        return []
    match class_name(kernel):
        case "ConstantKernel":
            return None if kernel.hyperparameter_constant_value.fixed else [(f"{prefix}constant_value", 1.0)]
        case "Sum":
            left, right = _amplitudes(kernel.k1, f"{prefix}k1__"), _amplitudes(kernel.k2, f"{prefix}k2__")
            return None if left is None or right is None else left + right
        case "Product":
            left = _amplitudes(kernel.k1, f"{prefix}k1__")
            return _amplitudes(kernel.k2, f"{prefix}k2__") if left is None else left
        case "Exponentiation":
            inner = _amplitudes(kernel.kernel, f"{prefix}kernel__")
            return None if inner is None else [(name, power / kernel.exponent) for name, power in inner]
    return None


def _free_noises(kernel: ScikitKernel, prefix: str = "") -> list[str]:
    """Return the levels of the WhiteKernels that are terms of a sum and not fixed."""
    match class_name(kernel):
        case "WhiteKernel" if not kernel.hyperparameter_noise_level.fixed:
            return [f"{prefix}noise_level"]
        case "Sum":
            return _free_noises(kernel.k1, f"{prefix}k1__") + _free_noises(kernel.k2, f"{prefix}k2__")
    return []
