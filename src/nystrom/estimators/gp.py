"""Gaussian process regression on the factor: its variance never negative, its parameters by likelihood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import RandomState, check_count, check_flag, check_positive, check_variance, make_generator
from nystrom.devices import to_host
from nystrom.engine import Engine
from nystrom.engine.memory import Footprint, cg_footprint, fit_footprint, room_for_values
from nystrom.estimators.parameters import CommonParameters, ScikitProcess, given_kernel, set_parameters
from nystrom.estimators.pipeline import MapFit, fit_map
from nystrom.estimators.quality import map_beside
from nystrom.estimators.scikit_kernels import ANYWHERE, Covariance, Variance, fixed, is_scikit_kernel, translate
from nystrom.estimators.targets import KernelRegressor, require_finite_squares
from nystrom.kernels import GammaLike, Kernel, KernelLike, make_kernel
from nystrom.linalg import small_product
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import Block, RowBlocks
from nystrom.rows.draw import gather_target
from nystrom.solvers.conjugate import warn_unless_converged
from nystrom.solvers.landmark_cg import UnfactoredMap, landmark_problem
from nystrom.solvers.ridge import Optimum, RidgeProblem, choose_solver, log_likelihood, optimum, ridge_problem
from nystrom.tuning.judge import Reach
from nystrom.tuning.kernel_rule import WidthRule
from nystrom.tuning.metric import MetricLike
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike

# Draws at more rows than this take what the landmarks leave unexplained as independent from row to row.
_JOINT_ROWS = 3000
# Landmarks of the variance where the mean has thousands, and the residual to which that mean is found.
_VARIANCE_LANDMARKS = 1000
_MEAN_TOL = 1e-6
_NOISE_ADVICE = (
    " For no noise take a small one, such as 1e-10. KernelRidge.fit(X, y, sample_weight=1 / noise) takes one per row."
)


class GaussianProcessRegressor(KernelRegressor):
    """Gaussian process regression.

    The target is ``f(x) + noise`` with f of covariance ``amplitude · k`` and noise of variance ``alpha``. It takes the
    place of :class:`sklearn.gaussian_process.GaussianProcessRegressor` for a kernel with one bandwidth.

    Parameters
    ----------
    kernel : str, Kernel, callable or scikit-learn kernel, default="gaussian"
        As in :class:`nystrom.Nystroem`; or a kernel of :mod:`sklearn.gaussian_process.kernels` such as
        ``ConstantKernel() * RBF() + WhiteKernel()``, whose parameters are found within their bounds unless they are
        "fixed". What cannot be found here is refused.
    alpha : float or "auto", default="auto"
        Variance of the noise; "auto" is the optimum of the marginal likelihood. Added to that of a WhiteKernel.
    amplitude : float or "auto", default="auto"
        Variance of f where k(x, x) = 1; "auto" is the optimum of the marginal likelihood.
    normalize_y : bool, default=False
        Whether to take the target's mean away and divide by its deviation first.
    gamma : "auto", "scale", None or float, default="auto"
        Bandwidth of a kernel given by name; "auto" is the optimum of the marginal likelihood, searched on samples of
        the rows. Kernels without a bandwidth, and kernel objects, are taken as they are.
    **shared : CommonParameters
        The parameters of every estimator: see :class:`nystrom.estimators.base.KernelMachine`.

    Attributes
    ----------
    alpha_, amplitude_ : float
        Noise and amplitude, of the normalised target.
    landmark_coef_ : array of shape (m, t)
        The mean is ``k(x, Z) @ landmark_coef_``, of the normalised target.
    mean_map_ : UnfactoredMap
        Z of the mean, where landmarks are so many that it is found apart; else there is none, and Z is ``landmarks_``.
    log_marginal_likelihood_value_ : float
        Of the normalised target under ``amplitude · L Lᵀ + alpha · I``; the sum of the targets.
    likelihood_bound_ : float
        What "auto" maximises: a lower bound on the log marginal likelihood of the exact process.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    The variance of f is ``amplitude (k(x, x) − ‖φ‖² + λ Σ φ²/(S + λ))`` with λ = alpha / amplitude: what the landmarks
    leave unexplained counts as unknown, so it is never negative, and the prior's far from all rows. Cost: as
    :class:`nystrom.KernelRidge`.

    With thousands of landmarks, where :class:`nystrom.KernelRidge` takes conjugate gradients, the mean is found so on
    all of them. Bandwidth, noise, amplitude and variance are those of 1,000 of the landmarks: what these leave
    unexplained counts as unknown, so the variance is mostly larger than that with all. It is no bound: amid many rows
    it can be some percent smaller.

    Examples
    --------
    >>> X = np.linspace(0, 5, 60)[:, None]
    >>> model = GaussianProcessRegressor(random_state=0).fit(X, np.sin(X).ravel())
    >>> mean, std = model.predict(np.array([[2.5], [100.0]]), return_std=True)
    >>> bool(abs(mean[0] - np.sin(2.5)) < 1e-3), bool(std[0] < 1e-2 < std[1])
    (True, True)
    """

    _options: ClassVar[tuple[type, ...]] = (ScikitProcess,)
    alpha: float | str
    amplitude: float | str
    normalize_y: bool
    optimizer: str | None
    alpha_: float
    amplitude_: float
    eigenvalues_: Array
    _problem: RidgeProblem
    _ratio: float
    _y_mean: Array
    _y_deviation: Array

    def __init__(
        self,
        kernel: KernelLike = "gaussian",
        *,
        alpha: float | str = "auto",
        amplitude: float | str = "auto",
        normalize_y: bool = False,
        gamma: GammaLike = "auto",
        n_components: int | None = None,
        metric: MetricLike = None,
        **shared: Unpack[CommonParameters],
    ) -> None:
        set_parameters(self, GaussianProcessRegressor.__init__, locals())

    def _covariance_asked(self) -> Covariance:
        """Return what the parameters say of kernel, amplitude and noise: numbers, or what is to be found."""
        alpha = check_variance(self.alpha, "alpha", advice=_NOISE_ADVICE)
        amplitude = check_variance(self.amplitude, "amplitude")
        if is_scikit_kernel(self.kernel):
            kernel = self.kernel if self.optimizer is not None else fixed(self.kernel)
            return translate(kernel, alpha=alpha, amplitude=amplitude)
        auto = self._searches_gamma
        given = "gaussian" if self._chooses_kernel else given_kernel(self)
        kernel = make_kernel(given, gamma="scale" if auto else self.gamma, degree=self.degree, coef0=self.coef0)
        free = auto and isinstance(given, str) and hasattr(kernel, "gamma")
        if free and self.optimizer is None:
            raise ValueError(
                "optimizer=None keeps the kernel as it is, and gamma='auto' is to be searched: give gamma a number, or "
                "a kernel of sklearn.gaussian_process.kernels."
            )
        return Covariance(kernel, ANYWHERE if free else None, Variance(amplitude), Variance(alpha))

    def _kernel(self) -> Kernel:
        return self._covariance_asked().kernel

    def _optimum(self, fitted: NystromMap, problem: RidgeProblem) -> Optimum:
        asked = self._covariance_asked()
        given = [asked.noise.value, asked.amplitude.value]
        found = optimum(problem, unexplained_trace(fitted), *given)
        within = [float(np.clip(found[i], *each.bounds)) for i, each in enumerate((asked.noise, asked.amplitude))]
        if within == [*found[:2]]:
            return found
        # At a bound, the other of the two is found again.
        given = [value if value != found[i] else given[i] for i, value in enumerate(within)]
        return optimum(problem, unexplained_trace(fitted), *given)

    def _normalised(self, fitted: NystromMap) -> tuple[RidgeProblem, Array, Array]:
        """Return the problem for the normalised target, and the mean and the deviation that were taken out."""
        problem, s = ridge_problem(fitted), fitted.statistics
        require_finite_squares(problem.squares)
        t = problem.cross.shape[1]
        if not self.normalize_y:
            return problem, np.zeros(t), np.ones(t)
        deviation = np.sqrt(s.target_scatter / s.weight)
        deviation[deviation == 0] = 1.0
        cross = fitted.rotation.T @ s.cross / deviation
        return replace(problem, cross=cross, squares=s.target_scatter / deviation**2), s.target_mean, deviation

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag(self.normalize_y, "normalize_y")

    def fit(self, X: RowsLike, y: TargetLike = None) -> GaussianProcessRegressor:
        """Fit to the rows X and the target y, which may be None where the rows hold it."""
        checked = self._check_X_y(X, y)
        rows, bounds = checked.joined, self._covariance_asked().gamma_bounds
        searched = None if bounds is None else WidthRule(self._criterion, bounds=bounds)
        m = self._landmarks_to_spare(rows)
        many = (
            m is not None
            and choose_solver(*rows.shape, m, factor_fits=self._resources().factor_fits(rows, m)).solver != "factor"
        )
        request = self._request(
            rows,
            kernel_rule=self._kernel_rule(rows, Reach(), searched),
            factor_landmarks=_VARIANCE_LANDMARKS if many else None,
            footprint=_many_footprint if many else fit_footprint,
        )
        fit = fit_map(rows, request)
        results = self._solved(fit.factored)
        if many:
            results |= _mean_apart(fit, rows, results)
        # scikit-learn's process drops the axis of a single target too.
        return self._store(checked.rows, fit, **results, _one_target=results["landmark_coef_"].shape[1] == 1)

    def _criterion(self, fitted: NystromMap, rows: RowBlocks, engine: Engine, count: float) -> float:
        return self._optimum(fitted, self._normalised(fitted)[0]).objective

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        """Return noise, amplitude and coefficients from the sums of the map."""
        problem, mean, deviation = self._normalised(fitted)
        found = self._optimum(fitted, problem)
        ratio = found.alpha / found.amplitude
        weights, _ = problem.solve(ratio)
        return {
            "alpha_": found.alpha,
            "amplitude_": found.amplitude,
            "likelihood_bound_": -found.objective * problem.count * problem.cross.shape[1],
            "log_marginal_likelihood_value_": log_likelihood(problem, *found[:2]),
            "landmark_coef_": fitted.projection @ weights,
            "_problem": problem,
            "_ratio": ratio,
            "_y_mean": mean,
            "_y_deviation": deviation,
        }

    def log_marginal_likelihood(self, alpha: float | None = None, amplitude: float | None = None) -> float:
        """Return the log marginal likelihood for another noise and amplitude, with the same bandwidth. Cost: O(r).

        None is the value of the fit.
        """
        check_is_fitted(self)
        alpha = self.alpha_ if alpha is None else check_positive(alpha, "alpha")
        amplitude = self.amplitude_ if amplitude is None else check_positive(amplitude, "amplitude")
        return log_likelihood(self._problem, alpha, amplitude)

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
        """Return the mean of f at the rows of X; with its standard deviation, or its covariance, if asked for.

        Parameters
        ----------
        X : rows
            Any rows.
        return_std, return_cov : bool, default=False
            What to return beside the mean.
        include_noise : bool, default=False
            Whether deviations and covariances are those of a new target, noise included, rather than of f.
        diag : array of shape (n,), optional
            k(x, x) of each row, for ``return_std`` with ``kernel="precomputed"`` and rows other than the training rows.
        out : path, optional
            Where the means, and after them the deviations with ``return_std``, are streamed to, one column each, as by
            :meth:`nystrom.Nystroem.transform`.

        Returns
        -------
        mean : array of shape (n,) or (n, t)
        std : array of shape (n,) or (n, t)
            With ``return_std``.
        cov : array of shape (n, n) or (n, n, t)
            With ``return_cov``; O(n²) memory.
        """
        check_is_fitted(self)
        if return_std and return_cov:
            raise ValueError(
                "return_std and return_cov cannot both be True: the diagonal of the covariance holds both."
            )
        if out is not None and return_cov:
            raise ValueError("out= holds means and deviations; a covariance has a row and a column for each row of X.")
        rows = self._check_X(X, reset=False)
        t = self.landmark_coef_.shape[1]
        noise = self.alpha_ if include_noise else 0.0
        fitted = map_beside(self, rows, diag) if return_std else self.map_

        apart = getattr(self, "mean_map_", None)

        def function(block: Block) -> Array:
            C = (apart or self.map_).evaluate(block.X)
            mean = small_product(C, self.landmark_coef_) * self._y_deviation + self._y_mean
            if not return_std:
                return mean
            C = C if apart is None else self.map_.evaluate(block.X)
            deviation = np.sqrt(self._variance(fitted, block, C) + noise)
            return np.hstack([mean, deviation[:, None] * self._y_deviation])

        label = f"predict {return_std} {include_noise}" if return_std else "predict"
        values = self._emit(rows, function, 2 * t if return_std else t, np.float64, label=label, out=out)
        if out is not None:
            return values
        mean, deviation = (values[:, 0], values[:, -1]) if self._one_target else (values[:, :t], values[:, t:])
        if return_cov:
            covariance = self._covariance(rows.take(np.arange(rows.shape[0])))
            return mean, self._in_units(covariance + noise * np.eye(len(covariance)), power=2)
        return (mean, deviation) if return_std else mean

    def plot(self, X: RowsLike = None, y: TargetLike = None, **options: Any) -> Any:
        """Plot the mean and a band of two deviations over one column of input; see :func:`nystrom.plotting.plot_band`.

        X and y are rows to draw as points; without X the picture spans the landmarks. Returns the matplotlib Axes.
        """
        from nystrom.plotting import plot_band

        check_is_fitted(self)
        return plot_band(self, X, y, **options)

    def _in_units(self, values: Array, *, power: int) -> Array:
        """Return deviations or covariances of the normalised target in units of the target, one for each."""
        if self._one_target:
            return np.asarray(values * self._y_deviation[0] ** power)
        return np.asarray(values[..., None] * self._y_deviation**power)

    def _variance(self, fitted: NystromMap, block: Block, C: Array) -> Array:
        """Return the variance of f at the rows of a block, of the normalised target, from their kernel values."""
        phi = C.astype(np.float64, copy=False) @ self.map_.projection
        left = fitted.residual(block.X, phi, start=block.start)
        shrunk = self._ratio / (self.eigenvalues_ + self._ratio)
        # Rounding puts ‖φ‖² above k(x, x) where k varies by many orders; rows never make f less certain than its prior.
        prior = fitted.kernel.diag(block.X, start=block.start)
        return np.asarray(self.amplitude_ * np.minimum(left + to_host(np.square(phi) @ shrunk), prior))

    def _covariance(self, X: Matrix) -> Array:
        """Return the covariance of f at the rows of X, in units of the normalised target."""
        if not self.kernel_.has_coordinates:
            raise ValueError("a covariance needs k between new rows, which kernel='precomputed' does not know.")
        X = X.astype(np.float64)
        phi = self.map_.features(X)
        explained = self.eigenvalues_ / (self.eigenvalues_ + self._ratio)
        covariance = self.amplitude_ * (self.kernel_(X, X) - (phi * explained) @ phi.T)
        return np.asarray((covariance + covariance.T) / 2)

    def sample_y(
        self, X: RowsLike, n_samples: int = 1, random_state: RandomState = 0, *, diag: TargetLike = None
    ) -> Array:
        """Draw functions from the posterior, and return their values at the rows of X.

        Up to 3,000 rows the draws have the full covariance of :meth:`predict`. At more rows the part that the landmarks
        do not explain is independent from row to row, which leaves the deviation of each row as it is and costs O(n r).
        ``diag`` is as in :meth:`predict`.

        Returns
        -------
        array of shape (n, n_samples) or (n, t, n_samples)
        """
        check_is_fitted(self)
        n_samples = check_count(n_samples, "n_samples")
        rng = make_generator(random_state)
        rows = self._check_X(X, reset=False)
        n, t = rows.shape[0], self.landmark_coef_.shape[1]
        mean = self.predict(X).reshape(n, t, 1)
        phi = self._emit(
            rows, lambda block: self.map_.features(block.X), self.n_components_, np.float64, label="features"
        )
        shrunk = np.sqrt(self._ratio / (self.eigenvalues_ + self._ratio))
        draws = (phi * shrunk) @ rng.standard_normal((self.n_components_, t * n_samples))
        draws += self._draw_unexplained(rows, diag, phi, rng.standard_normal((n, t * n_samples)))
        draws *= np.sqrt(self.amplitude_)
        values = mean + draws.reshape(n, t, n_samples) * self._y_deviation[:, None]
        return np.asarray(values[:, 0] if self._one_target else values)

    def _draw_unexplained(self, rows: RowBlocks, diag: TargetLike, phi: Array, normal: Array) -> Array:
        n = rows.shape[0]
        fitted = map_beside(self, rows, diag)
        if n > _JOINT_ROWS or not self.kernel_.has_coordinates:
            left = self._emit(
                rows, lambda block: fitted.residual(block.X, start=block.start), None, np.float64, label="residual"
            )
            return np.asarray(np.sqrt(left)[:, None] * normal)
        X = rows.take(np.arange(n)).astype(np.float64)
        left = self.kernel_(X, X) - phi @ phi.T
        values, vectors = np.linalg.eigh((left + left.T) / 2)
        return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * normal))


def unexplained_trace(fitted: NystromMap) -> float:
    """Return ``tr(K − L Lᵀ)``, 0 where it is rounding."""
    trace = fitted.statistics.trace
    left = trace - float(fitted.eigenvalues.sum())
    return left if left > 64 * np.finfo(np.float64).eps * trace else 0.0


def _many_footprint(rows: RowBlocks, m: int, held: int, per_thread: int) -> Footprint:
    few = fit_footprint(rows, min(m, _VARIANCE_LANDMARKS), held, per_thread)
    return few.joined(cg_footprint(rows, m, 1, held, per_thread))


def _mean_apart(fit: MapFit, rows: RowBlocks, found: dict[str, Any]) -> dict[str, Any]:
    """Return the mean on all landmarks, by conjugate gradients, where the process has some of them."""
    engine, ratio = fit.passes.engine, found["_ratio"]
    Y = gather_target(rows, engine).reshape(rows.shape[0], -1)
    targeted = rows.with_target((Y - found["_y_mean"]) / found["_y_deviation"])
    room = room_for_values(engine.room)
    problem = landmark_problem(targeted, engine, fit.kernel, fit.landmarks, room=room, alpha=ratio)
    solution, _ = problem.solve(ratio, tol=_MEAN_TOL)
    warn_unless_converged(solution.residuals, solution.converged, _MEAN_TOL, "Give alpha a larger value.")
    return {"mean_map_": UnfactoredMap(fit.landmarks, fit.kernel), "landmark_coef_": solution.coefficients}
