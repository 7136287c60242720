"""Covariances of Gaussian processes: kernel, amplitude and noise, including scikit-learn's kernels.

``ConstantKernel() * RBF() + WhiteKernel()`` is a covariance. Its parameters are learned by scikit-learn from the exact
likelihood of some rows; amplitude and noise are then optimised again on all rows, within their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from nystrom.checks import check_tolerance, check_variance, make_generator
from nystrom.devices import to_host
from nystrom.engine.passes import Passes
from nystrom.estimators.parameters import chooses_kernel, given_kernel, searches_gamma
from nystrom.kernels import Kernel, Scaled, from_scikit, make_kernel
from nystrom.kernels.scikit import ScikitKernel, class_name, is_scikit_kernel, signal_of
from nystrom.rows import RowBlocks
from nystrom.rows.draw import draw_rows, fetch_rows, row_weights
from nystrom.types import Array, Matrix, to_dense

Bounds = tuple[float, float]
ANYWHERE: Bounds = (0.0, float("inf"))

# scikit-learn's default alpha; its kernels contain the noise.
_JITTER = 1e-10
_NOISE_ADVICE = " For no noise use a small value, such as 1e-10; an array has one per row."
# Largest number of rows for the exact likelihood: its time grows with their cube.
MOST_EXACT_ROWS = 2000
# With more rows than that, the search starts from an optimum on this many of them.
_FIRST_ROWS = 500
# Evaluations of the likelihood of 2,000 rows, a few seconds each, that refine that optimum.
_LAST_EVALUATIONS = 15
# Evaluations of the likelihood of 500 rows per start.
_MOST_EVALUATIONS = 500

# A scikit-learn optimizer: from an objective, a start and bounds to an optimum and its objective.
Optimizer = Callable[..., tuple[Array, float]]


@dataclass(frozen=True)
class Variance:
    """The noise or the amplitude: a number, or None to optimise it within ``bounds``."""

    value: float | None = None
    bounds: Bounds = ANYWHERE


@dataclass(frozen=True)
class Covariance:
    """``amplitude · kernel + noise · I``.

    ``gamma_bounds`` is None if the kernel's bandwidth is given. ``source`` is the scikit-learn kernel, if any, and
    ``jitter`` is added to its own noise: scikit-learn's ``alpha``.
    """

    kernel: Kernel
    gamma_bounds: Bounds | None
    amplitude: Variance
    noise: Variance
    source: ScikitKernel | None = None
    jitter: float = 0.0

    def settled(self, noise: float, amplitude: float) -> ScikitKernel:
        """Return the scikit-learn kernel with this noise and amplitude, if they were optimised."""
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
    """The rows for the exact likelihood: their columns, normalised target, and noise in addition to the kernel's."""

    X: Array
    y: Array
    alpha: float | Array


def scikit_kernel(machine: Any) -> ScikitKernel | None:
    """Return the given scikit-learn kernel, if any; None is its default."""
    if machine.kernel is None:
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        return ConstantKernel() * RBF()
    return machine.kernel if is_scikit_kernel(machine.kernel) else None


def noise_given(machine: Any) -> float | Array | None:
    """Return ``alpha``: a number, one per row, or None if it is to be optimised."""
    if isinstance(machine.alpha, (list, tuple, np.ndarray)):
        values = np.asarray(machine.alpha)
        if values.ndim != 1 or values.dtype.kind not in "iuf" or not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(
                f"alpha as an array must have one variance per row, finite and not negative; got shape "
                f"{values.shape}, dtype {values.dtype}."
            )
        return values.astype(np.float64)
    if scikit_kernel(machine) is None:
        return check_variance(machine.alpha, "alpha", advice=_NOISE_ADVICE)
    return (
        _JITTER
        if isinstance(machine.alpha, str) and machine.alpha == "auto"
        else check_tolerance(machine.alpha, "alpha")
    )


