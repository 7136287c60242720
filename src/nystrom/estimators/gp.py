"""Gaussian process regression on the factor: the variance is never negative, parameters maximise the likelihood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import (
    RandomState,
    check_count,
    check_flag,
    check_positive,
    make_generator,
)
from nystrom.devices import fetch, to_host
from nystrom.engine.memory import Footprint, cg_footprint, fit_footprint, room_for_values
from nystrom.engine.passes import Passes
from nystrom.estimators.parameters import CommonParameters, ScikitProcess, set_parameters
from nystrom.estimators.pipeline import MapFit, fit_map
from nystrom.estimators.quality import map_for
from nystrom.estimators.scikit_kernels import (
    Covariance,
    ExactSample,
    Variance,
    covariance_given,
    covariance_of,
    exact_process,
    learned_covariance,
    noise_by_row,
    noise_given,
    noise_of_rows,
    target_units,
)
from nystrom.estimators.targets import (
    KernelRegressor,
    kernel_rule,
    landmarks_to_spare,
    numbers_to_fit,
    require_finite_squares,
)
from nystrom.kernels import GammaLike, Kernel, KernelLike
from nystrom.kernels.scikit import is_scikit_kernel
from nystrom.landmarks import Landmarks
from nystrom.linalg import small_product
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import Block, RowBlocks
from nystrom.rows.draw import gather, gather_target
from nystrom.rows.sparse import stack_rows
from nystrom.solvers.conjugate import warn_unless_converged
from nystrom.solvers.landmark_cg import UnfactoredMap, landmark_problem
from nystrom.solvers.ridge import Optimum, RidgeProblem, choose_solver, log_likelihood, optimum, ridge_problem
from nystrom.tuning.judge import Reach
from nystrom.tuning.kernel_rule import WidthRule
from nystrom.tuning.metric import MetricLike
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike, to_dense

# Landmarks for the variance if the mean has thousands, and the residual tolerance of that mean.
_VARIANCE_LANDMARKS = 1000
_MEAN_TOL = 1e-6
# Up to this many rows, draws have the full covariance; with more, it is full on this many of the rows.
_JOINT_ROWS = 3000
_DRAWN_ROWS = 2000


class GaussianProcessRegressor(KernelRegressor):
    """Gaussian process regression.

    The target is ``f(x) + noise``, where f has covariance ``amplitude · k`` and the noise has variance ``alpha``. It
    replaces :class:`sklearn.gaussian_process.GaussianProcessRegressor`, with any of its kernels.

    Parameters
    ----------
    kernel : str, Kernel, callable, scikit-learn kernel or None, default="gaussian"
        As in :class:`nystrom.Nystroem`; or a kernel of :mod:`sklearn.gaussian_process.kernels` such as
        ``ConstantKernel() * RBF() + WhiteKernel()``, which includes amplitude and noise; None is
        ``ConstantKernel() * RBF()``, as in scikit-learn. Its parameters maximise the exact likelihood of at most 2,000
        rows, within their bounds and unless they are "fixed". With more rows, or fewer landmarks than rows, noise and
        amplitude are then optimised again on all rows.
    alpha : float, array of shape (n,) or "auto", default="auto"
        Variance of the noise, or one per row; "auto" maximises the marginal likelihood. Added to the WhiteKernel of a
        scikit-learn kernel; "auto" is 1e-10 there.
    amplitude : float or "auto", default="auto"
        Variance of f if k(x, x) = 1; "auto" maximises the marginal likelihood. A scikit-learn kernel has its own.
    normalize_y : bool, default=False
        Whether to subtract the mean of the target and divide by its deviation first.
    gamma : "auto", "scale", None or float, default="auto"
        Bandwidth of a kernel given by name; "auto" maximises the marginal likelihood, searched on samples of the rows.
        Kernels without a bandwidth, and kernel objects, are used unchanged.
    **shared : CommonParameters
        The parameters of every estimator: see :class:`nystrom.estimators.base.KernelMachine`.

    Attributes
    ----------
    alpha_, amplitude_ : float
        Noise and amplitude, for the normalised target. The noise includes that of a WhiteKernel; with one noise per row
        it is the harmonic mean.
    landmark_coef_ : array of shape (m, t)
        The mean is ``k(x, Z) @ landmark_coef_``, for the normalised target.
    mean_map_ : UnfactoredMap
        The map of the mean, with its own Z, if there are too many landmarks for the factor; else absent, and Z is
        ``landmarks_``.
    log_marginal_likelihood_value_ : float
        Of the normalised target under ``amplitude · L Lᵀ + alpha · I``; summed over the targets.
    likelihood_bound_ : float
        The objective of "auto": a lower bound on the log marginal likelihood of the exact process.
    kernel_ : Kernel or scikit-learn kernel
        The given kernel with optimised parameters: for a scikit-learn kernel, ``kernel_.theta``. ``map_.kernel`` is the
        kernel that the map evaluates, without amplitude and noise.
    landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    The variance of f is ``amplitude (k(x, x) − ‖φ‖² + λ Σ φ²/(S + λ))`` with λ = alpha / amplitude: the part that the
    landmarks leave unexplained counts as unknown. So the variance is never negative, and equals the prior's far from
    all rows. Cost: as :class:`nystrom.KernelRidge`.

    With thousands of landmarks, where :class:`nystrom.KernelRidge` uses conjugate gradients, the mean is computed that
    way on all of them. Bandwidth, noise, amplitude and variance use 1,000 of the landmarks: the part that these leave
    unexplained counts as unknown, so the variance is usually larger than with all landmarks. It is not a bound: amid
    many rows it can be a few percent smaller.

    Examples
    --------
    >>> X = np.linspace(0, 5, 60)[:, None]
    >>> model = GaussianProcessRegressor(random_state=0).fit(X, np.sin(X).ravel())
    >>> mean, std = model.predict(np.array([[2.5], [100.0]]), return_std=True)
    >>> bool(abs(mean[0] - np.sin(2.5)) < 1e-3), bool(std[0] < 1e-2 < std[1])
    (True, True)
    """

    _options: ClassVar[tuple[type, ...]] = (ScikitProcess,)
    alpha: float | str | Array
    amplitude: float | str
    normalize_y: bool
    optimizer: Any
    n_restarts_optimizer: int
    n_targets: int | None
    alpha_: float
    amplitude_: float
    eigenvalues_: Array
    _problem: RidgeProblem
    _ratio: float
    _exact_sample: ExactSample | None
    _log_spread: float
    _y_mean: Array
    _y_deviation: Array

    def __init__(
        self,
        kernel: KernelLike | None = "gaussian",
        *,
        alpha: float | str | Array = "auto",
        amplitude: float | str = "auto",
        normalize_y: bool = False,
        gamma: GammaLike = "auto",
        n_components: int | None = None,
        metric: MetricLike = None,
        max_time: float | str | None = None,
        **shared: Unpack[CommonParameters],
    ) -> None:
        set_parameters(self, GaussianProcessRegressor.__init__, locals())

    def _kernel(self) -> Kernel:
        return covariance_given(self).kernel

    def _normalised(
        self, fitted: NystromMap, units: tuple[Array, Array] | None = None
    ) -> tuple[RidgeProblem, Array, Array]:
        """Return the problem for the normalised target, and the mean and deviation used.

        ``units`` are the mean and deviation, if they were removed before.
        """
        problem, s = ridge_problem(fitted), fitted.statistics
        require_finite_squares(problem.squares)
        t = problem.cross.shape[1]
        if not self.normalize_y or units is not None:
            return problem, *(units or (np.zeros(t), np.ones(t)))
        deviation = np.sqrt(s.target_scatter / s.weight)
        deviation[deviation == 0] = 1.0
        cross = fitted.rotation.T @ s.cross / deviation
        return replace(problem, cross=cross, squares=s.target_scatter / deviation**2), s.target_mean, deviation

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag(self.normalize_y, "normalize_y")

    def fit(self, X: RowsLike, y: TargetLike = None, *, groups: TargetLike = None) -> GaussianProcessRegressor:
        """Fit to the rows X and the target y, which may be None if the rows contain it.

        Rows of the same group in ``groups`` are left out together for :meth:`predict_interval`.
        """
        checked, draw = numbers_to_fit(self, X, y, groups=groups)
        m = landmarks_to_spare(self, checked.rows)
        asked, sample, exact = learned_covariance(self, checked.joined, m)
        noise = noise_by_row(self, checked.joined, asked)
        rows, units, log_spread = checked.joined, None, 0.0
        if noise is not None:
            # Rows with less noise have larger weights; the overall noise is the harmonic mean.
            mean, target = 1 / float(np.mean(1 / noise)), checked.y
            if self.normalize_y:
                # Normalise by the unweighted mean and deviation.
                target = gather_target(rows, self._engine(rows)).astype(np.float64)
                units = target_units(target.reshape(len(target), -1))
                target = (target - units[0]) / units[1] if target.ndim > 1 else (target - units[0][0]) / units[1][0]
            rows = checked.rows.with_target(target, mean / noise)
            asked, log_spread = replace(asked, noise=Variance(mean)), 0.5 * float(np.log(noise / mean).sum())
        many = (
            m is not None
            and choose_solver(*rows.shape, m, factor_fits=self._resources().factor_fits(rows, m)).solver != "factor"
        )
        # With a time limit, held-out rows choose the width together with kernel and metric.
        searched, timed = None, self.max_time is not None and isinstance(self.kernel, str)
        if asked.gamma_bounds is not None and not timed:
            searched = WidthRule(
                lambda fitted, *_: _optimum(fitted, self._normalised(fitted, units)[0], asked).objective,
                bounds=asked.gamma_bounds,
            )
        request = self._request(
            rows,
            kernel=asked.kernel,
            # Otherwise only the likelihood judges widths.
            kernel_rule=replace(kernel_rule(self, rows, Reach(), searched), any_width=timed),
            factor_landmarks=_VARIANCE_LANDMARKS if many else None,
            footprint=_many_footprint if many else fit_footprint,
        )
        fit = fit_map(rows, request)
        results = self._solved(fit.factored, asked, units, log_spread)
        if many:
            results |= _separate_mean(fit, rows, results, units)
        if sample is not None and exact:
            value = exact_process(results["kernel_"], sample).log_marginal_likelihood(results["kernel_"].theta)
            if np.isfinite(value):
                results["log_marginal_likelihood_value_"] = float(value)
        t = results["landmark_coef_"].shape[1]
        if self.n_targets not in (None, t):
            raise ValueError(f"The number of targets seen in `y` is {t}, and n_targets={self.n_targets!r}.")
        results["_held"] = draw.take(
            fit.passes.engine,
            checked.y,
            None if noise is None else mean / noise,
            penalty=results["_ratio"],
            fit_intercept=False,
            tuned=True,
            whole=noise is not None,
        )
        # scikit-learn's process drops the axis of a single target too.
        return self._store(checked.rows, fit, **results | {"_exact_sample": sample}, _one_target=t == 1)

    def _solved(
        self,
        fitted: NystromMap,
        asked: Covariance | None = None,
        units: tuple[Array, Array] | None = None,
        log_spread: float = 0.0,
    ) -> dict[str, Any]:
        """Return noise, amplitude and coefficients from the sums of the map."""
        if asked is None:
            if isinstance(noise_given(self), np.ndarray):
                raise ValueError("processes with a noise for each row cannot be merged: fit one to all rows.")
            asked = covariance_given(self)
            if asked.source is not None:
                asked = covariance_of(self.kernel_, asked.jitter, refined=self.optimizer is not None)
        problem, mean, deviation = self._normalised(fitted, units)
        found = _optimum(fitted, problem, asked)
        ratio = found.alpha / found.amplitude
        weights, _ = problem.solve(ratio)
        t = problem.cross.shape[1]
        results = {
            "alpha_": found.alpha,
            "amplitude_": found.amplitude,
            "likelihood_bound_": -found.objective * problem.count * t - t * log_spread,
            "log_marginal_likelihood_value_": log_likelihood(problem, *found[:2]) - t * log_spread,
            "landmark_coef_": fitted.projection @ weights,
            "_problem": problem,
            "_ratio": ratio,
            "_y_mean": mean,
            "_y_deviation": deviation,
            "_log_spread": log_spread,
            "_exact_sample": None,
            "_held": None,
        }
        if asked.source is not None:
            results["kernel_"] = asked.settled(*found[:2])
        return results

    def log_marginal_likelihood(
        self,
        theta: Array | None = None,
        eval_gradient: bool = False,
        clone_kernel: bool = True,
        *,
        alpha: float | None = None,
        amplitude: float | None = None,
    ) -> Any:
        """Return the log marginal likelihood for other parameters, or that of the fit.

        Parameters
        ----------
        theta : array, optional
            Parameters of a scikit-learn kernel. The likelihood is then the exact one of the rows that the parameters
            were optimised on, at most 2,000, in O(n³).
        eval_gradient : bool, default=False
            Whether to also return the gradient with respect to ``theta``.
        clone_kernel : bool, default=True
            If False, ``kernel_`` is set to ``theta``, as in scikit-learn.
        alpha, amplitude : float, optional
            Noise and amplitude, with the same bandwidth; on all rows, in O(r). None uses the value of the fit.
        """
        check_is_fitted(self)
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None: give kernel_.theta.")
            if alpha is None and amplitude is None:
                return self.log_marginal_likelihood_value_
            alpha = self.alpha_ if alpha is None else check_positive(alpha, "alpha")
            amplitude = self.amplitude_ if amplitude is None else check_positive(amplitude, "amplitude")
            return log_likelihood(self._problem, alpha, amplitude) - self._problem.cross.shape[1] * self._log_spread
        if self._exact_sample is None:
            raise ValueError(
                "log_marginal_likelihood(theta) needs a kernel of sklearn.gaussian_process.kernels, and the rows that "
                "its parameters were found on: a model file has them if it was written by save(path, full=True)."
            )
        process = exact_process(self.kernel_, ExactSample(*self._exact_sample))
        return process.log_marginal_likelihood(theta, eval_gradient, clone_kernel)

    def predict(
        self,
        X: RowsLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        include_noise: bool = False,
        diag: TargetLike = None,
        out: OutPath = None,
    ) -> Emitted:
        """Return the mean of f at the rows of X, optionally with its standard deviation or covariance.

        The noise of a WhiteKernel is included, as in scikit-learn. Before a fit the mean is 0 and the rest that of the
        prior, if all parameters of the kernel are numbers.

        Parameters
        ----------
        X : rows
            Any rows.
        return_std, return_cov : bool, default=False
            What to return in addition to the mean.
        include_noise : bool, default=False
            Whether deviations and covariances are those of a new target, ``alpha`` included, rather than of f.
        diag : array of shape (n,), optional
            k(x, x) of each row, for ``return_std`` with ``kernel="precomputed"`` and rows other than the training rows.
        out : path, optional
            Where to stream the means, followed by the deviations with ``return_std``, one column each, as in
            :meth:`nystrom.Nystroem.transform`.

        Returns
        -------
        mean : array of shape (n,) or (n, t)
        std : array of shape (n,) or (n, t)
            With ``return_std``.
        cov : array of shape (n, n) or (n, n, t)
            With ``return_cov``; O(n²) memory.
        """
        if return_std and return_cov:
            raise ValueError(
                "return_std and return_cov cannot both be True: the diagonal of the covariance holds both."
            )
        if out is not None and return_cov:
            raise ValueError("out= holds means and deviations; a covariance has a row and a column for each row of X.")
        if not hasattr(self, "map_"):
            return _predict_prior(self, X, return_std, return_cov)
        rows = self._check_X(X, reset=False)
        t = self.landmark_coef_.shape[1]
        fitted = map_for(self, rows, diag) if return_std else self.map_

        mean_map = getattr(self, "mean_map_", None)

        def function(block: Block) -> Array:
            C = (mean_map or self.map_).evaluate(block.X)
            mean = small_product(C, self.landmark_coef_) * self._y_deviation + self._y_mean
            if not return_std:
                return mean
            C = C if mean_map is None else self.map_.evaluate(block.X)
            deviation = np.sqrt(_variance(self, fitted, block, C) + _noise_at(self, block.X, include_noise))
            return np.hstack([mean, deviation[:, None] * self._y_deviation])

        label = f"predict {return_std} {include_noise}" if return_std else "predict"
        values = self._emit(rows, function, 2 * t if return_std else t, np.float64, label=label, out=out)
        if out is not None:
            return values
        mean, deviation = (values[:, 0], values[:, -1]) if self._one_target else (values[:, :t], values[:, t:])
        if return_cov:
            everything = rows.take(np.arange(rows.shape[0]))
            covariance = _covariance(self, everything)
            covariance[np.diag_indices_from(covariance)] += _noise_at(self, everything, include_noise)
            return mean, _in_units(self, covariance, power=2)
        return (mean, deviation) if return_std else mean

    def plot(self, X: RowsLike = None, y: TargetLike = None, **options: Any) -> Any:
        """Plot the mean and a band of two deviations for rows of one column; see :func:`nystrom.plotting.plot_band`.

        X and y are drawn as points; without X the plot spans the landmarks. Returns the matplotlib Axes.
        """
        from nystrom.plotting import plot_band

        check_is_fitted(self)
        return plot_band(self, X, y, **options)

    def sample_y(
        self, X: RowsLike, n_samples: int = 1, random_state: RandomState = 0, *, diag: TargetLike = None
    ) -> Array:
        """Draw functions from the posterior (the prior before a fit), and return their values at the rows of X.

        Up to 3,000 rows the draws have the full covariance of :meth:`predict`. With more rows, the part that the
        landmarks leave unexplained is drawn at 2,000 of the rows, and conditioned on there; the remaining part is
        independent between rows, with the correct deviation of each row. ``diag`` is as in :meth:`predict`.

        Returns
        -------
        array of shape (n, n_samples) or (n, t, n_samples)
        """
        n_samples, rng = check_count(n_samples, "n_samples"), make_generator(random_state)
        if not hasattr(self, "map_"):
            return _sample_prior(self, X, n_samples, rng)
        rows = self._check_X(X, reset=False)
        n, t, r = rows.shape[0], self.landmark_coef_.shape[1], self.n_components_
        # Draw target by target, so that the first does not depend on whether there are others.
        normal = np.hstack([rng.standard_normal((r + n, n_samples)) for _ in range(t)])
        # Draws are made on the host: random numbers come from there.
        phi = fetch(self._emit(rows, lambda block: self.map_.features(block.X), r, np.float64, label="features"))
        draws = (phi * np.sqrt(self._ratio / (self.eigenvalues_ + self._ratio))) @ normal[:r]
        fitted = map_for(self, rows, diag)
        draws += _draw_unexplained(self, fitted.kernel, fitted, rows, phi, normal[r:], rng)
        draws *= np.sqrt(self.amplitude_)
        if is_scikit_kernel(self.kernel_):
            noise = self._emit(rows, lambda block: _noise_at(self, block.X, False), None, np.float64, label="noise")
            draws += np.sqrt(fetch(noise))[:, None] * rng.standard_normal(draws.shape)
        values = fetch(self.predict(X)).reshape(n, t, 1) + draws.reshape(n, t, n_samples) * self._y_deviation[:, None]
        values = values[:, 0] if self._one_target else values
        return values if rows.home is None else rows.home.send(values)


def _noise_at(machine: Any, X: Matrix, include_noise: bool) -> Array:
    """Return the noise that a deviation includes: a WhiteKernel's always, ``alpha`` if requested."""
    alpha = noise_given(machine)
    if include_noise and isinstance(alpha, np.ndarray) and alpha.size > 1:
        raise ValueError("include_noise=True: alpha has one variance per training row, and none for new rows.")
    if not is_scikit_kernel(machine.kernel_):
        return np.full(X.shape[0], machine.alpha_ if include_noise else 0.0)
    own = noise_of_rows(machine.kernel_, X)
    return own + np.asarray(alpha).max() if include_noise else own


