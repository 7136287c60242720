"""Gaussian process regression on the factor: its variance never negative, its parameters by likelihood."""

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
    check_tolerance,
    check_variance,
    make_generator,
)
from nystrom.devices import to_host
from nystrom.engine.memory import Footprint, cg_footprint, fit_footprint, room_for_values
from nystrom.engine.passes import Passes
from nystrom.estimators.parameters import CommonParameters, ScikitProcess, given_kernel, set_parameters
from nystrom.estimators.pipeline import MapFit, fit_map
from nystrom.estimators.quality import map_beside
from nystrom.estimators.scikit_kernels import (
    ANYWHERE,
    MOST_EXACT_ROWS,
    Covariance,
    ExactSample,
    Variance,
    covariance_of,
    exact_process,
    learn,
    noise_level,
    noise_of_rows,
)
from nystrom.estimators.targets import KernelRegressor, require_finite_squares
from nystrom.kernels import GammaLike, Kernel, KernelLike, make_kernel
from nystrom.kernels.scikit import ScikitKernel, is_scikit_kernel
from nystrom.landmarks import Landmarks
from nystrom.linalg import small_product
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import Block, RowBlocks
from nystrom.rows.draw import draw_rows, fetch_rows, gather, gather_target, row_weights
from nystrom.rows.sparse import stack_rows
from nystrom.solvers.conjugate import warn_unless_converged
from nystrom.solvers.landmark_cg import UnfactoredMap, landmark_problem
from nystrom.solvers.ridge import Optimum, RidgeProblem, choose_solver, log_likelihood, optimum, ridge_problem
from nystrom.tuning.judge import Reach
from nystrom.tuning.kernel_rule import WidthRule
from nystrom.tuning.metric import MetricLike
from nystrom.types import Array, Emitted, Matrix, OutPath, RowsLike, TargetLike, to_dense

# Up to this many rows, draws have the whole covariance; at more, that of so many of the rows.
_JOINT_ROWS = 3000
_DRAWN_ROWS = 2000
# The alpha of scikit-learn, whose kernels hold the noise themselves.
_JITTER = 1e-10
# Landmarks of the variance where the mean has thousands, and the residual to which that mean is found.
_VARIANCE_LANDMARKS = 1000
_MEAN_TOL = 1e-6
_NOISE_ADVICE = " For no noise take a small one, such as 1e-10; an array has one per row."