def covariance_given(machine: Any) -> Covariance:
    """Return kernel, amplitude and noise from the parameters: numbers, or None if they are to be optimised."""
    alpha, amplitude = noise_given(machine), check_variance(machine.amplitude, "amplitude")
    number = float(np.mean(alpha)) if isinstance(alpha, np.ndarray) else alpha
    scikit = scikit_kernel(machine)
    if scikit is not None:
        if amplitude is not None:
            raise ValueError(
                f"amplitude={amplitude!r} and kernel={scikit} both set the amplitude: leave amplitude='auto', and "
                f"multiply the kernel by ConstantKernel({amplitude!r}, 'fixed')."
            )
        return covariance_of(scikit, number or 0.0, refined=False)
    auto = searches_gamma(machine)
    given = "gaussian" if chooses_kernel(machine) else given_kernel(machine)
    kernel = make_kernel(given, gamma="scale" if auto else machine.gamma, degree=machine.degree, coef0=machine.coef0)
    free = auto and isinstance(given, str) and hasattr(kernel, "gamma")
    if machine.optimizer is not None and not isinstance(machine.optimizer, str):
        raise ValueError(
            f"optimizer must be 'fmin_l_bfgs_b' or None; got {machine.optimizer!r}. A function is for kernels of "
            f"sklearn.gaussian_process.kernels; for others the optimum is found on the factor."
        )
    if free and machine.optimizer is None:
        raise ValueError(
            "optimizer=None keeps the kernel as it is, and gamma='auto' is to be searched: give gamma a number, or "
            "a kernel of sklearn.gaussian_process.kernels."
        )
    return Covariance(kernel, ANYWHERE if free else None, Variance(amplitude), Variance(number))


def learned_covariance(machine: Any, rows: RowBlocks, m: int | None) -> tuple[Covariance, ExactSample | None, bool]:
    """Return the covariance with the parameters of a scikit-learn kernel learned from a sample of the rows.

    Also return the sample, and whether it contains all rows and each is a landmark.
    """
    asked, alpha, n = covariance_given(machine), noise_given(machine), rows.shape[0]
    if isinstance(alpha, np.ndarray) and len(alpha) not in (1, n):
        raise ValueError(
            f"alpha must be a scalar or an array with same number of entries as y; got {len(alpha)} for {n} rows."
        )
    if asked.noise.value == 0 and noise_level(asked.source) is not None:
        raise ValueError(f"alpha={machine.alpha!r} and a kernel without WhiteKernel leave no noise.{_NOISE_ADVICE}")
    if asked.source is None:
        return asked, None, False
    passes, rng = Passes(rows, machine._engine(rows)), make_generator(machine.random_state)
    numbers, _ = draw_rows(n, MOST_EXACT_ROWS, row_weights(passes), rng)
    some = fetch_rows(passes, numbers)
    assert some.y is not None
    X, y = to_dense(to_host(some.X)).astype(np.float64), some.y.astype(np.float64)
    if machine.normalize_y:
        y = (y - target_units(y)[0]) / target_units(y)[1]
    own = alpha[numbers] if isinstance(alpha, np.ndarray) and len(alpha) > 1 else float(np.max(alpha))  # type: ignore[arg-type]
    sample = ExactSample(X, y, own)
    seed = machine.random_state if isinstance(machine.random_state, int) else int(rng.integers(2**31))
    learned = learn(
        asked.source, sample, optimizer=machine.optimizer, n_restarts=machine.n_restarts_optimizer, seed=seed
    )
    exact = m is not None and m >= n == len(numbers)
    refined = machine.optimizer is not None and not exact
    return covariance_of(learned, asked.jitter, refined=refined), sample, exact


def noise_by_row(machine: Any, rows: RowBlocks, asked: Covariance) -> Array | None:
    """Return the noise variance of each row, or None if all have the same."""
    alpha = noise_given(machine)
    varies = asked.source is not None and noise_level(asked.source) is None
    own = np.broadcast_to(alpha, rows.shape[0]) if isinstance(alpha, np.ndarray) else asked.jitter
    if not varies and (not isinstance(alpha, np.ndarray) or len(alpha) == 1):
        return None
    if asked.source is not None:
        parts = machine._engine(rows).map(rows, lambda block: noise_of_rows(asked.source, block.X), label="noise")
        own = own + np.concatenate([part for _, part in parts])
    if rows.has_weight or not (np.asarray(own) > 0).all():
        why = "the rows hold weights, which divide the noise" if rows.has_weight else "some rows have no noise"
        raise ValueError(f"alpha, or the kernel, has a noise for each row, but {why}.{_NOISE_ADVICE}")
    return np.asarray(own)


def target_units(y: Array) -> tuple[Array, Array]:
    """Return the mean and the deviation of each target; a deviation of 1 if it is constant."""
    deviation = y.std(axis=0)
    return y.mean(axis=0), np.where(deviation == 0, 1.0, deviation)


