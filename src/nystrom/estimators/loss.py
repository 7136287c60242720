"""What the machines of a convex loss share: from rows with targets to coefficients, and the choice of C."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_candidates, check_count, check_flag, check_tolerance
from nystrom.engine.survey import Survey
from nystrom.estimators.base import resolve_sizes
from nystrom.estimators.classes import KernelClassifier
from nystrom.estimators.parameters import SupervisedParameters
from nystrom.estimators.supervised import Link, SupervisedMachine
from nystrom.factor import NystromMap
from nystrom.generator import make_generator
from nystrom.kernels import Kernel, Precomputed
from nystrom.kmeans.lloyd import draw_rows
from nystrom.landmarks import Landmarks, make_selector
from nystrom.memory import Footprint, cg_footprint, fit_footprint
from nystrom.rows import Block, RowBlocks
from nystrom.solvers.alpha_path import RidgeProblem, auto_alphas, leave_one_out, ridge_problem
from nystrom.solvers.bandwidth import search_gamma
from nystrom.solvers.choice import factor_takes_long
from nystrom.solvers.held_out import PATH_ROWS, CostPath, choose_cost
from nystrom.solvers.lbfgs import Problem, make_landmark_problem, make_problem, minimise
from nystrom.solvers.losses import Loss
from nystrom.solvers.sample import gather_keys, row_keys, take_with_targets
from nystrom.solvers.without_factor import UnfactoredMap
from nystrom.types import Array, Candidates, ClassWeight, Emitted, OutPath, RowsLike


class LossParameters(SupervisedParameters, total=False):
    """Parameters of :class:`LossMachine` with the same defaults in all of them."""

    fit_intercept: bool
    tol: float
    max_iter: int


class LossMachine(SupervisedMachine):
    """What the machines of a convex loss share.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether to add a constant, which is not penalised.
    tol : float, default=0.0001
        The solver ends when about this share of the objective is left to gain: measured at up to 5 times this share,
        and at up to 500 times where C times k(x, x) is 1e4 or more. Probabilities right to 1e-6 take 1e-12 or less;
        where C times k(x, x) is 1e7, as with polynomial kernels of large rows, rounding leaves up to 3e-6.
    max_iter : int, default=1000
        Most passes over the rows that the solver makes.
    gamma : "scale", "auto", None or float, default="scale"
        Width of the kernel. "scale" is the paper's: one over the mean squared distance of the rows to their mean.
        "auto" searches it by the leave-one-out error of the ridge regression on the target that is regularised as ``C``
        says, on samples of the rows. None is scikit-learn's: one over the number of columns.
    """

    def __init__(
        self,
        *,
        C: Candidates,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 1000,
        **shared: Unpack[SupervisedParameters],
    ) -> None:
        super().__init__(**shared)
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_flag(self.fit_intercept, "fit_intercept")

    def _settle_kernel(self, survey: Survey, kernel: Kernel, landmarks: Landmarks, rng: np.random.Generator) -> Kernel:
        if not self._searches_width(kernel, check_candidates(self.C, "C")):
            return super()._settle_kernel(survey, kernel, landmarks, rng)

        count = survey.moments.count

        def criterion(fitted: NystromMap, rows: RowBlocks) -> float:
            problem = ridge_problem(fitted, fit_intercept=self.fit_intercept)
            alphas = self._alphas(problem, problem.count / count)
            return float(np.min(leave_one_out(problem, fitted, rows, self._engine(rows), alphas)))

        return search_gamma(survey, kernel.resolve(survey.moments), landmarks, self._factorise, criterion, rng)

    def _alphas(self, problem: RidgeProblem, share: float) -> Array:
        """Return the regularisations of ridge regression, on a share of the rows, that the values of C amount to.

        A loss of curvature κ is about ``κ/2 (s − t)²``, so that C stands for α = 1/(C κ). A width that suits another
        regularisation may be useless at this one: a very wide kernel needs next to none.
        """
        costs = check_candidates(self.C, "C")
        if costs is None:
            return auto_alphas(problem.values)
        n_columns = problem.cross.shape[1]
        return np.asarray(share / (costs * self._loss(n_columns).curvature(n_columns)))

    def _loss(self, n_columns: int) -> Loss:
        """Return the loss of so many scores per row."""
        raise NotImplementedError

    def _fit_loss(self, rows: RowBlocks, y: Array, weight: Array | None, *, target: Array, strata: Array) -> None:
        """Fit the map, choose C and solve: ``target`` is a ridge regression's, y what the loss takes."""
        loss = self._loss(target.shape[1])
        costs = check_candidates(self.C, "C")
        tol, max_iter = check_tolerance(self.tol, "tol"), check_count(self.max_iter, "max_iter")
        targeted = rows.with_target(target, weight)
        if self._takes_many_landmarks(rows):
            problem = self._landmark_problem(targeted, rows, y, weight, loss, target.shape[1])
        else:
            fitted, _ = self._fit_map(targeted)
            problem = self._problem(rows, y, weight, loss, fitted, target.shape[1])
        self.Cs_, start = costs, None
        if costs is None or len(costs) > 1:
            path = self._cost_path(problem, rows, y, weight, costs, strata)
            self.Cs_, self.C_scores_, self.C_ = path.costs, path.scores, path.best
            # The solution for a sample saves a third of the passes over many rows. Few are soon passed, and are fitted
            # as they are with this C alone.
            start = path.solution if rows.shape[0] > PATH_ROWS else None
        else:
            self.C_ = float(costs[0])
        found = minimise(problem, self.C_, tol=tol, max_iter=max_iter, start=start)
        coefficients, self.intercept_ = problem.coefficients(found.x)
        self.landmark_coef_ = problem.basis.spread(coefficients)
        self.objective_ = found.objective
        self.n_iter_ = found.n_iter

    def _cost_path(
        self, problem: Problem, rows: RowBlocks, y: Array, weight: Array | None, costs: Array | None, strata: Array
    ) -> CostPath:
        """Return the held-out losses of values of C, on a sample of the rows where there are many: one pass."""
        rng = make_generator(self.random_state).spawn(1)[0]
        sampled = rows.shape[0] > PATH_ROWS
        if sampled:
            drawing, rng = rng.spawn(2)
            numbers, stands = draw_rows(rows.shape[0], PATH_ROWS, weight, drawing)
            X = take_with_targets(rows, problem.engine, numbers).X
            y, strata, weight = y[numbers], strata[numbers], np.ones(len(numbers)) if stands is None else stands
            problem, keys = problem.for_rows(X, y, weight), row_keys(X)
        else:
            keys, _ = gather_keys(rows, problem.engine)
        max_iter = check_count(self.max_iter, "max_iter")
        return choose_cost(
            problem, y, weight, costs, keys=keys, strata=strata, max_iter=max_iter, rng=rng, in_array=sampled
        )

    def _path_bytes(self, rows: RowBlocks, m: int) -> int:
        """Return what the kernel values of the sample take that C is chosen on, and a copy of them in two parts."""
        costs = check_candidates(self.C, "C")
        alone = costs is not None and len(costs) == 1
        return 0 if alone or rows.shape[0] <= PATH_ROWS else 2 * PATH_ROWS * m * 8

    def _takes_many_landmarks(self, rows: RowBlocks) -> bool:
        """Whether landmarks are so many that the machine does without a factor."""
        if self.n_components is not None or isinstance(self.n_landmarks, str):
            return False
        if isinstance(self._kernel(), Precomputed):
            return False
        _, m = resolve_sizes(None, self.n_landmarks, rows.shape[0])
        m = make_selector(self.landmarks).count(m, rows.shape[0])
        return factor_takes_long(rows.shape[0], m) or not self._factor_fits(rows, m)

    def _footprint(self, rows: RowBlocks, m: int, selection_bytes: int, selection_thread_bytes: int) -> Footprint:
        if not self._takes_many_landmarks(rows):
            return super()._footprint(rows, m, selection_bytes, selection_thread_bytes)
        beside = _bytes_beside(rows, 1) + self._path_bytes(rows, m)
        return cg_footprint(rows, m, 1, selection_bytes + beside, selection_thread_bytes)

    def _landmark_problem(
        self, targeted: RowBlocks, rows: RowBlocks, y: Array, weight: Array | None, loss: Loss, n_columns: int
    ) -> Problem:
        """Choose landmarks and return the problem on them, without a factor."""
        survey, kernel, landmarks, _ = self._choose_landmarks(targeted)
        self._store_unfactored(UnfactoredMap(landmarks, kernel))
        return make_landmark_problem(
            rows,
            y,
            weight,
            kernel=kernel,
            landmarks=landmarks,
            engine=survey.engine,
            loss=loss,
            n_columns=n_columns,
            fit_intercept=bool(self.fit_intercept),
        )

    def _problem(
        self, rows: RowBlocks, y: Array, weight: Array | None, loss: Loss, fitted: NystromMap, n_columns: int
    ) -> Problem:
        m = len(fitted.landmarks)
        beside = _bytes_beside(rows, 1 if y.ndim == 1 else y.shape[1]) + self._path_bytes(rows, m)
        engine = self._engine(rows, fit_footprint(rows, m, beside))
        return make_problem(
            rows,
            y,
            weight,
            fitted=fitted,
            engine=engine,
            loss=loss,
            n_columns=n_columns,
            fit_intercept=bool(self.fit_intercept),
        )

    def _raw_predict(self, X: RowsLike, link: Link | None = None, *, out: OutPath = None) -> Emitted:
        """Return the scores of the rows of X, shape (n, t), or what a link makes of them: one pass."""
        check_is_fitted(self)
        link = link or Link("predict", np.asarray, self.landmark_coef_.shape[1])
        rows = self._check_X(X, reset=False)
        fitted, coefficients, intercept = self.map_, self.landmark_coef_, self.intercept_

        def function(block: Block) -> Array:
            return link(fitted.evaluate(block.X) @ coefficients + intercept)

        return self._emit(rows, function, link.n_columns, link.dtype, label=link.name, out=out)


class LossClassifier(KernelClassifier, LossMachine):
    """What the classifiers of a convex loss share.

    Parameters
    ----------
    C : float, list of float or "auto", default=1.0
        Weight of the loss: the larger, the closer the fit. From a list, or from a grid ("auto"), the value with the
        least loss on held-out rows is taken; each fit begins where the last one ended.
    class_weight : dict, "balanced" or None, default=None
        Weight of the rows of each class; "balanced" makes all classes count alike.
    """

    def __init__(
        self, C: Candidates = 1.0, *, class_weight: ClassWeight = None, **shared: Unpack[LossParameters]
    ) -> None:
        super().__init__(C=C, **shared)
        self.class_weight = class_weight


def _bytes_beside(rows: RowBlocks, n_columns: int) -> int:
    """Return what targets and weights of all rows take in memory: y, what made it, and three weights at most."""
    return rows.shape[0] * (2 * 8 * n_columns + 3 * 8)
