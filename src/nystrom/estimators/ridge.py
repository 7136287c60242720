"""Kernel ridge regression: approximate in one fit, or exact, with its regularisation chosen on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_alphas, check_choice, check_count, check_flag, check_tolerance
from nystrom.engine.survey import Survey
from nystrom.estimators.iterative import IterativeMachine
from nystrom.estimators.parameters import SupervisedParameters
from nystrom.estimators.regressor import KernelRegressor
from nystrom.estimators.supervised import Link, require_finite_squares
from nystrom.factor import NystromMap
from nystrom.kernels import Kernel
from nystrom.landmarks import Landmarks
from nystrom.memory import (
    emit_footprint,
)
from nystrom.rows import Block, RowBlocks
from nystrom.solvers.alpha_path import RidgeProblem, auto_alphas, leave_one_out, ridge_problem
from nystrom.solvers.bandwidth import search_gamma
from nystrom.solvers.kernel_product import KernelProduct
from nystrom.types import Array, Candidates, Emitted, OutPath, RowsLike, TargetLike

_SELECTIONS = ("loo", "gcv", "likelihood")
_SOLVERS = ("auto", "factor", "cg", "exact")


class RidgeParameters(SupervisedParameters, total=False):
    """Parameters of :class:`RidgeMachine` with the same defaults in regression and classification."""

    solver: str
    tol: float
    max_iter: int
    early_stopping: bool
    compute_dual: bool


class RidgeMachine(IterativeMachine):
    """What regression and classification by kernel ridge share: from rows with targets to coefficients.

    Parameters
    ----------
    solver : {"auto", "factor", "cg", "exact"}, default="auto"
        "factor" is the closed form of the low-rank factor: O(n m²) time and a dozen m × m matrices. "cg" finds the same
        function by conjugate gradients, for thousands of landmarks: O(n m) time per step and one m × m matrix.
        "exact" takes every row as a landmark: conjugate gradients that the factor preconditions, O(n²) time per step
        and O(n) memory. "auto" takes the cheapest that gives the answer of the closed form; ``solver_`` and
        ``solver_reason_`` say which and why.
    tol : float, default=1e-08
        Relative residual that solvers "cg" and "exact" reach.
    max_iter : int, default=200
        Most steps of solvers "cg" and "exact".
    early_stopping : bool, default=False
        Whether solver "cg" ends when the error on held-out rows (5 %, 500 to 5,000) has not improved for five steps,
        and takes the best one: fewer steps regularise.
    compute_dual : bool, default=False
        Whether to compute ``dual_coef_``, one number for each training row, by one more pass. Solver "exact" always
        does.
    gamma : "scale", "auto", None or float, default="scale"
        Width of the kernel. "scale" is the paper's: one over the mean squared distance of the rows to their mean.
        "auto" searches it by ``selection``, on samples of the rows. None is scikit-learn's: one over the number of
        columns.
    """

    _one_target: bool

    def __init__(
        self,
        *,
        alpha: Candidates,
        selection: str,
        fit_intercept: bool,
        solver: str = "auto",
        tol: float = 1e-8,
        max_iter: int = 200,
        early_stopping: bool = False,
        compute_dual: bool = False,
        **shared: Unpack[SupervisedParameters],
    ) -> None:
        super().__init__(**shared)
        self.alpha = alpha
        self.selection = selection
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.compute_dual = compute_dual

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_alphas(self.alpha)
        check_choice(self.selection, "selection", _SELECTIONS)
        check_choice(self.solver, "solver", _SOLVERS)
        check_tolerance(self.tol, "tol")
        check_count(self.max_iter, "max_iter")
        for name in ("fit_intercept", "early_stopping", "compute_dual"):
            check_flag(getattr(self, name), name)

    def _settle_kernel(self, survey: Survey, kernel: Kernel, landmarks: Landmarks, rng: np.random.Generator) -> Kernel:
        if not self._searches_width(kernel, check_alphas(self.alpha)):
            return super()._settle_kernel(survey, kernel, landmarks, rng)
        count = survey.moments.count

        def criterion(fitted: NystromMap, rows: RowBlocks) -> float:
            problem = self._problem(fitted)
            alphas = check_alphas(self.alpha)
            # Eigenvalues grow with the rows, so the same amount of smoothing needs less on fewer of them.
            alphas = auto_alphas(problem.values) if alphas is None else alphas * (problem.count / count)
            return float(np.min(self._scores(problem, fitted, rows, alphas)))

        return search_gamma(survey, kernel.resolve(survey.moments), landmarks, self._factorise, criterion, rng)

    def _scores(self, problem: RidgeProblem, fitted: NystromMap, rows: RowBlocks | None, alphas: Array) -> Array:
        if self.selection == "gcv":
            return problem.gcv(alphas)
        if self.selection == "likelihood" or rows is None:
            return problem.negative_log_likelihood(alphas)
        work = emit_footprint(rows, len(fitted.landmarks), len(alphas) * problem.cross.shape[1])
        return leave_one_out(problem, fitted, rows, self._engine(rows, work), alphas, self._unit())

    def _problem(self, fitted: NystromMap) -> RidgeProblem:
        problem = ridge_problem(fitted, fit_intercept=self.fit_intercept)
        require_finite_squares(problem.squares)
        return problem

    def _unit(self) -> Callable[[Array], Array] | None:
        """Return the function from targets to the weight of one row with it; None for a weight of 1."""
        return None

    def _fit_ridge(self, bare: RowBlocks, y: Array | None, weight: Array | None) -> None:
        """Fit the map of the rows, choose the regularisation, and solve."""
        rows = bare if y is None and weight is None else bare.with_target(y, weight)
        n_targets = 1 if y is None or y.ndim == 1 else y.shape[1]
        self.solver_, self.solver_reason_ = self._choose_solver(rows, n_targets)
        if self.solver_ == "cg":
            self._solve_on_landmarks(rows)
        else:
            self._fit_map(rows)
            self._solve(rows)
            self.n_iter_ = 1
        self._one_target = y.ndim == 1 if y is not None else self.landmark_coef_.shape[1] == 1
        if self.solver_ == "exact":
            self._solve_exactly(bare, y, weight, self.map_)
        elif self.compute_dual:
            self._dual_coef = self._emit_dual(rows)

    def _solve(self, rows: RowBlocks | None) -> None:
        """Choose the regularisation and solve from the statistics of the map; only leave-one-out reads the rows."""
        problem = self._problem(self.map_)
        alphas = check_alphas(self.alpha)
        self.alphas_ = auto_alphas(problem.values) if alphas is None else alphas
        best = 0
        if len(self.alphas_) > 1:
            self.alpha_scores_ = self._scores(problem, self.map_, rows, self.alphas_)
            exact = self.selection == "likelihood"
            best = int(np.argmin(self.alpha_scores_) if exact else problem.choose(self.alphas_, self.alpha_scores_))
        self.alpha_ = float(self.alphas_[best])
        weights, self.intercept_ = problem.solve(self.alpha_)
        self.landmark_coef_ = self.map_.projection @ weights
        self._dual_coef = None

    def _check_incremental(self) -> None:
        """Raise unless the statistics alone give the answer, without the rows that are gone."""
        alphas = check_alphas(self.alpha)
        if self.solver in ("cg", "exact") or self.early_stopping:
            asked = "early_stopping=True" if self.early_stopping else f"solver={self.solver!r}"
            raise ValueError(f"{asked} needs all rows at once; partial_fit and merge work with solver='factor'.")
        if self.compute_dual:
            raise ValueError(
                "compute_dual=True needs all rows at once; partial_fit and merge work with compute_dual=False."
            )
        if (alphas is None or len(alphas) > 1) and self.selection == "loo":
            raise ValueError(
                "selection='loo' reads all rows again, which partial_fit and merge do not have; give one alpha, or "
                "selection='gcv' or 'likelihood'."
            )

    def _extend_ridge(self, rows: RowBlocks, y: Array | None, weight: Array | None) -> None:
        """Add rows with targets to a fit."""
        t, known = 1 if y is None or y.ndim == 1 else y.shape[1], self.landmark_coef_.shape[1]
        if y is not None and t != known:
            raise ValueError(f"y has {t} target(s), but the fit so far has {known}; give the same number in each call.")
        self._extend_map(rows if y is None and weight is None else rows.with_target(y, weight))
        self._solve(None)

    def _check_merge(self, other: Self) -> None:
        self._check_incremental()
        super()._check_merge(other)

    def _solve_merged(self) -> None:
        self._solve(None)

    def _raw_predict(self, X: RowsLike, link: Link | None = None, *, out: OutPath = None) -> Emitted:
        """Return the fitted function at the rows of X, shape (n, t), or what a link makes of it."""
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        intercept = self.intercept_
        link = link or Link("predict", np.asarray, self.landmark_coef_.shape[1])
        if self.solver_ == "exact":
            product = KernelProduct(self.training_rows_, self.kernel_, self._engine(rows))
            dual = self._dual_coef

            def function(block: Block) -> Array:
                return link(product.predict(block.X, dual) + intercept)  # type: ignore[arg-type]

        else:
            fitted, coefficients = self.map_, self.landmark_coef_

            def function(block: Block) -> Array:
                return link(fitted.evaluate(block.X) @ coefficients + intercept)

        return self._emit(rows, function, link.n_columns, link.dtype, label=link.name, out=out)

    def _emit_dual(self, rows: RowBlocks) -> Array:
        """Return ``α̂ = D²(y − f)/λ``, shape (n, t): one pass over the training rows."""
        fitted, coefficients, intercept, alpha = self.map_, self.landmark_coef_, self.intercept_, self.alpha_

        def function(block: Block) -> Array:
            f = fitted.evaluate(block.X) @ coefficients + intercept
            y = np.asarray(block.y, dtype=np.float64).reshape(f.shape)
            scale = 1 / alpha if block.weight is None else block.weight[:, None] / alpha
            return np.asarray(scale * (y - f))

        return np.asarray(self._emit(rows, function, coefficients.shape[1], np.float64, label="dual"))

    @property
    def dual_coef_(self) -> Array:
        """α̂ of the paper: one entry for each training row."""
        check_is_fitted(self)
        if self._dual_coef is None:
            raise AttributeError(
                "dual_coef_ has one entry for each training row and was not computed: fit with compute_dual=True "
                "(one more pass). landmark_coef_ is enough to predict."
            )
        return self._dual_coef[:, 0] if self._one_target else self._dual_coef


class KernelRidge(KernelRegressor, RidgeMachine):
    """Kernel ridge regression.

    Minimises ``Σ w_i (y_i − f(x_i) − b)² + λ‖f‖²`` over the functions that the landmarks span; with ``solver="exact"``
    over all functions of the kernel. It takes the place of :class:`sklearn.kernel_ridge.KernelRidge`.

    Parameters
    ----------
    alpha : float, list of float or "auto", default=1.0
        λ of the paper, added to the eigenvalues (not scaled by n). From a list, or from 100 values in proportion to the
        largest eigenvalue ("auto"), the best by ``selection`` is taken; all of them together cost about one fit.
    selection : {"loo", "gcv", "likelihood"}, default="loo"
        Mean squared leave-one-out error (one more pass, 5,000 rows judged), generalised cross-validation, or marginal
        likelihood.
    fit_intercept : bool, default=False
        Whether to add an unregularised constant b.
    **shared : RidgeParameters
        Those of :class:`nystrom.estimators.ridge.RidgeMachine`.

    Attributes
    ----------
    alpha_ : float
        The regularisation taken.
    alphas_, alpha_scores_ : arrays
        Those tried, and their scores: less is better. For :func:`nystrom.plotting.plot_alpha_path`.
    landmark_coef_ : array of shape (m, t)
        ``f(x) = k(x, Z) @ landmark_coef_``, for solvers "factor" and "cg".
    dual_coef_ : array of shape (n,) or (n, t)
        α̂ of the paper (with the y that its formula lacks): after ``compute_dual=True`` or ``solver="exact"``.
    intercept_ : array of shape (t,)
        b; zeros without an intercept.
    residuals_ : array
        Relative residuals before the first and after each step of solvers "cg" and "exact"; the last is the true one.
    n_iter_ : int
        Steps of solvers "cg" and "exact"; 1 for the closed form.
    solver_, solver_reason_ : str
        The solver taken, and why.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map, O(n m (p + m)), in the same pass; then O(m³). With solver "cg" there is no map: no
    eigenvalues, no certificate, and ``alpha`` is chosen on held-out rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X).ravel() + 0.1 * rng.normal(size=500)
    >>> model = KernelRidge(alpha="auto", n_landmarks=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    def __init__(
        self,
        alpha: Candidates = 1.0,
        *,
        selection: str = "loo",
        fit_intercept: bool = False,
        **shared: Unpack[RidgeParameters],
    ) -> None:
        super().__init__(alpha=alpha, selection=selection, fit_intercept=fit_intercept, **shared)

    def fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelRidge:
        """Fit to the rows X and the target y, which may be None where the rows hold it."""
        rows, y, weight = self._check_X_y(X, y, sample_weight)
        self._fit_ridge(rows, y, weight)
        return self

    def partial_fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelRidge:
        """Add the rows X with the target y to the fit: one pass over them alone.

        The first call is :meth:`fit`, so give ``landmarks`` as an array (or a first X that stands for all); later calls
        keep the landmarks and the kernel. The result is the fit to all rows with these landmarks, up to rounding.
        """
        self._check_incremental()
        if not hasattr(self, "map_"):
            return self.fit(X, y, sample_weight)
        rows, y, weight = self._check_X_y(X, y, sample_weight, reset=False)
        self._extend_ridge(rows, y, weight)
        return self
