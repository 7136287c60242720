"""The solvers of kernel ridge: which one is taken, and the two that iterate by conjugate gradients."""

from __future__ import annotations

import numpy as np

from nystrom.checks import check_alphas, check_count, check_tolerance
from nystrom.engine.survey import Survey
from nystrom.estimators.base import resolve_sizes
from nystrom.estimators.supervised import SupervisedMachine, gather_target
from nystrom.factor import NystromMap
from nystrom.generator import make_generator
from nystrom.kernels import Kernel, Precomputed
from nystrom.landmarks import Landmarks, make_selector
from nystrom.memory import (
    Footprint,
    cg_footprint,
    exact_footprint,
    room_for_values,
)
from nystrom.rows import RowBlocks, array_rows
from nystrom.solvers.choice import AUTO_ALPHAS, Choice, choose_solver
from nystrom.solvers.conjugate import warn_unless_converged
from nystrom.solvers.exact import solve_exactly
from nystrom.solvers.kernel_product import TILE_ROWS, KernelProduct, TiledRows
from nystrom.solvers.landmark_fit import fit_on_landmarks
from nystrom.solvers.without_factor import UnfactoredMap
from nystrom.types import Array, Candidates, to_dense

# Landmarks of the factor that preconditions the exact solver, where every row is a landmark.
_PRECONDITIONING_LANDMARKS = 1000