def _in_units(machine: Any, values: Array, *, power: int) -> Array:
    """Convert deviations or covariances of the normalised target to units of each target."""
    if machine._one_target:
        return np.asarray(values * machine._y_deviation[0] ** power)
    return np.asarray(values[..., None] * machine._y_deviation**power)


def _variance(machine: Any, fitted: NystromMap, block: Block, C: Array) -> Array:
    """Return the variance of f at the rows of a block, for the normalised target, from their kernel values."""
    phi = C.astype(np.float64, copy=False) @ machine.map_.projection
    left = fitted.residual(block.X, phi, start=block.start)
    shrunk = machine._ratio / (machine.eigenvalues_ + machine._ratio)
    # If k varies by many orders, rounding can put ‖φ‖² above k(x, x); the variance never exceeds the prior's.
    prior = fitted.kernel.diag(block.X, start=block.start)
    return np.asarray(machine.amplitude_ * np.minimum(left + to_host(np.square(phi) @ shrunk), prior))


def _covariance(machine: Any, X: Matrix) -> Array:
    """Return the covariance of f at the rows of X, for the normalised target."""
    if not machine.map_.kernel.has_coordinates:
        raise ValueError("a covariance needs k between new rows, which kernel='precomputed' does not know.")
    X = X.astype(np.float64)
    phi = machine.map_.features(X)
    # In the order of :meth:`_variance`: the difference is rounded once, and only small terms are added.
    left = machine.map_.kernel(X, X) - phi @ phi.T
    left[np.diag_indices_from(left)] = machine.map_.residual(X, phi)
    covariance = left + (phi * (machine._ratio / (machine.eigenvalues_ + machine._ratio))) @ phi.T
    return np.asarray(machine.amplitude_ * (covariance + covariance.T) / 2)