class GaussianProcessRegressor(KernelRegressor):
    """Gaussian process regression.

    The target is ``f(x) + noise`` with f of covariance ``amplitude · k`` and noise of variance ``alpha``. It takes the
    place of :class:`sklearn.gaussian_process.GaussianProcessRegressor`, with any of its kernels.

    Parameters
    ----------
    kernel : str, Kernel, callable, scikit-learn kernel or None, default="gaussian"
        As in :class:`nystrom.Nystroem`; or a kernel of :mod:`sklearn.gaussian_process.kernels` such as
        ``ConstantKernel() * RBF() + WhiteKernel()``, which holds amplitude and noise; None is their
        ``ConstantKernel() * RBF()``. Its parameters maximise the exact likelihood of at most 2,000 rows, within their
        bounds and unless they are "fixed". With more rows, or fewer landmarks than rows, its noise and amplitude are
        then found again on all rows.
    alpha : float, array of shape (n,) or "auto", default="auto"
        Variance of the noise, or that of each row; "auto" is the optimum of the marginal likelihood. Added to the
        WhiteKernel of a kernel of scikit-learn; "auto" is 1e-10 there.
    amplitude : float or "auto", default="auto"
        Variance of f where k(x, x) = 1; "auto" is the optimum of the marginal likelihood. A kernel of scikit-learn
        has its own.
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
        Noise and amplitude, of the normalised target. The noise includes that of a WhiteKernel; of one per row it is
        the harmonic mean.
    landmark_coef_ : array of shape (m, t)
        The mean is ``k(x, Z) @ landmark_coef_``, of the normalised target.
    mean_map_ : UnfactoredMap
        Z of the mean, where landmarks are so many that it is found apart; else there is none, and Z is ``landmarks_``.
    log_marginal_likelihood_value_ : float
        Of the normalised target under ``amplitude · L Lᵀ + alpha · I``; the sum of the targets.
    likelihood_bound_ : float
        What "auto" maximises: a lower bound on the log marginal likelihood of the exact process.
    kernel_ : Kernel or scikit-learn kernel
        As it was given, with the parameters found: ``kernel_.theta`` holds those of scikit-learn. ``map_.kernel`` is
        the kernel that the map evaluates, without amplitude and noise.
    landmarks_, eigenvalues_, certificate_, ...
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

    def _scikit_kernel(self) -> ScikitKernel | None:
        """Return the kernel of scikit-learn that was given, if any; None is its default."""
        if self.kernel is None:
            from sklearn.gaussian_process.kernels import RBF, ConstantKernel

            return ConstantKernel() * RBF()
        return self.kernel if is_scikit_kernel(self.kernel) else None

    def _noise_asked(self) -> float | Array | None:
        """Return ``alpha``: a number, one per row, or None for what is to be found."""
        if isinstance(self.alpha, (list, tuple, np.ndarray)):
            values = np.asarray(self.alpha)
            if values.ndim != 1 or values.dtype.kind not in "iuf" or not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError(
                    f"alpha as an array must have one variance per row, finite and not negative; got shape "
                    f"{values.shape}, dtype {values.dtype}."
                )
            return values.astype(np.float64)
        if self._scikit_kernel() is None:
            return check_variance(self.alpha, "alpha", advice=_NOISE_ADVICE)
        return _JITTER if isinstance(self.alpha, str) and self.alpha == "auto" else check_tolerance(self.alpha, "alpha")

    def _covariance_asked(self) -> Covariance:
        """Return what the parameters say of kernel, amplitude and noise: numbers, or what is to be found."""
        alpha, amplitude = self._noise_asked(), check_variance(self.amplitude, "amplitude")
        number = float(np.mean(alpha)) if isinstance(alpha, np.ndarray) else alpha
        scikit = self._scikit_kernel()
        if scikit is not None:
            if amplitude is not None:
                raise ValueError(
                    f"amplitude={amplitude!r} and kernel={scikit} both set the amplitude: leave amplitude='auto', and "
                    f"multiply the kernel by ConstantKernel({amplitude!r}, 'fixed')."
                )
            return covariance_of(scikit, number or 0.0, refined=False)
        auto = self._searches_gamma
        given = "gaussian" if self._chooses_kernel else given_kernel(self)
        kernel = make_kernel(given, gamma="scale" if auto else self.gamma, degree=self.degree, coef0=self.coef0)
        free = auto and isinstance(given, str) and hasattr(kernel, "gamma")
        if self.optimizer is not None and not isinstance(self.optimizer, str):
            raise ValueError(
                f"optimizer must be 'fmin_l_bfgs_b' or None; got {self.optimizer!r}. A function is for kernels of "
                f"sklearn.gaussian_process.kernels; for others the optimum is found on the factor."
            )
        if free and self.optimizer is None:
            raise ValueError(
                "optimizer=None keeps the kernel as it is, and gamma='auto' is to be searched: give gamma a number, or "
                "a kernel of sklearn.gaussian_process.kernels."
            )
        return Covariance(kernel, ANYWHERE if free else None, Variance(amplitude), Variance(number))

    def _kernel(self) -> Kernel:
        return self._covariance_asked().kernel

    def _normalised(
        self, fitted: NystromMap, units: tuple[Array, Array] | None = None
    ) -> tuple[RidgeProblem, Array, Array]:
        """Return the problem for the normalised target, and the mean and the deviation that were taken out.

        ``units`` are these, if they were taken out before.
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
        """Fit to the rows X and the target y, which may be None where the rows hold it.

        Rows of one of the ``groups`` are left out together for :meth:`predict_interval`.
        """
        checked = self._check_X_y(X, y)
        draw = self._draw(checked.rows, groups)
        checked = replace(checked, rows=draw.rows)
        m = self._landmarks_to_spare(checked.rows)
        asked, sample, exact = self._learned(checked.joined, m)
        noise = self._noise_of(checked.joined, asked)
        rows, units, log_spread = checked.joined, None, 0.0
        if noise is not None:
            # Rows of less noise count for more; of all of them, the noise is the harmonic mean.
            mean, target = 1 / float(np.mean(1 / noise)), checked.y
            if self.normalize_y:
                # By the plain mean and deviation, and not by those with these weights.
                target = gather_target(rows, self._engine(rows)).astype(np.float64)
                units = _units(target.reshape(len(target), -1))
                target = (target - units[0]) / units[1] if target.ndim > 1 else (target - units[0][0]) / units[1][0]
            rows = checked.rows.with_target(target, mean / noise)
            asked, log_spread = replace(asked, noise=Variance(mean)), 0.5 * float(np.log(noise / mean).sum())
        many = (
            m is not None
            and choose_solver(*rows.shape, m, factor_fits=self._resources().factor_fits(rows, m)).solver != "factor"
        )
        # Within a time limit, held-out rows choose the width along with kernel and metric.
        searched, timed = None, self.max_time is not None and isinstance(self.kernel, str)
        if asked.gamma_bounds is not None and not timed:
            searched = WidthRule(
                lambda fitted, *_: _optimum(fitted, self._normalised(fitted, units)[0], asked).objective,
                bounds=asked.gamma_bounds,
            )
        request = self._request(
            rows,
            kernel=asked.kernel,
            # Else the likelihood alone judges widths.
            kernel_rule=replace(self._kernel_rule(rows, Reach(), searched), any_width=timed),
            factor_landmarks=_VARIANCE_LANDMARKS if many else None,
            footprint=_many_footprint if many else fit_footprint,
        )
        fit = fit_map(rows, request)
        results = self._solved(fit.factored, asked, units, log_spread)
        if many:
            results |= _mean_apart(fit, rows, results)
        if sample is not None and exact:
            value = exact_process(results["kernel_"], sample).log_marginal_likelihood(results["kernel_"].theta)
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

    def _learned(self, rows: RowBlocks, m: int | None) -> tuple[Covariance, ExactSample | None, bool]:
        """Return the covariance with the parameters of a kernel of scikit-learn learned from a sample of the rows.

        The second result is the sample, the third whether it has all rows and each of them is a landmark.
        """
        asked, alpha, n = self._covariance_asked(), self._noise_asked(), rows.shape[0]
        if isinstance(alpha, np.ndarray) and len(alpha) not in (1, n):
            raise ValueError(
                f"alpha must be a scalar or an array with same number of entries as y; got {len(alpha)} for {n} rows."
            )
        if asked.noise.value == 0 and noise_level(asked.source) is not None:
            raise ValueError(f"alpha={self.alpha!r} and a kernel without WhiteKernel leave no noise.{_NOISE_ADVICE}")
        if asked.source is None:
            return asked, None, False
        passes, rng = Passes(rows, self._engine(rows)), make_generator(self.random_state)
        numbers, _ = draw_rows(n, MOST_EXACT_ROWS, row_weights(passes), rng)
        some = fetch_rows(passes, numbers)
        assert some.y is not None
        X, y = to_dense(some.X).astype(np.float64), some.y.astype(np.float64)
        if self.normalize_y:
            y = (y - _units(y)[0]) / _units(y)[1]
        own = alpha[numbers] if isinstance(alpha, np.ndarray) and len(alpha) > 1 else float(np.max(alpha))  # type: ignore[arg-type]
        sample = ExactSample(X, y, own)
        seed = self.random_state if isinstance(self.random_state, int) else int(rng.integers(2**31))
        learned = learn(asked.source, sample, optimizer=self.optimizer, n_restarts=self.n_restarts_optimizer, seed=seed)
        exact = m is not None and m >= n == len(numbers)
        refined = self.optimizer is not None and not exact
        return covariance_of(learned, asked.jitter, refined=refined), sample, exact

    def _noise_of(self, rows: RowBlocks, asked: Covariance) -> Array | None:
        """Return the variance of the noise of each row, or None where all have the same."""
        alpha = self._noise_asked()
        varies = asked.source is not None and noise_level(asked.source) is None
        own = np.broadcast_to(alpha, rows.shape[0]) if isinstance(alpha, np.ndarray) else asked.jitter
        if not varies and (not isinstance(alpha, np.ndarray) or len(alpha) == 1):
            return None
        if asked.source is not None:
            parts = self._engine(rows).map(rows, lambda block: noise_of_rows(asked.source, block.X), label="noise")
            own = own + np.concatenate([part for _, part in parts])
        if rows.has_weight or not (np.asarray(own) > 0).all():
            why = "the rows hold weights, which divide the noise" if rows.has_weight else "some rows have no noise"
            raise ValueError(f"alpha, or the kernel, has a noise for each row, but {why}.{_NOISE_ADVICE}")
        return np.asarray(own)

    def _solved(
        self,
        fitted: NystromMap,
        asked: Covariance | None = None,
        units: tuple[Array, Array] | None = None,
        log_spread: float = 0.0,
    ) -> dict[str, Any]:
        """Return noise, amplitude and coefficients from the sums of the map."""
        if asked is None:
            if isinstance(self.alpha, np.ndarray):
                raise ValueError("processes with a noise for each row cannot be merged: fit one to all rows.")
            asked = self._covariance_asked()
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
        """Return the log marginal likelihood for other parameters; that of the fit if none are given.

        Parameters
        ----------
        theta : array, optional
            Parameters of a kernel of scikit-learn. The likelihood is then the exact one of the rows, at most 2,000,
            that the parameters were found on, in O(n³).
        eval_gradient : bool, default=False
            Whether to return the gradient with respect to ``theta``, too.
        clone_kernel : bool, default=True
            If False, ``kernel_`` takes ``theta``, as in scikit-learn.
        alpha, amplitude : float, optional
            Noise and amplitude, with the same bandwidth; of all rows, in O(r). None is the value of the fit.
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
        """Return the mean of f at the rows of X; with its standard deviation, or its covariance, if asked for.

        The noise of a WhiteKernel counts, as in scikit-learn. Before a fit the mean is 0 and the rest is the prior's,
        if the kernel has numbers for all its parameters.

        Parameters
        ----------
        X : rows
            Any rows.
        return_std, return_cov : bool, default=False
            What to return beside the mean.
        include_noise : bool, default=False
            Whether deviations and covariances are those of a new target, ``alpha`` included, rather than of f.
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
        if return_std and return_cov:
            raise ValueError(
                "return_std and return_cov cannot both be True: the diagonal of the covariance holds both."
            )
        if out is not None and return_cov:
            raise ValueError("out= holds means and deviations; a covariance has a row and a column for each row of X.")
        if not hasattr(self, "map_"):
            return self._predict_prior(X, return_std, return_cov)
        rows = self._check_X(X, reset=False)
        t = self.landmark_coef_.shape[1]
        fitted = map_beside(self, rows, diag) if return_std else self.map_

        apart = getattr(self, "mean_map_", None)

        def function(block: Block) -> Array:
            C = (apart or self.map_).evaluate(block.X)
            mean = small_product(C, self.landmark_coef_) * self._y_deviation + self._y_mean
            if not return_std:
                return mean
            C = C if apart is None else self.map_.evaluate(block.X)
            deviation = np.sqrt(self._variance(fitted, block, C) + self._noise_at(block.X, include_noise))
            return np.hstack([mean, deviation[:, None] * self._y_deviation])

        label = f"predict {return_std} {include_noise}" if return_std else "predict"
        values = self._emit(rows, function, 2 * t if return_std else t, np.float64, label=label, out=out)
        if out is not None:
            return values
        mean, deviation = (values[:, 0], values[:, -1]) if self._one_target else (values[:, :t], values[:, t:])
        if return_cov:
            everything = rows.take(np.arange(rows.shape[0]))
            covariance = self._covariance(everything)
            covariance[np.diag_indices_from(covariance)] += self._noise_at(everything, include_noise)
            return mean, self._in_units(covariance, power=2)
        return (mean, deviation) if return_std else mean

    def plot(self, X: RowsLike = None, y: TargetLike = None, **options: Any) -> Any:
        """Plot the mean and a band of two deviations over one column of input; see :func:`nystrom.plotting.plot_band`.

        X and y are rows to draw as points; without X the picture spans the landmarks. Returns the matplotlib Axes.
        """
        from nystrom.plotting import plot_band

        check_is_fitted(self)
        return plot_band(self, X, y, **options)

    def _noise_at(self, X: Matrix, include_noise: bool) -> Array:
        """Return the noise that counts in a deviation: a WhiteKernel's always, ``alpha`` if it is asked for."""
        if include_noise and isinstance(self.alpha, np.ndarray) and self.alpha.size > 1:
            raise ValueError("include_noise=True: alpha has one variance per training row, and none for new rows.")
        if not is_scikit_kernel(self.kernel_):
            return np.full(X.shape[0], self.alpha_ if include_noise else 0.0)
        own = noise_of_rows(self.kernel_, X)
        return own + np.asarray(self._noise_asked()).max() if include_noise else own

    def _predict_prior(self, X: RowsLike, return_std: bool, return_cov: bool) -> Any:
        """Return what is known before a fit: the mean 0, and the deviation or covariance of the prior."""
        if self._covariance_asked().kernel.needs_moments:
            check_is_fitted(self)  # raises: the width is that of the training rows
        prior, rows = self._prior(X)
        X = to_dense(rows.take(np.arange(rows.shape[0]))).astype(np.float64)
        t = self.n_targets or 1
        mean = np.zeros((len(X), t) if t > 1 else len(X))
        noise = 0.0 if prior.source is None else noise_of_rows(prior.source, X)
        if return_cov:
            found = prior.amplitude.value * prior.kernel(X, X) + np.diag(np.broadcast_to(noise, len(X)))
        elif return_std:
            found = np.sqrt(prior.amplitude.value * prior.kernel.diag(X) + noise)
        else:
            return mean
        return mean, np.stack([found] * t, axis=-1) if t > 1 else found

    def _prior(self, X: RowsLike) -> tuple[Covariance, RowBlocks]:
        """Return the covariance before a fit, and the rows, of which it takes a width that is not given."""
        rows, asked = self._check_X(X, reset=True), self._covariance_asked()
        kernel = asked.kernel
        if kernel.needs_moments:
            kernel = kernel.resolve(Passes(rows, self._engine(rows)).moments)
        return replace(asked, kernel=kernel, amplitude=Variance(asked.amplitude.value or 1.0)), rows

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
        if not self.map_.kernel.has_coordinates:
            raise ValueError("a covariance needs k between new rows, which kernel='precomputed' does not know.")
        X = X.astype(np.float64)
        phi = self.map_.features(X)
        # In the order of :meth:`_variance`: the difference is rounded once, and what is added to it is small.
        left = self.map_.kernel(X, X) - phi @ phi.T
        left[np.diag_indices_from(left)] = self.map_.residual(X, phi)
        covariance = left + (phi * (self._ratio / (self.eigenvalues_ + self._ratio))) @ phi.T
        return np.asarray(self.amplitude_ * (covariance + covariance.T) / 2)

    def sample_y(
        self, X: RowsLike, n_samples: int = 1, random_state: RandomState = 0, *, diag: TargetLike = None
    ) -> Array:
        """Draw functions from the posterior, or before a fit from the prior, and return their values at the rows of X.

        Up to 3,000 rows the draws have the full covariance of :meth:`predict`. At more rows, what the landmarks leave
        unexplained is drawn at 2,000 of the rows, and conditioned on there; what these leave unexplained as well is
        independent from row to row, so that the deviation of each row stays as it is. ``diag`` is as in
        :meth:`predict`.

        Returns
        -------
        array of shape (n, n_samples) or (n, t, n_samples)
        """
        n_samples, rng = check_count(n_samples, "n_samples"), make_generator(random_state)
        if not hasattr(self, "map_"):
            return self._sample_prior(X, n_samples, rng)
        rows = self._check_X(X, reset=False)
        n, t, r = rows.shape[0], self.landmark_coef_.shape[1], self.n_components_
        # The draws of the first target do not depend on whether there are others.
        normal = np.hstack([rng.standard_normal((r + n, n_samples)) for _ in range(t)])
        phi = self._emit(rows, lambda block: self.map_.features(block.X), r, np.float64, label="features")
        draws = (phi * np.sqrt(self._ratio / (self.eigenvalues_ + self._ratio))) @ normal[:r]
        fitted = map_beside(self, rows, diag)
        draws += self._draw_unexplained(fitted.kernel, fitted, rows, phi, normal[r:], rng)
        draws *= np.sqrt(self.amplitude_)
        if is_scikit_kernel(self.kernel_):
            noise = self._emit(rows, lambda block: self._noise_at(block.X, False), None, np.float64, label="noise")
            draws += np.sqrt(noise)[:, None] * rng.standard_normal(draws.shape)
        values = self.predict(X).reshape(n, t, 1) + draws.reshape(n, t, n_samples) * self._y_deviation[:, None]
        return np.asarray(values[:, 0] if self._one_target else values)

    def _sample_prior(self, X: RowsLike, n_samples: int, rng: np.random.Generator) -> Array:
        prior, rows = self._prior(X)
        n, t = rows.shape[0], self.n_targets or 1
        normal = rng.standard_normal((n, t * n_samples))
        draws = self._draw_unexplained(prior.kernel, None, rows, np.zeros((n, 0)), normal, rng)
        draws *= np.sqrt(prior.amplitude.value or 1.0)
        if prior.source is not None:
            draws += np.sqrt(noise_of_rows(prior.source, rows.take(np.arange(n))))[:, None] * rng.standard_normal(
                draws.shape
            )
        return np.asarray(draws.reshape(n, t, n_samples) if t > 1 else draws)

    def _draw_unexplained(
        self,
        kernel: Kernel,
        fitted: NystromMap | None,
        rows: RowBlocks,
        phi: Array,
        normal: Array,
        rng: np.random.Generator,
    ) -> Array:
        """Return draws of covariance ``k − φφᵀ`` at the rows, or of k before a fit; see :meth:`sample_y`."""
        n = rows.shape[0]
        if n <= _JOINT_ROWS and kernel.has_coordinates:
            X = rows.take(np.arange(n)).astype(np.float64)
            left = kernel(X, X) - phi @ phi.T
            values, vectors = np.linalg.eigh((left + left.T) / 2)
            return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * normal))
        wider: NystromMap | UnfactoredMap | None = fitted
        weights = np.zeros((phi.shape[1], normal.shape[1]))
        if kernel.has_coordinates:
            # A draw of the prior, on the landmarks and some of the rows, minus what the landmarks explain of it.
            some = np.sort(rng.choice(n, min(n, _DRAWN_ROWS), replace=False))
            points = gather(Passes(rows, self._engine(rows)), some)
            if fitted is not None:
                points = stack_rows([fitted.landmarks.points, points])
            wider = UnfactoredMap(Landmarks(points, None), kernel)
            weights = rng.standard_normal((wider.n_components, normal.shape[1]))
        assert wider is not None

        def function(block: Block) -> Array:
            psi = wider.features(block.X).astype(np.float64)
            left = np.sqrt(wider.residual(block.X, psi, start=block.start))[:, None]
            return psi @ weights + left * normal[block.start : block.start + len(psi)]

        draws: Array = self._emit(rows, function, normal.shape[1], np.float64, label="draws")
        if fitted is not None and kernel.has_coordinates:
            at_landmarks = wider.features(fitted.landmarks.points).astype(np.float64) @ weights
            draws -= phi @ (fitted.projection.T @ at_landmarks)
        return draws


def _units(y: Array) -> tuple[Array, Array]:
    """Return the mean and the deviation of each target; 1 where it is constant."""
    deviation = y.std(axis=0)
    return y.mean(axis=0), np.where(deviation == 0, 1.0, deviation)


def _optimum(fitted: NystromMap, problem: RidgeProblem, asked: Covariance) -> Optimum:
    """Return noise and amplitude, within their bounds, that maximise the bound on the likelihood."""
    given = [asked.noise.value, asked.amplitude.value]
    found = optimum(problem, unexplained_trace(fitted), *given)
    within = [float(np.clip(found[i], *each.bounds)) for i, each in enumerate((asked.noise, asked.amplitude))]
    if within == [*found[:2]]:
        return found
    # At a bound, the other of the two is found again.
    given = [value if value != found[i] else given[i] for i, value in enumerate(within)]
    found = optimum(problem, unexplained_trace(fitted), *given)
    within = [float(np.clip(found[i], *each.bounds)) for i, each in enumerate((asked.noise, asked.amplitude))]
    return found if within == [*found[:2]] else optimum(problem, unexplained_trace(fitted), *within)


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
