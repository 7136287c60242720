"""Machines with a convex loss: kernel logistic regression and support vector machines, with the choice of C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_candidates, check_count, check_flag, check_tolerance, make_generator
from nystrom.engine import Resources
from nystrom.engine.memory import Footprint, cg_footprint, fit_footprint
from nystrom.engine.progress import stage
from nystrom.estimators.parameters import Options, ScikitSVC, ScikitSVM, TargetParameters, set_parameters
from nystrom.estimators.pipeline import MapFit, fit_map
from nystrom.estimators.targets import (
    ClassTarget,
    KernelClassifier,
    KernelRegressor,
    Link,
    TargetMachine,
    classes_to_fit,
    kernel_rule,
    landmarks_to_spare,
    numbers_to_fit,
)
from nystrom.estimators.trust import Draw
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import RowBlocks
from nystrom.rows.draw import draw_rows, gather_target, gather_weight, take_with_targets
from nystrom.solvers.lbfgs import Problem, make_landmark_problem, make_problem, minimise
from nystrom.solvers.losses import Logistic, Loss, Multinomial, SquaredEpsilonInsensitive, SquaredHinge
from nystrom.solvers.ridge import factor_takes_long
from nystrom.tuning.cost import PATH_ROWS, CostPath, auto_costs, choose_cost
from nystrom.tuning.judge import Reach
from nystrom.tuning.sample import row_keys
from nystrom.types import Array, Candidates, ClassWeight, Emitted, OutPath, RowsLike, TargetLike

# Factor by which the curvature of a loss falls once classes are separated. Without it, the widths chosen for 0/1
# columns and noise-free classes had up to 6 times the log-loss.
_FALLEN = 100.0


class LossParameters(TargetParameters, total=False):
    """Parameters of :class:`LossOptions`, with the same defaults in all machines with a loss."""

    fit_intercept: bool
    tol: float
    max_iter: int


@dataclass(frozen=True)
class LossOptions(Options):
    """Parameters that the machines with a convex loss share.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether to add an unpenalised constant.
    tol : float, default=0.0001
        The solver stops when it estimates that the objective can fall by at most this fraction. In measurements it
        could fall by up to 5 times as much, and by up to 500 times as much if C k(x, x) was 1e4 or more. Probabilities
        accurate to 1e-6 need a ``tol`` of 1e-12 or less. If C k(x, x) is 1e7, as with polynomial kernels of large rows,
        rounding leaves errors of up to 3e-6.
    max_iter : int, default=1000
        Largest number of passes of the solver over the rows.
    gamma : "scale", "auto", None or float, default="scale"
        Width of the kernel. "scale" is the paper's: one over the mean squared distance of the rows to their mean.
        "auto" searches it by the errors on rows held out from a sample, in the ridge regression equivalent to ``C``.
        None is scikit-learn's: one over the number of columns.
    """

    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int = 1000

    def __post_init__(self) -> None:
        check_flag(self.fit_intercept, "fit_intercept")
        check_tolerance(self.tol, "tol")
        check_count(self.max_iter, "max_iter")


@dataclass(frozen=True)
class LossTarget:
    """The input of a loss: rows, the target and weight of each, and the target of an equivalent ridge regression.

    ``strata`` are numbers; rows with the same number are spread evenly when some are held out.
    """

    rows: RowBlocks
    y: Array
    weight: Array | None
    ridge: Array
    strata: Array


@dataclass(frozen=True)
class LossFit:
    """The specification of a fit with a convex loss: the loss, the values of C, and the solver's limits."""

    options: LossOptions
    costs: Array | None
    loss: Loss
    resources: Resources
    seed: Any

    @classmethod
    def of(cls, machine: Any, loss: Loss) -> LossFit:
        """Return the specification from the parameters of a machine, checked."""
        costs = check_candidates(machine.C, "C")
        return cls(LossOptions.of(machine), costs, loss, machine._resources(), machine.random_state)

    def fit(
        self,
        machine: TargetMachine,
        target: LossTarget,
        draw: Draw,
        classes: ClassTarget | None = None,
        shift: float | Array = 0.0,
    ) -> tuple[MapFit, dict[str, Any]]:
        """Return the map of the rows and the other results: C, coefficients and how they were found.

        ``shift`` was subtracted from the target.
        """
        rows, n = target.rows, target.rows.shape[0]
        targeted = rows.with_target(target.ridge, target.weight)
        m = landmarks_to_spare(machine, rows)
        many = m is not None and (factor_takes_long(n, m) or not self.resources.factor_fits(rows, m))
        request = machine._request(
            targeted,
            kernel_rule=kernel_rule(machine, targeted, self._reach(target), n_columns=target.ridge.shape[1]),
            factor_landmarks=0 if many else None,
            footprint=self._many_footprint if many else fit_footprint,
        )
        fit = fit_map(targeted, request)
        results = self._solve(fit, target)
        results["intercept_"] = results["intercept_"] + shift
        results["_held"] = draw.take(
            fit.passes.engine,
            target.y + shift if classes is None else target.y,
            target.weight,
            penalty=1 / results["C_"],
            fit_intercept=self.options.fit_intercept,
            tuned=len(results["Cs_"]) > 1,
            loss=self.loss,
            codes=None if classes is None else classes.codes,
            class_weights=None if classes is None else classes.class_weights,
        )
        return fit, results

    @stage("solve")
    def _solve(self, fit: MapFit, target: LossTarget) -> dict[str, Any]:
        """Choose C, and return it with the coefficients."""
        problem, n = self._problem(fit, target), target.rows.shape[0]
        costs, start, scores = self.costs, None, {}
        if costs is None or len(costs) > 1:
            path = self._cost_path(problem, target)
            costs, best, scores = path.costs, path.best, {"C_scores_": path.scores}
            # Starting from the solution for the sample saves a third of the passes over many rows. With few rows,
            # passes are cheap: start from zero, so that the result is that of a fit with this C alone.
            start = path.solution if n > PATH_ROWS else None
        else:
            best = float(costs[0])
        found = minimise(problem, best, tol=self.options.tol, max_iter=self.options.max_iter, start=start)
        coefficients, intercept = problem.coefficients(found.x)
        return scores | {
            "Cs_": costs,
            "C_": best,
            "landmark_coef_": problem.basis.spread(coefficients),
            "intercept_": intercept,
            "objective_": found.objective,
            "n_iter_": found.n_iter,
        }

    def _reach(self, target: LossTarget) -> Reach:
        """Return the ridge regressions equivalent to the values of C.

        A loss of curvature κ is about ``κ/2 (s − t)²``, so C is equivalent to α = 1/(C κ). A width that suits another
        regularisation may be useless for this one: a very wide kernel needs almost none.
        """
        curvature = self.loss.curvature(target.ridge.shape[1])
        if self.costs is None:
            # If the classes are separated, the curvature falls, and a large C smooths as much as a far smaller one.
            costs = auto_costs(target.weight)
            return Reach(None, _FALLEN / (costs[-1] * curvature), 1 / (costs[0] * curvature))
        return Reach(1 / (self.costs * curvature))

    def _problem(self, fit: MapFit, target: LossTarget) -> Problem:
        rows, y, weight = target.rows, target.y, target.weight
        asked = {"loss": self.loss, "n_columns": target.ridge.shape[1], "fit_intercept": self.options.fit_intercept}
        if not isinstance(fit.map, NystromMap):
            engine = fit.passes.engine
            return make_landmark_problem(
                rows, y, weight, kernel=fit.kernel, landmarks=fit.landmarks, engine=engine, **asked
            )
        m = len(fit.map.landmarks)
        targets = _target_bytes(rows, 1 if y.ndim == 1 else y.shape[1]) + self._path_bytes(rows, m)
        engine = self.resources.engine(rows, fit_footprint(rows, m, targets))
        return make_problem(rows, y, weight, fitted=fit.map, engine=engine, kept=fit.keep.values, **asked)

    def _cost_path(self, problem: Problem, target: LossTarget) -> CostPath:
        """Return the held-out losses for values of C, on a sample if there are many rows: one pass."""
        rows, weight = target.rows, target.weight
        drawing, rng = make_generator(self.seed).spawn(1)[0].spawn(2)
        numbers, adjusted = draw_rows(rows.shape[0], PATH_ROWS, weight, drawing)
        X = take_with_targets(rows, problem.engine, numbers).X
        y, weight = target.y[numbers], np.ones(len(numbers)) if adjusted is None else adjusted
        asked: dict[str, Any] = {"keys": row_keys(X), "strata": target.strata[numbers]}
        asked["auto"] = auto_costs(target.weight)
        return choose_cost(
            problem.for_rows(numbers, X, y, weight),
            y,
            weight,
            self.costs,
            max_iter=self.options.max_iter,
            rng=rng,
            **asked,
        )

    def _path_bytes(self, rows: RowBlocks, m: int) -> int:
        """Return the bytes of the kernel values of the sample that chooses C, and of their copies in two parts."""
        alone = self.costs is not None and len(self.costs) == 1
        return 0 if alone else 2 * min(rows.shape[0], PATH_ROWS) * m * 8

    def _many_footprint(self, rows: RowBlocks, m: int, held: int, per_thread: int) -> Footprint:
        targets = _target_bytes(rows, 1) + self._path_bytes(rows, m)
        return cg_footprint(rows, m, 1, held + targets, per_thread)