def _optimum(fitted: NystromMap, problem: RidgeProblem, asked: Covariance) -> Optimum:
    """Return noise and amplitude that maximise the bound on the likelihood, within their bounds."""
    given = [asked.noise.value, asked.amplitude.value]
    found = optimum(problem, unexplained_trace(fitted), *given)
    within = [float(np.clip(found[i], *each.bounds)) for i, each in enumerate((asked.noise, asked.amplitude))]
    if within == [*found[:2]]:
        return found
    # If one is at a bound, optimise the other again.
    given = [value if value != found[i] else given[i] for i, value in enumerate(within)]
    found = optimum(problem, unexplained_trace(fitted), *given)
    within = [float(np.clip(found[i], *each.bounds)) for i, each in enumerate((asked.noise, asked.amplitude))]
    return found if within == [*found[:2]] else optimum(problem, unexplained_trace(fitted), *within)


def unexplained_trace(fitted: NystromMap) -> float:
    """Return ``tr(K − L Lᵀ)``, or 0 if it is rounding."""
    trace = fitted.statistics.trace
    left = trace - float(fitted.eigenvalues.sum())
    return left if left > 64 * np.finfo(np.float64).eps * trace else 0.0


def _many_footprint(rows: RowBlocks, m: int, held: int, per_thread: int) -> Footprint:
    few = fit_footprint(rows, min(m, _VARIANCE_LANDMARKS), held, per_thread)
    return few.joined(cg_footprint(rows, m, 1, held, per_thread))


