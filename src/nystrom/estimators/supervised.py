"""What the machines with a target share: the target checked and put beside the rows, scores over blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import DTypeLike
from sklearn.base import is_classifier
from sklearn.utils.validation import _check_sample_weight, _check_y

from nystrom.checks import check_choice
from nystrom.engine import Engine, is_dask_collection
from nystrom.engine.survey import Survey
from nystrom.estimators.base import KernelMachine, resolve_sizes
from nystrom.estimators.parameters import SharedParameters
from nystrom.kernels import InMetric, Kernel, KernelLike, Laplacian, make_kernel
from nystrom.landmarks import Selector, make_selector
from nystrom.landmarks.in_metric import rows_in_metric
from nystrom.rows import RowBlocks
from nystrom.solvers.bandwidth import check_searchable
from nystrom.solvers.metric import (
    METRICS,
    LearnedMetric,
    MetricLike,
    check_learnable,
    kinds_of,
    learn_metric,
    metric_root,
    plain_kernels,
)
from nystrom.solvers.sizing import Grown, grow_by_score
from nystrom.solvers.without_factor import UnfactoredMap
from nystrom.types import Array, RowsLike, TargetLike, issparse


def gather_target(rows: RowBlocks, engine: Engine) -> Array:
    """Return the target that lies inside the rows, as one array: one pass."""
    return np.concatenate([np.asarray(y) for _, y in engine.map(rows, lambda block: block.y, label="target")])


def require_finite_squares(squares: Array) -> None:
    """Raise unless the sum of squares of each target is finite."""
    if not np.isfinite(squares).all():
        raise ValueError(
            "Input y contains NaN or infinity, or numbers above 1e154, whose squares overflow: drop such rows, or "
            "divide y by a constant before the fit."
        )


@dataclass(frozen=True)
class Link:
    """What is made of the fitted functions at some rows, an array (n, t), before it is emitted."""

    name: str
    function: Callable[[Array], Array]
    n_columns: int
    dtype: DTypeLike = np.float64

    def __call__(self, values: Array) -> Array:
        return np.asarray(self.function(values))


class SupervisedMachine(KernelMachine):
    """Base of the machines that learn a target.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="gaussian"
        "gaussian" (or "rbf"), "polynomial", "linear", "laplacian", "matern", "cosine", "precomputed", a kernel object
        of :mod:`nystrom.kernels`, or a function. "auto" is the Gaussian kernel, the Matérn one of smoothness 1/2 or the
        Laplacian one: the one that predicts rows held out from a sample best. Unless ``n_landmarks`` or
        ``n_components`` is given, 500, 1,000 or 2,000 landmarks are then taken, by how much more of them help.
    metric : "diagonal", "full", "auto", array or None, default=None
        How much each column counts in distances. "diagonal" learns a scale for each column from the target, "full" a
        matrix that mixes them, "auto" the better of the two on held-out rows; all keep the plain metric unless the
        learned one is better there. ``gamma="scale"`` is widened or narrowed by the same rows. An array holds p scales,
        or a positive semidefinite p × p matrix. Sparse rows take the diagonal one.
    """

    def __init__(self, *, metric: MetricLike = None, **shared: Unpack[SharedParameters]) -> None:
        super().__init__(**shared)
        self.metric = metric

    def _kernel(self) -> Kernel:
        auto = isinstance(self.gamma, str) and self.gamma == "auto"
        gamma = "scale" if auto else self.gamma
        kernel = make_kernel(self._kernel_name(), gamma=gamma, degree=self.degree, coef0=self.coef0)
        if auto:
            check_searchable(kernel)
        return kernel

    def _kernel_name(self) -> KernelLike:
        """Return the kernel as given; the one to begin with for "auto"."""
        return "gaussian" if self._chooses_kernel else self.kernel

    @property
    def _chooses_kernel(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "auto"

    def _settle_metric(
        self, survey: Survey, kernel: Kernel, n_landmarks: int, rng: np.random.Generator
    ) -> tuple[Kernel, int]:
        learns = isinstance(self.metric, str)
        if isinstance(kernel, InMetric) and (self.metric is not None or self._chooses_kernel):
            raise ValueError(
                f"gamma has a bandwidth for each column, which is a metric; leave metric=None and name the kernel. Got "
                f"metric={self.metric!r}, kernel={self.kernel!r}."
            )
        if self.metric is not None and not learns:
            return self._settle_in_metric(survey, kernel, n_landmarks, rng)
        if not (learns or self._chooses_kernel):
            return kernel, n_landmarks
        kinds: tuple[str, ...] = ()
        if learns:
            metric = check_choice(self.metric, "metric", METRICS)
            check_learnable(kernel, metric)
            kinds = kinds_of(metric, survey.rows.n_columns, sparse=survey.rows.is_sparse)
        learned = self._learn_metric(survey, kernel, kinds, rng)
        if learns:
            self.metric_losses_ = learned.losses
        kernel = learned.kernel if learned.root is None else InMetric(learned.kernel, learned.root)
        return kernel, self._learned_count(survey, learned, n_landmarks)

    def _searches_width(self, kernel: Kernel, regularisation: Array | None) -> bool:
        """Return whether the width of the kernel is still to be searched, for regularisations that are given, or None.

        A width that was learned with a metric suits the best regularisation: one that is given may be far too large
        for it.
        """
        if isinstance(self.gamma, str) and self.gamma == "auto":
            return True
        learned = self._kernel().needs_moments and not kernel.needs_moments
        return learned and regularisation is not None

    def _settle_in_metric(
        self, survey: Survey, kernel: Kernel, n_landmarks: int, rng: np.random.Generator
    ) -> tuple[Kernel, int]:
        """Return the kernel in the metric that was given; "auto" chooses it by the rows as that metric sees them."""
        root = metric_root(self.metric, survey.rows.n_columns)
        if root.ndim == 2 and isinstance(kernel, Laplacian):
            raise ValueError(
                "the Laplacian kernel sums over columns, which metric as a matrix would mix: give one scale per "
                "column, or take kernel='matern'."
            )
        if self._chooses_kernel:
            seen = Survey(rows_in_metric(survey, root), survey.engine)
            learned = self._learn_metric(seen, kernel, (), rng, mixed=root.ndim == 2)
            kernel, n_landmarks = learned.kernel, self._learned_count(survey, learned, n_landmarks)
        return InMetric(kernel, root), n_landmarks

    def _learn_metric(
        self, survey: Survey, kernel: Kernel, kinds: tuple[str, ...], rng: np.random.Generator, *, mixed: bool = False
    ) -> LearnedMetric:
        """Return what held-out rows say of kernels and metrics; no Laplacian kernel where columns are mixed."""
        rows = survey.rows
        kernels = plain_kernels(kernel, rows.n_columns, several=self._chooses_kernel, sparse=rows.is_sparse)
        return learn_metric(
            survey,
            [each for each in kernels if not (mixed and isinstance(each, Laplacian))],
            kinds,
            classes=is_classifier(self),
            fit_intercept=bool(getattr(self, "fit_intercept", True)),
            rng=rng.spawn(1)[0],
        )

    def _learned_count(self, survey: Survey, learned: LearnedMetric, n_landmarks: int) -> int:
        """Return how many landmarks are enough by what was learned, unless their number or the rank was given."""
        if learned.n_landmarks is None or self.n_landmarks is not None or self.n_components is not None:
            return n_landmarks
        return self._most_landmarks(survey.rows, make_selector(self.landmarks), learned.n_landmarks)

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
        """The metric of the kernel: a scale for each column, or the matrix M of ``(x − z)ᵀ M (x − z)``."""
        root = self._fitted_root()
        return root if root.ndim == 1 else root @ root.T

    @property
    def feature_importances_(self) -> Array:
        """The share of each column in the metric: the diagonal of M, which sums to 1."""
        root = self._fitted_root()
        weights = root**2 if root.ndim == 1 else np.square(root).sum(axis=1)
        return np.asarray(weights / weights.sum())

    def _fitted_root(self) -> Array:
        kernel = getattr(self, "kernel_", None)
        if isinstance(kernel, InMetric):
            return kernel.root
        if kernel is not None and self.metric is not None:
            return np.ones(self.n_features_in_)  # learned, and no better than the plain one
        raise AttributeError(
            f"this {type(self).__name__} has no metric: fit it with metric='auto', 'diagonal' or 'full' first."
        )

    def _check_X_y(
        self,
        X: RowsLike,
        y: TargetLike,
        sample_weight: TargetLike = None,
        *,
        numeric: bool = True,
        multi_output: bool = True,
        reset: bool = True,
    ) -> tuple[RowBlocks, Array | None, Array | None]:
        """Return the rows, the target and the weights, all checked.

        The target is None where it lies inside the rows, and a Dask array where it stays on a cluster beside them.
        """
        rows = self._check_X(X, reset=reset)
        if y is None:
            if not rows.has_target:
                raise ValueError(self._needs_y())
        elif not (is_dask_collection(y) and numeric and rows.on_cluster):  # else it stays there, beside the rows
            _check_kind(y)
            if numeric:
                require_numbers(y, "y", "the target of a regression must be numbers. Convert it, or take a classifier.")
            y = np.asarray(_check_y(y, multi_output=multi_output, y_numeric=numeric, estimator=self))
            if len(y) != rows.shape[0]:
                raise ValueError(f"y has {len(y)} entries, but X has {rows.shape[0]} rows; there must be one per row.")
        return rows, cast("Array | None", y), None if sample_weight is None else self._check_weight(sample_weight, rows)

    def _enough_landmarks(
        self, survey: Survey, selector: Selector, kernel: Kernel, rng: np.random.Generator, *, least: int, most: int
    ) -> Grown:
        usual = resolve_sizes(self.n_components, None, survey.rows.shape[0], least=least)[1]
        intercept = bool(getattr(self, "fit_intercept", True))
        return grow_by_score(survey, selector, kernel, rng, least=least, most=most, usual=usual, intercept=intercept)

    def _store_unfactored(self, chosen: UnfactoredMap) -> None:
        """Store landmarks and kernel of a machine that has no factor, and forget an earlier fit's."""
        for name in ("eigenvalues_", "projection_", "certificate_"):
            self.__dict__.pop(name, None)
        self.map_ = chosen  # type: ignore[assignment]
        self.landmarks_ = chosen.landmarks.points
        self.landmark_indices_ = chosen.landmarks.indices
        self.kernel_ = chosen.kernel
        self.n_components_ = len(chosen.landmarks)

    def _needs_y(self) -> str:
        return (
            f"{type(self).__name__} requires y to be passed, but the target y is None: give y, or rows that hold "
            f"their target."
        )

    def _check_weight(self, sample_weight: TargetLike, rows: RowBlocks) -> Array:
        n = rows.shape[0]
        require_numbers(sample_weight, "sample_weight", "weights must be numbers. Convert them.")
        weight = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
        if not weight.sum() > 0:
            raise ValueError("sample_weight must have at least one positive entry; got only zeros.")
        return np.asarray(weight)

    def _target_of(self, X: RowsLike, y: TargetLike) -> Any:
        """Return y, or the target inside the rows X where y is None."""
        if y is not None:
            return y
        if not (isinstance(X, RowBlocks) and X.has_target):
            raise ValueError(
                "a score needs y, and these rows do not hold their target: give it, such as table['price'] beside a "
                "data frame. Only rows of a file, or from open_rows, hold their own; rows of a table with gaps in the "
                "target do so from TableEncoder.rows."
            )
        rows = self._check_X(X, reset=False)
        return gather_target(rows, self._engine(rows))


