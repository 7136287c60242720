"""Base of the machines with a target: checks the target, sets up the kernel's metric and width, makes predictions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_seconds, check_share, check_tolerance
from nystrom.devices import beside, fetch, is_foreign_array, to_host
from nystrom.engine import is_dask_collection
from nystrom.estimators.base import KernelMachine, opened
from nystrom.estimators.parameters import (
    SharedParameters,
    chooses_kernel,
    given_kernel,
    searches_gamma,
    set_parameters,
)
from nystrom.estimators.pipeline import GivenSize, GrownSize, ToleranceSize, resolve_sizes
from nystrom.estimators.quality import map_for
from nystrom.estimators.trust import TILE_ROWS, Draw, Held, calibrate, is_unlike
from nystrom.kernels import InMetric, Kernel, make_kernel
from nystrom.landmarks import make_selector
from nystrom.linalg import small_product
from nystrom.nystroem.factor import FeatureMap
from nystrom.rows import Block, RowBlocks
from nystrom.rows.draw import gather_target, gather_weight
from nystrom.rows.reading import require_unmasked
from nystrom.rows.validation import Checked, check_kind, check_target, require_numbers
from nystrom.solvers.exact import KernelProduct
from nystrom.solvers.landmark_cg import UnfactoredMap
from nystrom.solvers.ridge import fit_operations
from nystrom.tuning.bandwidth import check_searchable
from nystrom.tuning.judge import Reach
from nystrom.tuning.kernel_rule import KernelRule, WidthRule
from nystrom.tuning.metric import MetricLike, can_learn
from nystrom.tuning.search import MOST_LANDMARKS, TimeLimit
from nystrom.types import Array, ClassWeight, Emitted, OutPath, RowsLike, TargetLike, to_dense


def _silent(line: str) -> None:
    """Print nothing."""


# Rows of a target that are processed at a time, to avoid a copy of all of it in a wider dtype.
_ROWS_AT_A_TIME = 2**16


def require_finite_squares(squares: Array) -> None:
    """Raise unless the sum of squares of each target is finite."""
    if not np.isfinite(squares).all():
        raise ValueError(
            "Input y contains NaN or infinity, or numbers above 1e154, whose squares overflow: drop such rows, or "
            "divide y by a constant before the fit."
        )


@dataclass(frozen=True)
class Link:
    """A transformation of the fitted functions at some rows, an array (n, t), before output."""

    name: str
    function: Callable[[Array], Array]
    n_columns: int
    dtype: DTypeLike = np.float64


class TargetMachine(KernelMachine):
    """Base of the machines that learn a target.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="gaussian"
        "gaussian" (or "rbf"), "polynomial", "linear", "laplacian", "matern", "cosine", "precomputed", a kernel object
        of :mod:`nystrom.kernels`, or a function. "auto" chooses the Gaussian kernel, the Matérn kernel of smoothness
        1/2 or the Laplacian kernel, with or without a linear part: the one that best predicts rows held out from a
        sample. Unless ``n_landmarks`` or ``n_components`` is given, the fit then uses 350 to 1,000 landmarks: more
        of them if that lowered the loss of the held-out rows.
    metric : "diagonal", "full", "auto", array or None, default=None
        How much each column counts in distances. "diagonal" learns a scale for each column from the target, "full" a
        matrix that mixes columns, "auto" the better of the two on held-out rows; a learned metric is used only if it
        clearly wins on held-out rows. These rows also widen or narrow ``gamma="scale"``. An array has p scales, or is a
        positive semidefinite p × p matrix. Sparse rows use the diagonal metric.
    max_time : float, str or None, default=None
        Seconds, or a text such as "30s" or "5min": find the best machine in that time. Kernel, metric, width and number
        of landmarks are searched, cheap candidates first, if they have their defaults; given values are kept. The best
        candidate is then fitted to all rows. The fit may take up to 1.2 times this time plus the time of a fit with the
        defaults. ``search_`` lists the candidates. Results depend on the speed of the computer.
    """

    metric: MetricLike
    max_time: float | str | None
    landmark_coef_: Array
    intercept_: Array
    _held: Held | None

    def __init__(
        self, *, metric: MetricLike = None, max_time: float | str | None = None, **shared: Unpack[SharedParameters]
    ) -> None:
        set_parameters(self, TargetMachine.__init__, locals())

    def _kernel(self) -> Kernel:
        searched = searches_gamma(self)
        kernel = "gaussian" if chooses_kernel(self) else given_kernel(self)
        parsed = make_kernel(kernel, gamma="scale" if searched else self.gamma, degree=self.degree, coef0=self.coef0)
        if searched:
            check_searchable(parsed)
        return parsed

    def _rank_and_size(self, rows: RowBlocks) -> tuple[int | None, GivenSize | GrownSize | ToleranceSize]:
        rank, size = super()._rank_and_size(rows)
        if isinstance(size, GrownSize):
            usual = resolve_sizes(self.n_components, None, rows.shape[0], least=size.least)[1]
            size = replace(size, usual=usual, intercept=bool(getattr(self, "fit_intercept", True)))
        return rank, size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        mixes = (
            self.metric == "full"
            if isinstance(self.metric, str)
            else self.metric is not None and np.ndim(self.metric) == 2
        )
        tags.input_tags.sparse = tags.input_tags.sparse and not mixes
        return tags

    @property
    def metric_(self) -> Array:
        """The metric of the kernel: a scale per column, or the matrix M of ``(x − z)ᵀ M (x − z)``."""
        root = _fitted_root(self)
        return root if root.ndim == 1 else root @ root.T

    @property
    def feature_importances_(self) -> Array:
        """The share of each column in the distances of the metric, independent of its unit; they sum to 1.

        This is the diagonal of M times the variance of the column over the landmarks.
        """
        root = _fitted_root(self)
        weights = root**2 if root.ndim == 1 else np.square(root).sum(axis=1)
        spread = weights * np.var(to_dense(self.landmarks_).astype(np.float64), axis=0)
        weights = spread if 0 < spread.sum() < np.inf else weights
        return np.asarray(weights / weights.sum())

    def unlike(self, X: RowsLike, rate: float = 0.01, *, diag: TargetLike = None) -> Emitted:
        """Return which rows are unlike those of the fit, shape (n,): do not rely on predictions for them.

        A row is unlike if the variance of a Gaussian process with this kernel is larger there than at all but a
        fraction ``rate`` of the rows of the fit, each left out. About that fraction of new rows from the same
        distribution is reported. ``diag`` is as in :meth:`residual`.
        """
        check_is_fitted(self)
        rate = check_share(rate, "rate")
        rows = self._check_X(X, reset=False)
        fitted, known = map_for(self, rows, diag), calibrate(self, "unlike")
        function = is_unlike(fitted, known, rate)
        return self._emit(rows, function, None, np.bool_, label="unlike")

    def _raw_predict(self, X: RowsLike, link: Link | None = None, *, out: OutPath = None) -> Emitted:
        """Return the fitted functions at the rows of X, shape (n, t), transformed by ``link`` if given: one pass."""
        rows = self._check_X(X, reset=False)
        fitted: FeatureMap = self.map_
        coefficients, intercept = self.landmark_coef_, self.intercept_
        if rows.on_cluster:  # sends the landmarks without the m × m matrices of the map
            fitted = UnfactoredMap(fitted.landmarks, fitted.kernel)
        training, product = vars(self).get("training_rows_"), None
        if training is not None:
            # Every row of the fit is a landmark.
            product, coefficients = KernelProduct(training, self.kernel_, self._engine(rows)), self._dual_coef

        def function(block: Block) -> Array:
            if product is None:
                values = small_product(fitted.evaluate(block.X), coefficients) + intercept
            else:
                values = product.predict(block.X, coefficients) + intercept
            return values if link is None else np.asarray(link.function(values))

        if link is None:
            return self._emit(rows, function, self.landmark_coef_.shape[1], np.float64, label="predict", out=out)
        return self._emit(rows, function, link.n_columns, link.dtype, label=link.name, out=out)


def metric_asked(machine: TargetMachine) -> MetricLike:
    """Return the metric; with a time limit, "auto" if none was given and one can be learned."""
    if machine.metric is not None or machine.max_time is None:
        return machine.metric
    known = isinstance(machine.kernel, (str, Kernel))
    return "auto" if known and (chooses_kernel(machine) or can_learn(machine._kernel())) else None


def kernel_rule(
    machine: TargetMachine, rows: RowBlocks, reach: Reach, likelihood: WidthRule | None = None, *, n_columns: int = 0
) -> KernelRule:
    """Return which parts of the kernel a fit searches, for the regularisations that the machine can use.

    ``n_columns`` is the number of functions that a loss fits, 0 for a closed form.
    """
    rank, size = machine._rank_and_size(rows)
    metric, several, seconds = metric_asked(machine), chooses_kernel(machine), machine.max_time
    chooses = several or isinstance(metric, str) or seconds is not None
    free = chooses and isinstance(size, GivenSize) and size.is_default
    searches = searches_gamma(machine) and likelihood is None
    return KernelRule(
        metric,
        several=several,
        any_width=searches or (seconds is not None and machine._kernel().needs_moments),
        classes=is_classifier(machine),
        fit_intercept=bool(getattr(machine, "fit_intercept", True)),
        reach=reach,
        n_landmarks=None if free else rank or size.most,
        limit=None if seconds is None else _time_limit(machine, rows, n_columns),
        likelihood=likelihood,
    )


def _time_limit(machine: TargetMachine, rows: RowBlocks, n_columns: int) -> TimeLimit:
    """Return the time limit of a fit, with the cost of a fit by number of landmarks."""
    seconds = check_seconds(machine.max_time, "max_time")
    assert seconds is not None
    return TimeLimit(
        seconds,
        partial(fit_operations, *rows.shape, n_columns=n_columns),
        machine._resources().most_landmarks(rows, make_selector(machine.landmarks).held_bytes, MOST_LANDMARKS),
        partial(print, file=sys.stderr, flush=True) if machine.verbose else _silent,
    )


def landmarks_to_spare(machine: TargetMachine, rows: RowBlocks) -> int | None:
    """Return the requested number of landmarks; None if the machine needs a factor for any number."""
    if machine.n_components is not None or isinstance(machine.n_landmarks, str):
        return None
    if not machine._kernel().has_coordinates:
        return None
    _, m = resolve_sizes(None, machine.n_landmarks, rows.shape[0])
    return make_selector(machine.landmarks).count(m, rows.shape[0])


def numbers_to_fit(
    machine: TargetMachine, X: RowsLike, y: TargetLike, sample_weight: TargetLike = None, groups: TargetLike = None
) -> tuple[Checked, Draw]:
    """Return the rows of a fit with a numeric target and weights, checked, and the draw of rows to leave out later."""
    X, y = opened(X, y)
    rows = machine._check_X(X, reset=True)
    checked = check_target(rows, y, sample_weight, numeric=True, owner=machine)
    draw = Draw.of(rows, groups, coordinates=machine._kernel().has_coordinates)
    return replace(checked, rows=draw.rows), draw


def _fitted_root(machine: TargetMachine) -> Array:
    kernel = getattr(getattr(machine, "map_", None), "kernel", None)
    if isinstance(kernel, InMetric):
        return kernel.root
    if kernel is not None and metric_asked(machine) is not None:
        return np.ones(machine.n_features_in_)  # learned, and no better than the plain one
    raise AttributeError(
        f"this {type(machine).__name__} has no metric: fit it with metric='auto', 'diagonal' or 'full' first."
    )


def _judged(machine: TargetMachine, X: RowsLike, y: TargetLike, weight: TargetLike) -> tuple[Any, Any]:
    """Return the target and weights for a score: those given, or those in the rows X."""
    X, y = opened(X, y, machine._columns)
    if isinstance(X, RowBlocks) and X.has_weight and weight is None:
        weight = gather_weight(X, machine._engine(X))
    if y is not None:
        check_kind(y)
        if weight is not None:
            require_unmasked(weight, "sample_weight")
        return y, weight
    rows = machine._check_X(X, reset=False)
    if not rows.has_target:
        raise ValueError(
            "a score needs y, and these rows do not hold their target: give it, such as y=table['price']. Only rows of "
            "open_rows(..., target=...), and of tables that a TableEncoder(target=...) encodes, hold their target. If "
            "the target of the table has gaps, drop these rows, or use TableEncoder.rows."
        )
    return gather_target(rows, machine._engine(rows)), weight


def here(values: Any) -> Any:
    """Return targets on the host: a Dask collection computed, arrays of a device fetched, anything else unchanged."""
    if is_foreign_array(values):
        return fetch(values)
    return np.asarray(values.compute()) if is_dask_collection(values) else values


class KernelRegressor(MultiOutputMixin, RegressorMixin, TargetMachine):
    """Base of the regressors; a fit sets ``_one_target`` if predictions have one column."""

    _one_target: bool

    def predict(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the fitted function at the rows of X, shape (n,) or (n, t).

        With ``out``, a path, the values are streamed there (n × t), as in :meth:`nystrom.Nystroem.transform`.
        """
        values = self._raw_predict(X, out=out)
        if out is not None:
            return values
        return values[:, 0] if self._one_target else values

    def predict_interval(self, X: RowsLike, coverage: float = 0.9) -> Emitted:
        """Return intervals that contain the targets of new rows with probability ``coverage``.

        The first call leaves a sample of rows out of the fit, in closed form, and uses their errors; nothing is fitted
        again. Up to 250 rows this is the jackknife+: the intervals contain at least 2 ``coverage`` − 1 of the targets
        for any distribution, and close to ``coverage`` in practice. The width follows the local size of the errors if
        that varies. The rows must be exchangeable; if there are several rows per subject, give ``groups`` to
        :meth:`fit`.

        Parameters
        ----------
        X : rows
            Any rows.
        coverage : float
            Between 0 and 1. If there are too few rows for it, the ends are infinite.

        Returns
        -------
        array of shape (n, 2) or (n, t, 2)
            Lower and upper ends.

        Notes
        -----
        Cost: O(s m (p + r) + r³) for the first call, with a sample of s ≤ 2,000 rows; then that of :meth:`predict`.

        Examples
        --------
        >>> import nystrom
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, size=(1000, 1))
        >>> y = np.sin(X).ravel() + rng.normal(size=1000) * np.where(X < 0, 0.1, 0.5).ravel()
        >>> model = nystrom.KernelRidge(n_landmarks=50, random_state=0).fit(X[:500], y[:500])
        >>> low, high = model.predict_interval(X[500:], coverage=0.9).T
        >>> bool(0.87 < np.mean((low <= y[500:]) & (y[500:] <= high)) < 0.93)
        True
        """
        check_is_fitted(self)
        coverage = check_share(coverage, "coverage")
        rows = self._check_X(X, reset=False)
        known, fitted = calibrate(self, "predict_interval"), self.map_
        t = self.landmark_coef_.shape[1]

        middles = np.asarray(fetch(self.predict(X))).reshape(-1, t)

        def function(block: Block) -> Array:
            pieces = [
                known.interval(middles[piece.start : piece.stop], to_host(fitted.evaluate(piece.X)), coverage)
                for piece in block.split(TILE_ROWS)
            ]
            return np.concatenate(pieces).reshape(-1, 2 * t)

        ends = self._emit(rows, function, 2 * t, np.float64, label=f"interval {coverage}")
        return ends if self._one_target else ends.reshape(-1, t, 2)

    def score(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> float:
        """Return R² of the predictions; y may be None if the rows contain it."""
        truth, weight = _judged(self, X, y, sample_weight)
        for values, name in ((truth, "y"), (weight, "sample_weight")):
            if values is not None:
                require_numbers(values, name, "a score needs numbers. Convert them.")
        return float(r2_score(here(truth), here(self.predict(X)), sample_weight=here(weight)))


@dataclass(frozen=True)
class ClassTarget:
    """Rows with classes, checked: class numbers, and weights that include those of the classes."""

    rows: RowBlocks
    codes: Array
    weight: Array | None
    classes: Array
    class_weights: Array | None

    @property
    def indicators(self) -> Array:
        """±1 for each row and class, in one byte each; a single column for two classes."""
        c = len(self.classes)
        names = np.arange(1, 2) if c == 2 else np.arange(c)
        return np.where(self.codes[:, None] == names, np.int8(1), np.int8(-1))

    @property
    def results(self) -> dict[str, Any]:
        """The attributes that a fit stores for them."""
        return {"classes_": self.classes, "_class_weights": self.class_weights}


class KernelClassifier(ClassifierMixin, TargetMachine):
    """Base of the classifiers; a subclass has ``class_weight``."""

    class_weight: ClassWeight
    classes_: Array
    _class_weights: Array | None

    def decision_function(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the fitted functions: for two classes that of the second, shape (n,); else of all, shape (n, c).

        With ``out``, a path, they are streamed there, as in :meth:`nystrom.Nystroem.transform`.
        """
        values = self._raw_predict(X, out=out)
        if out is not None:
            return values
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the class of each row; lazy if X is a Dask collection.

        With ``out``, a path, the classes are streamed there, as in :meth:`nystrom.Nystroem.transform`; they must be
        numbers.
        """
        if out is not None:
            check_is_fitted(self)
            return self._raw_predict(X, _link_to_classes(self.classes_), out=out)
        values = self.decision_function(X)
        if is_dask_collection(values):
            columns = list(range(1, values.ndim))
            return values.map_blocks(_classes_of, self.classes_, drop_axis=columns, meta=self.classes_[:0])
        return beside(values, _classes_of(fetch(values), self.classes_))

    def predict_proba(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the probability of each class, in the order of ``classes_``, shape (n, c).

        The first call learns them from the scores of rows that are left out of the fit in closed form; see
        :class:`nystrom.conformal.ClassLink`. They match the class frequencies of the rows for any ``class_weight``;
        without it, the most probable class is that of :meth:`predict`. ``out`` is as in :meth:`predict`.
        """
        check_is_fitted(self)
        known = calibrate(self, "predict_proba")
        return self._raw_predict(X, Link("probabilities", known.probabilities, len(self.classes_)), out=out)

    def predict_set(self, X: RowsLike, coverage: float = 0.9) -> Emitted:
        """Return sets of classes that contain the class of a new row with probability ``coverage``.

        A class is in the set if its probability is above a threshold, which that share of the left-out rows reaches
        with their own class (the least ambiguous set, without randomisation). A set has several classes if a row may
        belong to any of them. It is empty if no class is probable enough, which happens if the classifier is right more
        often than ``coverage``.

        Parameters
        ----------
        X : rows
            Any rows.
        coverage : float
            Between 0 and 1.

        Returns
        -------
        bool array of shape (n, c)
            Whether each class, in the order of ``classes_``, is in the set.
        """
        check_is_fitted(self)
        known = calibrate(self, "predict_set")
        least = known.least_probability(check_share(coverage, "coverage"))

        def function(scores: Array) -> Array:
            return np.asarray(known.probabilities(scores) >= least)

        return self._raw_predict(X, Link(f"sets {coverage}", function, len(self.classes_), np.bool_))

    def calibration_error(self) -> float:
        """Return the expected calibration error: the mean difference between confidence and accuracy of left-out rows.

        Measured for :meth:`predict_proba`, in bins of rows of similar confidence; 0 is perfect.
        """
        check_is_fitted(self)
        return float(calibrate(self, "calibration_error").calibration_error)

    def score(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> float:
        """Return the fraction of rows classified correctly; y may be None if the rows contain it."""
        truth, weight = _judged(self, X, y, sample_weight)
        return float(accuracy_score(here(truth), here(self.predict(X)), sample_weight=here(weight)))


def classes_to_fit(
    machine: KernelClassifier, X: RowsLike, y: TargetLike, sample_weight: TargetLike, groups: TargetLike
) -> tuple[ClassTarget, Draw]:
    """Return the rows of a fit with class numbers and weights, checked, and the draw of rows to leave out later."""
    X, y = opened(X, y)
    rows = machine._check_X(X, reset=True)
    checked = check_target(rows, y, sample_weight, numeric=False, multi_output=False, owner=machine)
    found, weight = checked.y, checked.weight
    if found is None:
        found = gather_target(rows, machine._engine(rows)).ravel()
    if rows.has_weight:
        weight = gather_weight(rows, machine._engine(rows))
    check_classification_targets(found)
    emphasis = None
    if machine.class_weight is not None:
        emphasis = _emphasis(machine.class_weight, found, weight)
        balance = emphasis(found)
        weight = balance if weight is None else weight * balance
    # Rows of weight 0 are ignored, and so are classes with no other rows.
    classes = np.unique(found if weight is None else found[weight > 0])
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least 2 classes; got {len(classes)} class, {classes.tolist()}, in rows of positive weight."
        )
    # Weight of one repetition of a row of each class.
    class_weights = None if emphasis is None else emphasis(classes)
    draw = Draw.of(rows, groups, coordinates=machine._kernel().has_coordinates)
    return ClassTarget(draw.rows, _numbers_of(found, classes), weight, classes, class_weights), draw


def _link_to_classes(classes: Array) -> Link:
    """Return the link from the fitted functions to classes, which must be numbers to be written."""
    if classes.dtype.kind not in "fiub":
        raise ValueError(
            "out= writes numbers, and the classes are text: write decision_function(X, out=...) and compute the "
            "classes from it, or use the command 'nystrom predict', which writes text. For a Dask dataframe: "
            "frame.assign(predicted=model.predict(frame[columns])).to_parquet(...)."
        )

    def function(values: Array) -> Array:
        return _classes_of(values[:, 0] if values.shape[1] == 1 else values, classes)[:, None]

    return Link("classes", function, 1, classes.dtype)


def _numbers_of(y: Array, classes: Array) -> Array:
    """Return the class number of each row in the smallest integer dtype; any number if the class has weight 0."""
    numbers = np.empty(len(y), np.min_scalar_type(-len(classes)))
    for start in range(0, len(y), _ROWS_AT_A_TIME):
        piece = slice(start, start + _ROWS_AT_A_TIME)
        numbers[piece] = np.minimum(np.searchsorted(classes, y[piece]), len(classes) - 1)
    return numbers


def _emphasis(class_weight: ClassWeight, y: Array, weight: Array | None) -> Callable[[Array], Array]:
    """Return the function from classes to their weights; "balanced" gives all classes the same total weight."""
    classes, codes = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str) and class_weight == "balanced":
        masses = np.bincount(codes, weight)
        weights = np.divide(
            masses.sum() / np.count_nonzero(masses), masses, out=np.zeros(len(masses)), where=masses > 0
        )
    else:
        weights = _given_weights(class_weight, classes)
    return lambda some: np.asarray(weights[np.searchsorted(classes, some)])


def _given_weights(class_weight: object, classes: Array) -> Array:
    """Return the weight of each class in a dict, 1 for classes it does not name."""
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight must be 'balanced', a dict from classes to weights, or None; got {class_weight!r}."
        )
    for name, weight in class_weight.items():
        check_tolerance(weight, f"class_weight[{name!r}]")
    known = classes.tolist()
    # A subset of the rows may lack a class of the dict. To tell that from a typo: each class of y must be in the dict.
    unknown = [name for name in class_weight if name not in known]
    if unknown and not all(name in class_weight for name in known):
        raise ValueError(f"class_weight names {unknown[0]!r}, which is no class of y; its classes are {known}.")
    return np.array([float(class_weight.get(name, 1.0)) for name in known])


def _classes_of(values: Array, classes: Array) -> Array:
    """Return the class of each row, given its fitted functions."""
    codes = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
    return np.asarray(classes[codes])