def _separate_mean(
    fit: MapFit, rows: RowBlocks, found: dict[str, Any], units: tuple[Array, Array] | None
) -> dict[str, Any]:
    """Return the mean on all landmarks by conjugate gradients, if the factor uses only some of them.

    ``units`` are the mean and deviation of the target, if they were removed before.
    """
    engine, ratio = fit.passes.engine, found["_ratio"]
    Y = gather_target(rows, engine).reshape(rows.shape[0], -1)
    targeted = rows.with_target(Y if units is not None else (Y - found["_y_mean"]) / found["_y_deviation"])
    room = room_for_values(engine.room)
    problem = landmark_problem(targeted, engine, fit.kernel, fit.landmarks, room=room, alpha=ratio)
    solution, _ = problem.solve(ratio, tol=_MEAN_TOL)
    warn_unless_converged(solution.residuals, solution.converged, _MEAN_TOL, "Give alpha a larger value.")
    return {"mean_map_": UnfactoredMap(fit.landmarks, fit.kernel), "landmark_coef_": solution.coefficients}


def _predict_prior(machine: Any, X: RowsLike, return_std: bool, return_cov: bool) -> Any:
    """Return predictions before a fit: the mean 0, and the deviation or covariance of the prior."""
    if covariance_given(machine).kernel.needs_moments:
        check_is_fitted(machine)  # raises: the width is that of the training rows
    prior, rows = _prior(machine, X)
    X = to_dense(rows.take(np.arange(rows.shape[0]))).astype(np.float64)
    t = machine.n_targets or 1
    mean = np.zeros((len(X), t) if t > 1 else len(X))
    noise = 0.0 if prior.source is None else noise_of_rows(prior.source, X)
    if return_cov:
        found = prior.amplitude.value * prior.kernel(X, X) + np.diag(np.broadcast_to(noise, len(X)))
    elif return_std:
        found = np.sqrt(prior.amplitude.value * prior.kernel.diag(X) + noise)
    else:
        return mean
    return mean, np.stack([found] * t, axis=-1) if t > 1 else found