def require_numbers(values: Any, name: str, advice: str) -> None:
    """Raise for text, dates and bytes; scikit-learn would convert those that look like numbers without a word."""
    if is_dask_collection(values):
        return
    found = np.asarray(values)
    bad: Any = None
    if found.dtype.kind == "O":
        bad = next(
            (value for value in found.flat if isinstance(value, (str, bytes, np.datetime64, np.timedelta64))), None
        )
    elif found.dtype.kind not in "fiubc" and found.size:
        bad = found.flat[0]
    if bad is not None:
        raise ValueError(f"{name} holds {found.dtype}, such as {bad!r}, which are not numbers; {advice}")


def _check_kind(y: Any) -> None:
    """Raise for a target that scikit-learn's check does not expect: no array, a sparse one, or one with gaps."""
    if issparse(y):
        raise ValueError("y is a sparse matrix; give it as an array, with y.toarray().")
    if is_dask_collection(y):
        return
    if np.asarray(y).ndim == 0:
        raise ValueError(f"y must be an array with one entry per row; got {type(y).__name__}.")
    if not callable(getattr(y, "isna", None)):
        return
    gaps = y.isna()
    if np.any(gaps):
        row = int(np.argmax(np.asarray(gaps).reshape(len(y), -1).any(axis=1)))
        raise ValueError(f"Input y contains NaN (first in row {row}): drop the rows without a target.")