def covariance_of(kernel: ScikitKernel, alpha: float, *, refined: bool) -> Covariance:
    """Return kernel, amplitude and noise of a scikit-learn kernel; ``refined`` leaves the last two to be optimised.

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
    """Return the noise variance in a scikit-learn kernel, or None if it varies between rows."""
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
    """Return the noise variance in a scikit-learn kernel at each row of X."""
    level, signal = noise_level(kernel), signal_of(kernel)
    if level is not None or signal is None:
        return np.full(X.shape[0], level)
    rows = to_dense(to_host(X)).astype(np.float64)
    return np.maximum(kernel.diag(rows) - signal.diag(rows), 0.0)


def exact_process(kernel: ScikitKernel, sample: ExactSample, **options: Any) -> Any:
    """Return scikit-learn's process for some rows, not fitted, but ready to evaluate its likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    process = GaussianProcessRegressor(kernel, alpha=sample.alpha, **options)
    process.kernel_, process.X_train_, process.y_train_ = kernel, sample.X, sample.y
    return process


def learn(
    kernel: ScikitKernel, sample: ExactSample, *, optimizer: str | Optimizer | None, n_restarts: int, seed: int
) -> ScikitKernel:
    """Return the kernel with the parameters that maximise the exact likelihood of the sample.

    Uses scikit-learn's optimiser and gradients. For a sample of 2,000 rows, the restarts use 500 of them, and the best
    optimum is refined on all by 15 evaluations.
    """
    if optimizer is None or kernel.n_dims == 0:
        return kernel.clone_with_theta(kernel.theta)
    if len(sample.X) >= MOST_EXACT_ROWS:
        rng = np.random.RandomState(seed)
        some = rng.choice(len(sample.X), _FIRST_ROWS, replace=False)
        alpha = sample.alpha[some] if isinstance(sample.alpha, np.ndarray) else sample.alpha
        search = partial(_lbfgs, most=_MOST_EVALUATIONS) if isinstance(optimizer, str) else optimizer
        few = ExactSample(sample.X[some], sample.y[some], alpha)
        kernel = _best_start(kernel, few, search, n_restarts, rng)
        n_restarts, optimizer = 0, _lbfgs if isinstance(optimizer, str) else optimizer
    process = exact_process(kernel, sample, optimizer=optimizer, n_restarts_optimizer=n_restarts, random_state=seed)
    # On failure the parameters are known, and only scikit-learn's own posterior is missing.
    with suppress(np.linalg.LinAlgError):
        process.fit(sample.X, sample.y)
    return process.kernel_


def _best_start(
    kernel: ScikitKernel, sample: ExactSample, search: Optimizer, n_restarts: int, rng: np.random.RandomState
) -> ScikitKernel:
    """Return the best optimum from the kernel's parameters and from random starts within their bounds."""
    process, bounds = exact_process(kernel.clone_with_theta(kernel.theta), sample), kernel.bounds
    if n_restarts and not np.isfinite(bounds).all():
        raise ValueError(f"n_restarts_optimizer={n_restarts} requires that all bounds are finite, in kernel={kernel}.")

    def objective(theta: Array, eval_gradient: bool = True) -> Any:
        found = process.log_marginal_likelihood(theta, eval_gradient, clone_kernel=False)
        return (-found[0], -found[1]) if eval_gradient else -found

    starts = [kernel.theta, *(rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(n_restarts))]
    return kernel.clone_with_theta(min((search(objective, start, bounds) for start in starts), key=itemgetter(1))[0])


def _lbfgs(
    objective: Callable[..., Any], theta: Array, bounds: Array, most: int = _LAST_EVALUATIONS
) -> tuple[Array, float]:
    """Return the optimum of scikit-learn's search, and its objective."""
    from scipy.optimize import minimize

    found = minimize(objective, theta, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxfun": most})
    return found.x, float(found.fun)


def _signal(kernel: ScikitKernel) -> tuple[Kernel, float]:
    """Return the kernel without noise, as one of ours, and the constant that multiplies it."""
    ours = from_scikit(kernel)
    return (ours.kernel, float(ours.factor)) if isinstance(ours, Scaled) else (ours, 1.0)


def _bounds_by_name(kernel: ScikitKernel) -> dict[str, Bounds]:
    """Return the bounds of every scalar parameter that is not fixed."""
    return {
        each.name: (float(each.bounds[0, 0]), float(each.bounds[0, 1]))
        for each in kernel.hyperparameters
        if not each.fixed and each.n_elements == 1
    }


def _amplitudes(kernel: ScikitKernel, prefix: str = "") -> list[tuple[str, float]] | None:
    """Return the constants that multiply the signal, each with its power; None if they cannot be separated."""
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