def _sample_prior(machine: Any, X: RowsLike, n_samples: int, rng: np.random.Generator) -> Array:
    """Return draws from the prior, including the noise of a WhiteKernel, at the rows of X."""
    prior, rows = _prior(machine, X)
    n, t = rows.shape[0], machine.n_targets or 1
    normal = rng.standard_normal((n, t * n_samples))
    draws = _draw_unexplained(machine, prior.kernel, None, rows, np.zeros((n, 0)), normal, rng)
    draws *= np.sqrt(prior.amplitude.value or 1.0)
    if prior.source is not None:
        noise = noise_of_rows(prior.source, rows.take(np.arange(n)))
        draws += np.sqrt(noise)[:, None] * rng.standard_normal(draws.shape)
    draws = draws.reshape(n, t, n_samples) if t > 1 else draws
    return draws if rows.home is None else rows.home.send(draws)


def _prior(machine: Any, X: RowsLike) -> tuple[Covariance, RowBlocks]:
    """Return the covariance before a fit, and the rows, from which a width that is not given is computed."""
    rows, asked = machine._check_X(X, reset=True), covariance_given(machine)
    kernel = asked.kernel
    if kernel.needs_moments:
        kernel = kernel.resolve(Passes(rows, machine._engine(rows)).moments)
    return replace(asked, kernel=kernel, amplitude=Variance(asked.amplitude.value or 1.0)), rows