class IterativeMachine(SupervisedMachine):
    """A machine that may solve its ridge problem by conjugate gradients, on the landmarks or on every row."""

    alpha: Candidates
    fit_intercept: bool
    solver: str
    tol: float
    max_iter: int
    early_stopping: bool
    solver_: str
    alpha_: float
    alphas_: Array
    landmark_coef_: Array
    intercept_: Array
    _dual_coef: Array | None

    def _choose_solver(self, rows: RowBlocks, n_targets: int) -> Choice:
        """Return the solver asked for, or the cheapest, and why."""
        if self.solver != "auto":
            return Choice(self.solver, "it was asked for")
        if self.early_stopping:
            return Choice("cg", "early_stopping is part of the iteration")
        if self.n_components is not None:
            return Choice("factor", "n_components cuts the rank of the factor")
        if isinstance(self._kernel(), Precomputed):
            return Choice("factor", "kernel='precomputed' has no coordinates")
        if isinstance(self.n_landmarks, str):
            return Choice("factor", "n_landmarks='auto' takes no more landmarks than a factor holds")
        _, m = resolve_sizes(None, self.n_landmarks, rows.shape[0])
        m = make_selector(self.landmarks).count(m, rows.shape[0])
        alphas = check_alphas(self.alpha)
        n_alphas = AUTO_ALPHAS if alphas is None else len(alphas)
        fits = self._factor_fits(rows, m)
        choice = choose_solver(*rows.shape, m, n_targets, n_alphas=n_alphas, factor_fits=fits)
        # Only landmarks that are the rows themselves make the exact answer the same one.
        return choice if choice.solver != "exact" or self._rows_are_landmarks(rows) else Choice("cg", choice.reason)

    def _rows_are_landmarks(self, rows: RowBlocks) -> bool:
        points = self.landmarks
        if not isinstance(points, np.ndarray) or points.shape != rows.shape or not rows.in_memory or rows.is_sparse:
            return False
        return np.array_equal(points, to_dense(rows.take(np.arange(rows.shape[0]))))

    def _choose_landmarks(self, rows: RowBlocks) -> tuple[Survey, Kernel, Landmarks, int | None]:
        survey, kernel, landmarks, rank = super()._choose_landmarks(rows)
        if self.solver_ == "exact" and self.solver == "auto":
            # Every row is a landmark of the answer; the factor that preconditions needs some of them.
            few = np.linspace(0, len(landmarks) - 1, _PRECONDITIONING_LANDMARKS).astype(int)
            landmarks = Landmarks(landmarks.points[few], None)
        return survey, kernel, landmarks, rank

    def _footprint(self, rows: RowBlocks, m: int, selection_bytes: int, selection_thread_bytes: int) -> Footprint:
        if self.solver_ != "cg":
            work = super()._footprint(rows, m, selection_bytes, selection_thread_bytes)
            if self.solver == "exact":
                return work.joined(exact_footprint(rows, m, 1 + self.fit_intercept, tile_rows=TILE_ROWS))
            return work
        return cg_footprint(rows, m, 1, selection_bytes, selection_thread_bytes)

    def _solve_on_landmarks(self, rows: RowBlocks) -> None:
        """Choose landmarks and solve for their coefficients by conjugate gradients, without a factor."""
        if self.n_components is not None:
            raise ValueError("solver='cg' keeps every direction that the landmarks span; leave n_components=None.")
        survey, kernel, landmarks, _ = self._choose_landmarks(rows)
        if isinstance(kernel, Precomputed):
            raise ValueError("solver='cg' needs rows with coordinates; with kernel='precomputed' use solver='factor'.")
        tol = check_tolerance(self.tol, "tol")
        found = fit_on_landmarks(
            rows,
            survey.engine,
            kernel,
            landmarks,
            alphas=check_alphas(self.alpha),
            fit_intercept=self.fit_intercept,
            early_stopping=self.early_stopping,
            tol=tol,
            max_iter=check_count(self.max_iter, "max_iter"),
            room=room_for_values(getattr(survey.engine, "room", None)),
            rng=make_generator(self.random_state),
        )
        self._store_unfactored(UnfactoredMap(landmarks, kernel))
        self.alphas_, self.alpha_ = found.alphas, found.alpha
        if found.scores is not None:
            self.alpha_scores_ = found.scores
        solution = found.solution
        self.landmark_coef_, self.intercept_ = solution.coefficients, solution.intercept
        self.residuals_, self.n_iter_ = solution.residuals, len(solution.residuals) - 1
        self._dual_coef = None
        advice = "Raise max_iter, tol or alpha. Predictions settle long before the last digits of the coefficients."
        warn_unless_converged(solution.residuals, solution.converged, tol, advice)

    def _solve_exactly(self, bare: RowBlocks, y: Array | None, weight: Array | None, fitted: NystromMap) -> None:
        n, t = bare.shape[0], self.landmark_coef_.shape[1] + self.fit_intercept
        engine = self._engine(bare, exact_footprint(bare, fitted.n_components, t, tile_rows=TILE_ROWS))
        Y = gather_target(bare if y is None else bare.with_target(y), engine).reshape(n, -1).astype(np.float64)
        center = np.zeros(Y.shape[1])
        if self.fit_intercept:
            # The tolerance is a share of the target's size, which a mean far from 0 would blow up.
            center = np.average(Y, axis=0, weights=weight)
            Y = np.column_stack([Y - center, np.ones(n)])
        # A copy, because the model predicts from these rows: the caller may change their own.
        whole = bare.in_memory or bare.on_cluster
        self.training_rows_ = TiledRows(array_rows(bare.take(np.arange(n)), name=bare.name) if whole else bare)
        # Half of the room is for the features of the preconditioner.
        room = 0.0 if bare.on_cluster else room_for_values(getattr(engine, "room", None)) / 2
        product = KernelProduct(
            self.training_rows_, fitted.kernel, engine, room=room, shards=bare if bare.on_cluster else None
        )
        found = solve_exactly(
            product,
            Y,
            self.alpha_,
            fitted=fitted,
            rows=bare,
            weight=weight,
            tol=check_tolerance(self.tol, "tol"),
            max_iter=check_count(self.max_iter, "max_iter"),
        )
        dual = found.coefficients
        if self.fit_intercept:
            # The dual of an intercept: the coefficients of each target sum to zero.
            sums = dual.sum(axis=0)
            shift = sums[:-1] / sums[-1]
            dual = dual[:, :-1] - dual[:, -1:] * shift
            self.intercept_ = center + shift
        self._dual_coef = dual
        self.residuals_ = found.residuals
        self.n_iter_ = len(found.residuals) - 1