def _target_bytes(rows: RowBlocks, n_columns: int) -> int:
    """Return the bytes of targets and weights of all rows: y, the array it was made from, and up to three weights."""
    return rows.shape[0] * (2 * 8 * n_columns + 3 * 8)


class KernelLogisticRegression(KernelClassifier):
    """Kernel logistic regression: a classifier with probabilities.

    Minimises ``C Σ w_i ℓ_i + ½‖f‖²`` over the functions that the landmarks span, with ℓ the negative log-probability of
    the row's class: the sigmoid of f for two classes, the softmax of one f per class for more. This is
    :class:`sklearn.linear_model.LogisticRegression` on the features of :class:`nystrom.Nystroem`.

    Parameters
    ----------
    C : float, list of float or "auto", default="auto"
        Weight of the loss: the larger, the closer the fit. From a list, or from a grid ("auto"), the value with the
        least loss on held-out rows is used; each fit starts from the previous solution.
    class_weight : dict, "balanced" or None, default=None
        Weight of the rows of each class; "balanced" gives all classes the same total weight.
    **shared : LossParameters
        Parameters of :class:`nystrom.estimators.loss.LossOptions` and of every machine with a target.

    Attributes
    ----------
    classes_ : array of shape (c,)
        The classes, sorted.
    landmark_coef_, intercept_ : arrays of shape (m, t), (t,)
        The scores are ``k(x, Z) @ landmark_coef_ + intercept_``; t is 1 for two classes, else c.
    C_ : float
        The C used.
    Cs_, C_scores_ : arrays
        Values tried and their mean held-out losses, if there was a choice: less is better.
    objective_ : float
        The objective at the solution.
    n_iter_ : int
        Passes of the solver.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map; then O(n m c) per pass of the solver, a few dozen of them. Kernel values of all rows are held
    if memory allows (up to 1 GiB, or what ``max_memory`` leaves), else computed again in every pass.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KernelLogisticRegression(C=100.0, n_landmarks=300, random_state=0).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.95)
    True
    >>> model.predict_proba(X[1000:1002]).shape
    (2, 10)
    """

    _options: ClassVar[tuple[type, ...]] = (LossOptions,)

    def __init__(
        self, C: Candidates = "auto", *, class_weight: ClassWeight = None, **shared: Unpack[LossParameters]
    ) -> None:
        set_parameters(self, KernelLogisticRegression.__init__, locals())

    def fit(
        self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None, *, groups: TargetLike = None
    ) -> KernelLogisticRegression:
        """Fit to the rows X and their classes y, which may be None if the rows contain them.

        Rows of the same group in ``groups`` are left out together for :meth:`predict_set`.
        """
        target, draw = classes_to_fit(self, X, y, sample_weight, groups)
        marks, codes = target.indicators, target.codes
        two = marks.shape[1] == 1
        given = LossTarget(target.rows, marks if two else codes, target.weight, marks, codes)
        fit, results = LossFit.of(self, Logistic() if two else Multinomial()).fit(self, given, draw, target)
        return self._store(target.rows, fit, **target.results, **results)

    def predict_proba(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the probability of each class, in the order of ``classes_``, shape (n, c).

        With ``out``, a path, they are streamed there, as in :meth:`nystrom.Nystroem.transform`.
        """
        check_is_fitted(self)
        return self._raw_predict(X, Link("probabilities", _probabilities, len(self.classes_)), out=out)

    def predict_log_proba(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the log-probability of each class, shape (n, c); accurate even for very small probabilities."""
        check_is_fitted(self)
        return self._raw_predict(X, Link("log probabilities", _log_probabilities, len(self.classes_)), out=out)


class KernelSVC(KernelClassifier):
    """Support vector classifier with the squared hinge loss.

    Minimises ``C Σ w_i max(0, 1 − y_i f(x_i))² + ½‖f‖²`` over the functions that the landmarks span, one class against
    the rest if there are more than two. This is :class:`sklearn.svm.LinearSVC` on the features of
    :class:`nystrom.Nystroem`, except that the intercept is not penalised.

    Parameters
    ----------
    C : float, list of float or "auto", default="auto"
        Weight of the loss: the larger, the closer the fit. From a list, or from a grid ("auto"), the value with the
        least loss on held-out rows is used; each fit starts from the previous solution.
    class_weight : dict, "balanced" or None, default=None
        Weight of the rows of each class; "balanced" gives all classes the same total weight.
    **shared : LossParameters
        Parameters of :class:`nystrom.estimators.loss.LossOptions` and of every machine with a target.

    Attributes
    ----------
    classes_ : array of shape (c,)
        The classes, sorted.
    landmark_coef_, intercept_, C_, Cs_, C_scores_, objective_, n_iter_
        As in :class:`nystrom.KernelLogisticRegression`.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    The squared hinge has a continuous gradient, which the solver needs, and makes more rows support vectors than the
    plain hinge of :class:`sklearn.svm.SVC`. Cost: as for :class:`nystrom.KernelLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(300, noise=0.1, random_state=0)
    >>> bool(KernelSVC(C=10.0, gamma=2.0, n_landmarks=50, random_state=0).fit(X, y).score(X, y) > 0.98)
    True
    """

    _options: ClassVar[tuple[type, ...]] = (LossOptions, ScikitSVM, ScikitSVC)

    def __init__(
        self, C: Candidates = "auto", *, class_weight: ClassWeight = None, **shared: Unpack[LossParameters]
    ) -> None:
        set_parameters(self, KernelSVC.__init__, locals())

    def fit(
        self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None, *, groups: TargetLike = None
    ) -> KernelSVC:
        """Fit to the rows X and their classes y, which may be None if the rows contain them.

        Rows of the same group in ``groups`` are left out together for :meth:`predict_set` and :meth:`predict_proba`.
        """
        target, draw = classes_to_fit(self, X, y, sample_weight, groups)
        marks = target.indicators
        given = LossTarget(target.rows, marks, target.weight, marks, target.codes)
        fit, results = LossFit.of(self, SquaredHinge()).fit(self, given, draw, target)
        return self._store(target.rows, fit, **target.results, **results)


class KernelSVR(KernelRegressor):
    """Support vector regression with the squared epsilon-insensitive loss.

    Minimises ``C Σ w_i max(0, |y_i − f(x_i)| − ε)² + ½‖f‖²`` over the functions that the landmarks span: errors up to ε
    cost nothing. This is :class:`sklearn.svm.LinearSVR` with ``loss="squared_epsilon_insensitive"`` on the features of
    :class:`nystrom.Nystroem`, except that the intercept is not penalised.

    Parameters
    ----------
    C : float, list of float or "auto", default="auto"
        Weight of the loss: the larger, the closer the fit. From a list, or from a grid ("auto"), the value with the
        least loss on held-out rows is used; each fit starts from the previous solution.
    epsilon : float, default=0.1
        Errors up to this cost nothing; in the units of y.
    **shared : LossParameters
        Parameters of :class:`nystrom.estimators.loss.LossOptions` and of every machine with a target.

    Attributes
    ----------
    landmark_coef_, intercept_, C_, Cs_, C_scores_, objective_, n_iter_
        As in :class:`nystrom.KernelLogisticRegression`.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: as for :class:`nystrom.KernelLogisticRegression`.

    Examples
    --------
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = KernelSVR(C=100.0, epsilon=0.01, n_landmarks=30, random_state=0).fit(X, np.sin(X).ravel())
    >>> bool(model.score(X, np.sin(X).ravel()) > 0.99)
    True
    """

    _options: ClassVar[tuple[type, ...]] = (LossOptions, ScikitSVM)

    def __init__(self, C: Candidates = "auto", *, epsilon: float = 0.1, **shared: Unpack[LossParameters]) -> None:
        set_parameters(self, KernelSVR.__init__, locals())

    def fit(
        self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None, *, groups: TargetLike = None
    ) -> KernelSVR:
        """Fit to the rows X and the target y, which may be None if the rows contain it.

        Rows of the same group in ``groups`` are left out together for :meth:`predict_interval`.
        """
        checked, draw = numbers_to_fit(self, X, y, sample_weight, groups)
        loss, rows = SquaredEpsilonInsensitive(check_tolerance(self.epsilon, "epsilon")), checked.rows
        found = gather_target(checked.joined, self._engine(rows)) if checked.y is None else checked.y
        weight = gather_weight(rows, self._engine(rows)) if rows.has_weight else checked.weight
        values = np.asarray(found, dtype=np.float64).reshape(rows.shape[0], -1)
        if not np.isfinite(values).all():
            raise ValueError("Input y contains NaN or infinity: drop such rows before the fit.")
        # Subtract the mean that the intercept absorbs, so that a large mean costs the solver no digits.
        offset = np.average(values, axis=0, weights=weight) if self.fit_intercept else np.zeros(values.shape[1])
        values = values - offset
        given = LossTarget(rows, values, weight, values, np.zeros(rows.shape[0], dtype=np.int8))
        fit, results = LossFit.of(self, loss).fit(self, given, draw, shift=offset)
        return self._store(rows, fit, **results, _one_target=values.shape[1] == 1)


def _probabilities(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return np.hstack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1))


def _log_probabilities(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return -np.logaddexp(0.0, np.hstack([scores, -scores]))
    return np.asarray(log_softmax(scores, axis=1))