def _draw_unexplained(
    machine: Any,
    kernel: Kernel,
    fitted: NystromMap | None,
    rows: RowBlocks,
    phi: Array,
    normal: Array,
    rng: np.random.Generator,
) -> Array:
    """Return draws with covariance ``k − φφᵀ`` at the rows, or with covariance k before a fit; see ``sample_y``."""
    n = rows.shape[0]
    if n <= _JOINT_ROWS and kernel.has_coordinates:
        X = rows.take(np.arange(n)).astype(np.float64)
        left = kernel(X, X) - phi @ phi.T
        values, vectors = np.linalg.eigh((left + left.T) / 2)
        return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * normal))
    wider: NystromMap | UnfactoredMap | None = fitted
    weights = np.zeros((phi.shape[1], normal.shape[1]))
    if kernel.has_coordinates:
        # A draw from the prior at the landmarks and some rows, minus the part that the landmarks explain.
        some = np.sort(rng.choice(n, min(n, _DRAWN_ROWS), replace=False))
        points = gather(Passes(rows, machine._engine(rows)), some)
        if fitted is not None:
            points = stack_rows([fitted.landmarks.points, points])
        wider = UnfactoredMap(Landmarks(points, None), kernel)
        weights = rng.standard_normal((wider.n_components, normal.shape[1]))
    assert wider is not None

    def function(block: Block) -> Array:
        psi = to_host(wider.features(block.X)).astype(np.float64)
        left = np.sqrt(wider.residual(block.X, psi, start=block.start))[:, None]
        return psi @ weights + left * normal[block.start : block.start + len(psi)]

    draws = fetch(machine._emit(rows, function, normal.shape[1], np.float64, label="draws"))
    if fitted is not None and kernel.has_coordinates:
        at_landmarks = wider.features(fitted.landmarks.points).astype(np.float64) @ weights
        draws -= phi @ (fitted.projection.T @ at_landmarks)
    return draws
