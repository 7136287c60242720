"""Kernel ridge regression and classification: the closed form, conjugate gradients, or exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_alphas, check_choice, check_count, check_flag, check_tolerance, make_generator
from nystrom.devices import fetch
from nystrom.engine import Resources
from nystrom.engine.memory import (
    Footprint,
    cg_footprint,
    emit_footprint,
    exact_footprint,
    fit_footprint,
    room_for_values,
)
from nystrom.engine.progress import stage
from nystrom.estimators.base import extended, opened
from nystrom.estimators.parameters import Options, ScikitKernel, TargetParameters, set_parameters
from nystrom.estimators.pipeline import FitRequest, MapFit, fit_map
from nystrom.estimators.targets import (
    KernelClassifier,
    KernelRegressor,
    TargetMachine,
    classes_to_fit,
    kernel_rule,
    landmarks_to_spare,
    numbers_to_fit,
    require_finite_squares,
)
from nystrom.estimators.trust import Draw
from nystrom.exceptions import AccuracyWarning, warn_caller
from nystrom.linalg import small_product
from nystrom.nystroem.factor import FeatureMap, NystromMap
from nystrom.nystroem.fit_pass import Statistics
from nystrom.rows import Block, RowBlocks, array_rows, require_finite
from nystrom.rows.draw import are_whole, gather_target, gather_weight
from nystrom.rows.validation import Checked, check_target
from nystrom.solvers.conjugate import warn_unless_converged
from nystrom.solvers.exact import TILE_ROWS, KernelProduct, TiledRows, solve_exactly, tile_rows_on
from nystrom.solvers.ridge import (
    AUTO_ALPHAS,
    Choice,
    RidgeProblem,
    auto_alphas,
    choose_solver,
    leave_one_out,
    ridge_problem,
)
from nystrom.tuning.judge import Reach
from nystrom.tuning.landmark_fit import fit_on_landmarks
from nystrom.types import Array, Candidates, ClassWeight, RowsLike, TargetLike, to_dense

_SELECTIONS = ("loo", "gcv", "likelihood")
_SOLVERS = ("auto", "factor", "cg", "exact")
# Mean number of repetitions per row above which weights are probably not repetitions.
_HEAVY = 50
# Landmarks of the factor that preconditions the exact solver.
_PRECONDITIONING_LANDMARKS = 1000


class RidgeParameters(TargetParameters, total=False):
    """Parameters of :class:`RidgeOptions`, with the same defaults in regression and classification."""

    solver: str
    tol: float
    max_iter: int
    early_stopping: bool
    compute_dual: bool


@dataclass(frozen=True)
class RidgeOptions(Options):
    """Parameters that kernel ridge regression and classification share.

    Parameters
    ----------
    solver : {"auto", "factor", "cg", "exact"}, default="auto"
        "factor" is the closed form of the low-rank factor: O(n m²) time and a dozen m × m matrices. "cg" finds the same
        function by conjugate gradients, for thousands of landmarks: O(n m) time per step and one m × m matrix. "exact"
        uses every row as a landmark: conjugate gradients preconditioned by the factor, O(n²) time per step and O(n)
        memory. "auto" uses the cheapest of those that give the closed form's answer; ``solver_`` and
        ``solver_reason_`` say which and why.
    tol : float, default=1e-08
        Relative residual for solvers "cg" and "exact".
    max_iter : int, default=200
        Largest number of steps of solvers "cg" and "exact".
    early_stopping : bool, default=False
        Whether solver "cg" stops when the error on held-out rows has not improved for five steps, and keeps the best
        step: fewer steps regularise. 5 % of the rows are held out, at least 500 and at most 5,000.
    compute_dual : bool, default=False
        Whether to compute ``dual_coef_``, one number per training row, in one more pass. Solver "exact" always does.
    gamma : "scale", "auto", None or float, default="scale"
        Width of the kernel. "scale" is the paper's: one over the mean squared distance of the rows to their mean.
        "auto" searches it by the errors on rows held out from a sample, in about half the time of a fit. None is
        scikit-learn's: one over the number of columns.
    """

    solver: str = "auto"
    tol: float = 1e-8
    max_iter: int = 200
    early_stopping: bool = False
    compute_dual: bool = False

    def __post_init__(self) -> None:
        check_choice(self.solver, "solver", _SOLVERS)
        check_tolerance(self.tol, "tol")
        check_count(self.max_iter, "max_iter")
        if check_flag(self.early_stopping, "early_stopping") and self.solver in ("factor", "exact"):
            raise ValueError(
                f"early_stopping=True stops the steps of solver='cg', and solver={self.solver!r} has none to stop. "
                f"Use solver='cg' or 'auto', or leave early_stopping=False."
            )
        check_flag(self.compute_dual, "compute_dual")


@dataclass(frozen=True)
class Ridge:
    """The specification of a ridge regression: its regularisations, how one is chosen, and the solver.

    ``class_weights`` are the weights of one repetition of a row of each class; None if they are 1.
    """

    options: RidgeOptions
    alphas: Array | None
    selection: str
    fit_intercept: bool
    resources: Resources
    class_weights: Array | None = None

    @classmethod
    def of(cls, machine: Any, class_weights: Array | None = None) -> Self:
        """Return the specification from the parameters of a machine, checked."""
        return cls(
            RidgeOptions.of(machine),
            check_alphas(machine.alpha),
            check_choice(machine.selection, "selection", _SELECTIONS),
            check_flag(machine.fit_intercept, "fit_intercept"),
            machine._resources(),
            class_weights,
        )

    def fit(
        self, machine: TargetMachine, checked: Checked, draw: Draw, codes: Array | None = None
    ) -> tuple[MapFit, dict[str, Any]]:
        """Return the map of the rows and the other results; ``codes`` are the class numbers of a classification."""
        rows, y = checked.joined, checked.y
        solver, reason = self._choose_solver(machine, rows, 1 if y is None or y.ndim == 1 else y.shape[1])
        fit = fit_map(rows, self._request(machine, rows, solver))
        if solver == "cg":
            results = self._solve_on_landmarks(fit, rows, make_generator(machine.random_state))
        else:
            results = self.solve(fit.factored, rows, fit.keep.values) | {"n_iter_": 1}
        results |= {"solver_": solver, "solver_reason_": reason}
        if solver == "exact":
            results |= self._solve_exactly(fit, checked, results)
        elif self.options.compute_dual:
            results["_dual_coef"] = self._dual(fit.map, rows, results)
        results["_held"] = draw.take(
            fit.passes.engine,
            y,
            checked.weight,
            penalty=results["alpha_"],
            fit_intercept=self.fit_intercept,
            tuned=len(results["alphas_"]) > 1,
            codes=codes,
            class_weights=self.class_weights,
        )
        return fit, results

    def _choose_solver(self, machine: TargetMachine, rows: RowBlocks, n_targets: int) -> Choice:
        """Return the requested solver, or the cheapest, with the reason."""
        if self.options.solver != "auto":
            return Choice(self.options.solver, "it was asked for")
        if self.options.early_stopping:
            return Choice("cg", "early_stopping is part of the iteration")
        if machine.n_components is not None:
            return Choice("factor", "n_components cuts the rank of the factor")
        if isinstance(machine.n_landmarks, str):
            return Choice("factor", "n_landmarks='auto' takes no more landmarks than a factor holds")
        m = landmarks_to_spare(machine, rows)
        if m is None:
            return Choice("factor", "kernel='precomputed' has no coordinates")
        n_alphas = AUTO_ALPHAS if self.alphas is None else len(self.alphas)
        fits = self.resources.factor_fits(rows, m)
        choice = choose_solver(*rows.shape, m, n_targets, n_alphas=n_alphas, factor_fits=fits)
        # The exact answer is the same only if the landmarks are the rows themselves.
        exact = choice.solver == "exact" and _rows_are(machine.landmarks, rows)
        return choice if exact or choice.solver != "exact" else Choice("cg", choice.reason)

    def _request(self, machine: TargetMachine, rows: RowBlocks, solver: str) -> FitRequest:
        if solver == "cg" and machine.n_components is not None:
            raise ValueError("solver='cg' keeps every direction that the landmarks span; leave n_components=None.")
        if solver == "cg" and not machine._kernel().has_coordinates:
            raise ValueError("solver='cg' needs rows with coordinates; with kernel='precomputed' use solver='factor'.")
        few = {"cg": 0, "exact": _PRECONDITIONING_LANDMARKS if self.options.solver == "auto" else None}
        exact = self.options.solver == "exact"
        return machine._request(
            rows,
            kernel_rule=kernel_rule(machine, rows, Reach(self.alphas)),
            factor_landmarks=few.get(solver),
            footprint=_cg_footprint if solver == "cg" else self._exact_footprint if exact else fit_footprint,
        )

    def _exact_footprint(self, rows: RowBlocks, m: int, held: int, per_thread: int) -> Footprint:
        later = exact_footprint(rows, m, 1 + self.fit_intercept, tile_rows=TILE_ROWS)
        return fit_footprint(rows, m, held, per_thread).joined(later)

    def _count(self, s: Statistics) -> float | None:
        """Return the number of rows if there are class weights, which emphasise classes and are not repetitions."""
        weights = self.class_weights
        if weights is None:
            return None
        shares = (1 + s.target_mean) / 2
        shares = np.append(1 - shares, shares) if len(weights) == 2 else shares
        total = np.array([s.weight * shares @ (1 / weights)])
        # Without class weights, the sum is the number of repetitions if it is whole and at least the number of rows.
        return float(total[0]) if total[0] > s.count - 0.5 and are_whole(total) else float(s.count)

    def _scores(
        self, problem: RidgeProblem, fitted: NystromMap, rows: RowBlocks | None, alphas: Array, kept: Array | None
    ) -> Array:
        if self.selection == "likelihood":
            return problem.negative_log_likelihood(alphas)
        if self.selection == "gcv" or rows is None:
            return problem.gcv(alphas)
        work = partial(emit_footprint, rows, len(fitted.landmarks), len(alphas) * problem.cross.shape[1])
        engine = self.resources.engine(rows, work)
        repeated = problem.count != fitted.statistics.count
        unit = _unit(self.class_weights) if repeated else lambda y: np.full(len(y), np.inf)
        return leave_one_out(problem, fitted, rows, engine, alphas, unit, kept)

    @stage("regularisation")
    def solve(self, fitted: NystromMap, rows: RowBlocks | None, kept: Array | None = None) -> dict[str, Any]:
        """Choose the regularisation and solve from the statistics of the map; only leave-one-out reads the rows.

        ``kept`` is k(X, Z) of all rows, if the fit has kept it.
        """
        problem = ridge_problem(fitted, fit_intercept=self.fit_intercept, count=self._count(fitted.statistics))
        require_finite_squares(problem.squares)
        alphas = auto_alphas(problem.values) if self.alphas is None else self.alphas
        best, results = 0, {"alphas_": alphas}
        if len(alphas) > 1:
            _warn_of_heavy(fitted.statistics)
            scores = self._scores(problem, fitted, rows, alphas, kept)
            best = int(np.argmin(scores) if self.selection == "likelihood" else problem.choose(alphas, scores))
            results["alpha_scores_"] = scores
        weights, intercept = problem.solve(float(alphas[best]))
        coefficients = fitted.projection @ weights
        found = {"alpha_": float(alphas[best]), "landmark_coef_": coefficients, "intercept_": intercept}
        return results | found | {"_dual_coef": None}

    @stage("solve")
    def _solve_on_landmarks(self, fit: MapFit, rows: RowBlocks, rng: np.random.Generator) -> dict[str, Any]:
        """Solve for the coefficients of the landmarks by conjugate gradients, without a factor."""
        engine, tol = fit.passes.engine, self.options.tol
        found = fit_on_landmarks(
            rows,
            engine,
            fit.kernel,
            fit.landmarks,
            alphas=self.alphas,
            fit_intercept=self.fit_intercept,
            early_stopping=self.options.early_stopping,
            tol=tol,
            max_iter=self.options.max_iter,
            room=room_for_values(engine.room),
            rng=rng,
        )
        solution = found.solution
        advice = "Raise max_iter, tol or alpha. Predictions settle long before the last digits of the coefficients."
        warn_unless_converged(solution.residuals, solution.converged, tol, advice)
        results: dict[str, Any] = {"alphas_": found.alphas, "alpha_": found.alpha, "_dual_coef": None}
        if found.scores is not None:
            results["alpha_scores_"] = found.scores
        return results | {
            "landmark_coef_": solution.coefficients,
            "intercept_": solution.intercept,
            "residuals_": solution.residuals,
            "n_iter_": len(solution.residuals) - 1,
        }

    @stage("solve")
    def _solve_exactly(self, fit: MapFit, checked: Checked, found: dict[str, Any]) -> dict[str, Any]:
        """Solve for one coefficient per row, preconditioned by the factor."""
        fitted, bare = fit.factored, checked.rows
        n, t = bare.shape[0], found["landmark_coef_"].shape[1] + self.fit_intercept
        work = exact_footprint(bare, fitted.n_components, t, tile_rows=TILE_ROWS)
        engine = self.resources.engine(bare, work)
        Y = gather_target(checked.joined, engine).reshape(n, -1).astype(np.float64)
        weight = gather_weight(bare, engine) if bare.has_weight else checked.weight
        center = np.zeros(Y.shape[1])
        if self.fit_intercept:
            # The tolerance is relative to the size of the target, which a mean far from 0 would inflate.
            center = np.average(Y, axis=0, weights=weight)
            Y = np.column_stack([Y - center, np.ones(n)])
        # Copy: the model predicts from these rows, and the caller may change the originals.
        here = engine.reads_here(bare)
        training = TiledRows(
            array_rows(bare.take(np.arange(n)), name=bare.name) if bare.in_memory or not here else bare,
            tile_rows_on(bare.place),
        )
        # The preconditioner's features get the other half of the room.
        room = room_for_values(engine.room) / 2 if here else 0.0
        shards = None if here else bare
        product = KernelProduct(training, fitted.kernel, engine, room=room, shards=shards, place=bare.place)
        tol, max_iter = self.options.tol, self.options.max_iter
        solution = solve_exactly(
            product, Y, found["alpha_"], fitted=fitted, rows=bare, weight=weight, tol=tol, max_iter=max_iter
        )
        dual, intercept = solution.coefficients, found["intercept_"]
        if self.fit_intercept:
            # The dual of an intercept: the coefficients of each target sum to zero.
            sums = dual.sum(axis=0)
            shift = sums[:-1] / sums[-1]
            dual, intercept = dual[:, :-1] - dual[:, -1:] * shift, center + shift
        steps: dict[str, Any] = {"residuals_": solution.residuals, "n_iter_": len(solution.residuals) - 1}
        if fitted.kernel.of_objects:
            steps["kernel_"] = fitted.kernel.holding(training.take(np.arange(n)))
        return {"_dual_coef": dual, "intercept_": intercept, "training_rows_": training} | steps

    def _dual(self, fitted: FeatureMap, rows: RowBlocks, found: dict[str, Any]) -> Array:
        """Return ``α̂ = D²(y − f)/λ``, shape (n, t): one pass over the training rows."""
        coefficients, intercept, alpha, name = (
            *(found[k] for k in ("landmark_coef_", "intercept_", "alpha_")),
            rows.name,
        )

        def step(block: Block) -> Array:
            require_finite(block.X, name, block.start)
            f = small_product(fitted.evaluate(block.X), coefficients) + intercept
            y = np.asarray(block.y, dtype=np.float64).reshape(f.shape)
            scale = 1 / alpha if block.weight is None else block.weight[:, None] / alpha
            return np.asarray(scale * (y - f))

        m, t = coefficients.shape
        engine = self.resources.engine(rows, emit_footprint(rows, m, t, held=8 * rows.shape[0] * t))
        return fetch(engine.emit(rows, step, t, np.float64, label="dual"))

    def check_incremental(self) -> None:
        """Raise unless the statistics alone determine the answer, because earlier rows are no longer available."""
        options = self.options
        if options.solver in ("cg", "exact") or options.early_stopping:
            asked = "early_stopping=True" if options.early_stopping else f"solver={options.solver!r}"
            raise ValueError(f"{asked} needs all rows at once; partial_fit and merge work with solver='factor'.")
        if options.compute_dual:
            raise ValueError(
                "compute_dual=True needs all rows at once; partial_fit and merge work with compute_dual=False."
            )


def _cg_footprint(rows: RowBlocks, m: int, held: int, per_thread: int) -> Footprint:
    return cg_footprint(rows, m, 1, held, per_thread)


def _rows_are(points: object, rows: RowBlocks) -> bool:
    """Whether the landmarks are given as an array that holds exactly the rows."""
    if not isinstance(points, np.ndarray) or points.shape != rows.shape or not rows.in_memory or rows.is_sparse:
        return False
    return np.array_equal(points, to_dense(rows.take(np.arange(rows.shape[0]))))


def _warn_of_heavy(s: Statistics) -> None:
    """Warn of whole weights that are probably ratios: as repetitions, they lead to almost no regularisation."""
    if s.repeats and s.weight > _HEAVY * s.count:
        warn_caller(
            f"the weights are whole numbers, {s.weight / s.count:.0f} per row on average, and count as repetitions in "
            f"the choice of alpha, which becomes very small. If only their ratios matter, divide them by their mean.",
            AccuracyWarning,
        )


def _unit(weights: Array | None) -> Callable[[Array], Array] | None:
    """Return the function from targets ±1 to the class weight of each row; None without class weights."""
    if weights is None:
        return None
    if len(weights) == 2:
        return lambda y: weights[(y.reshape(-1) > 0).astype(np.intp)]
    return lambda y: weights[y.argmax(axis=1)]


def _dual_coef(machine: Any) -> Array:
    """α̂ of the paper: one entry per training row."""
    check_is_fitted(machine)
    dual: Array | None = machine._dual_coef
    if dual is None:
        raise AttributeError(
            "dual_coef_ has one entry for each training row and was not computed: fit with compute_dual=True "
            "(one more pass). landmark_coef_ is enough to predict."
        )
    return dual[:, 0] if machine._one_target else dual


class KernelRidge(KernelRegressor):
    """Kernel ridge regression.

    Minimises ``Σ w_i (y_i − f(x_i) − b)² + λ‖f‖²`` over the functions that the landmarks span, or over all functions of
    the kernel with ``solver="exact"``. It replaces :class:`sklearn.kernel_ridge.KernelRidge`.

    Parameters
    ----------
    alpha : float, list of float or "auto", default="auto"
        The ridge penalty λ; not multiplied by n. From a list, or from 100 values relative to the largest eigenvalue
        ("auto"), the best by ``selection`` is used; all of them together cost about one fit.
    selection : {"loo", "gcv", "likelihood"}, default="loo"
        Mean squared leave-one-out error (one more pass, 5,000 rows judged), generalised cross-validation, or marginal
        likelihood. ``partial_fit`` and ``merge`` no longer have the earlier rows: they use "gcv" instead of "loo".
    fit_intercept : bool, default=False
        Whether to add an unregularised constant b.
    **shared : RidgeParameters
        Parameters of :class:`nystrom.estimators.ridge.RidgeOptions` and of every machine with a target.

    Attributes
    ----------
    alpha_ : float
        The regularisation used.
    alphas_, alpha_scores_ : arrays
        Values tried, and their scores: less is better. For :func:`nystrom.plotting.plot_alpha_path`.
    search_ : list of tuples
        Seconds, candidate, held-out loss and its standard error of each trial in the search for kernel, metric or
        width.
    landmark_coef_ : array of shape (m, t)
        ``f(x) = k(x, Z) @ landmark_coef_``, for solvers "factor" and "cg".
    dual_coef_ : array of shape (n,) or (n, t)
        α̂ of the paper (including the y missing from its formula), with ``compute_dual=True`` or ``solver="exact"``.
    intercept_ : array of shape (t,)
        b; zeros without an intercept.
    residuals_ : array
        Relative residuals at the start and after each step of solvers "cg" and "exact"; the last is the true one.
    n_iter_ : int
        Steps of solvers "cg" and "exact"; 1 for the closed form.
    solver_, solver_reason_ : str
        The solver used, and why.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map, O(n m (p + m)), in the same pass; then O(m³). Solver "cg" has no map: no eigenvalues, no
    certificate, and ``alpha`` is chosen on held-out rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(X).ravel() + 0.1 * rng.normal(size=500)
    >>> model = KernelRidge(n_landmarks=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    _options: ClassVar[tuple[type, ...]] = (RidgeOptions, ScikitKernel)
    dual_coef_ = property(_dual_coef)

    def __init__(
        self,
        alpha: Candidates = "auto",
        *,
        selection: str = "loo",
        fit_intercept: bool = False,
        **shared: Unpack[RidgeParameters],
    ) -> None:
        set_parameters(self, KernelRidge.__init__, locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        Ridge.of(self)

    def fit(
        self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None, *, groups: TargetLike = None
    ) -> KernelRidge:
        """Fit to the rows X and the target y, which may be None if the rows contain it.

        Rows of the same group in ``groups`` are left out together for :meth:`predict_interval`.
        """
        checked, draw = numbers_to_fit(self, X, y, sample_weight, groups)
        fit, results = Ridge.of(self).fit(self, checked, draw)
        one = checked.y.ndim == 1 if checked.y is not None else results["landmark_coef_"].shape[1] == 1
        return self._store(checked.rows, fit, **results, _one_target=one)

    def partial_fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelRidge:
        """Add the rows X with the target y to the fit: one pass over them alone.

        The first call is :meth:`fit`, so give ``landmarks`` as an array (or a representative first X); later calls keep
        the landmarks and the kernel. The result equals the fit to all rows with these landmarks, up to rounding.
        """
        Ridge.of(self).check_incremental()
        if not hasattr(self, "map_"):
            return self.fit(X, y, sample_weight)
        X, y = opened(X, y, self._columns)
        checked = check_target(self._check_X(X, reset=False), y, sample_weight, numeric=True, owner=self)
        t, known = 1 if checked.y is None or checked.y.ndim == 1 else checked.y.shape[1], self.landmark_coef_.shape[1]
        if checked.y is not None and t != known:
            raise ValueError(f"y has {t} target(s), but the fit so far has {known}; give the same number in each call.")
        self._keep(extended(self, checked.joined))
        return self

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        return Ridge.of(self).solve(fitted, None) | {"_held": None}  # the sample is not of all rows

    def _check_merge(self, other: Self) -> None:
        Ridge.of(self).check_incremental()
        super()._check_merge(other)


class KernelRidgeClassifier(KernelClassifier):
    """Classify by kernel ridge regression on targets ±1, one per class.

    Parameters
    ----------
    alpha : float, list of float or "auto", default="auto"
        λ; see :class:`nystrom.KernelRidge`.
    selection : {"loo", "gcv", "likelihood"}, default="gcv"
        How ``alpha`` is chosen; "gcv" needs no further pass.
    class_weight : dict, "balanced" or None
        Weight of the rows of each class; "balanced" gives all classes the same total weight.
    fit_intercept : bool, default=True
        Whether to add an unregularised constant.
    **shared : RidgeParameters
        Parameters of :class:`nystrom.estimators.ridge.RidgeOptions` and of every machine with a target.

    Attributes
    ----------
    classes_ : array of shape (c,)
        The classes, sorted.
    alpha_, alphas_, alpha_scores_, landmark_coef_, dual_coef_, intercept_, residuals_, n_iter_
        As in :class:`nystrom.KernelRidge`.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of one :class:`nystrom.KernelRidge`, for any number of classes. Rows that contain their target are read
    once more at the beginning, to find the classes.

    Probabilities are those of :meth:`predict_proba`: a sigmoid or softmax of the scores, learned from left-out rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KernelRidgeClassifier(n_landmarks=300, random_state=0).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.95)
    True
    """

    _options: ClassVar[tuple[type, ...]] = (RidgeOptions,)
    dual_coef_ = property(_dual_coef)

    def __init__(
        self,
        alpha: Candidates = "auto",
        *,
        selection: str = "gcv",
        class_weight: ClassWeight = None,
        fit_intercept: bool = True,
        **shared: Unpack[RidgeParameters],
    ) -> None:
        set_parameters(self, KernelRidgeClassifier.__init__, locals())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        Ridge.of(self)

    def fit(
        self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None, *, groups: TargetLike = None
    ) -> KernelRidgeClassifier:
        """Fit to the rows X and their classes y, which may be None if the rows contain them.

        Rows of the same group in ``groups`` are left out together for :meth:`predict_set` and :meth:`predict_proba`.
        """
        target, draw = classes_to_fit(self, X, y, sample_weight, groups)
        checked = Checked(target.rows, target.indicators, target.weight)
        fit, results = Ridge.of(self, target.class_weights).fit(self, checked, draw, target.codes)
        one = len(target.classes) == 2
        return self._store(target.rows, fit, **target.results, **results, _one_target=one)

    def _solved(self, fitted: NystromMap) -> dict[str, Any]:
        return Ridge.of(self, self._class_weights).solve(fitted, None) | {"_held": None}

    def _check_merge(self, other: Self) -> None:
        Ridge.of(self).check_incremental()
        super()._check_merge(other)
        if not np.array_equal(self.classes_, other.classes_):
            raise ValueError(
                f"the two fits have different classes, {list(self.classes_)} and {list(other.classes_)}; to merge, "
                f"both need the same."
            )
        if self.class_weight != other.class_weight or self.class_weight == "balanced":
            raise ValueError(
                "merge needs the same class weights in both fits, and class_weight='balanced' computes them from the "
                "rows of each: give both the same dictionary, or None."
            )
