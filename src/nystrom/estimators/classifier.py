"""Classification by kernel ridge regression on the classes' indicators."""

from __future__ import annotations

from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from nystrom.engine import is_dask_collection
from nystrom.estimators.ridge import RidgeMachine, RidgeParameters
from nystrom.estimators.supervised import gather_target
from nystrom.types import Array, Matrix


class KernelRidgeClassifier(ClassifierMixin, RidgeMachine):
    """Classify by kernel ridge regression on targets of ±1, one for each class.

    Parameters
    ----------
    alpha : float, list of float or "auto", default="auto"
        λ; see :class:`nystrom.KernelRidge`.
    selection : {"loo", "gcv", "likelihood"}, default="gcv"
        How ``alpha`` is chosen; "gcv" needs no further pass.
    class_weight : dict, "balanced" or None
        Weight of the rows of each class; "balanced" makes all classes count alike.
    fit_intercept : bool, default=True
        Whether to add an unregularised constant.
    **shared : RidgeParameters
        Those of :class:`nystrom.estimators.ridge.RidgeMachine`.

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
    Cost: that of one :class:`nystrom.KernelRidge`, whatever the number of classes. Rows that hold their target are
    read once more at the beginning, to learn the classes.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KernelRidgeClassifier(n_landmarks=300, random_state=0).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.95)
    True
    """

    def __init__(
        self,
        alpha: Any = "auto",
        *,
        selection: str = "gcv",
        class_weight: Any = None,
        fit_intercept: bool = True,
        **shared: Unpack[RidgeParameters],
    ) -> None:
        super().__init__(alpha=alpha, selection=selection, fit_intercept=fit_intercept, **shared)
        self.class_weight = class_weight

    def fit(self, X: Matrix, y: Any = None, sample_weight: Any = None) -> KernelRidgeClassifier:
        """Fit to the rows X and their classes y, which may be None where the rows hold them."""
        rows, y, weight = self._check_X_y(X, y, sample_weight, numeric=False, multi_output=False)
        if y is None:
            y = gather_target(rows, self._engine(rows)).ravel()
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold at least 2 classes; got 1 class, {self.classes_[0]!r}: there is nothing to tell apart."
            )
        if self.class_weight is not None:
            balance = compute_sample_weight(self.class_weight, y)
            weight = balance if weight is None else weight * balance
        self._fit_ridge(rows, _indicators(codes, len(self.classes_)), weight)
        self._one_target = len(self.classes_) == 2
        return self

    def _check_merge(self, other: Self) -> None:
        super()._check_merge(other)
        if not np.array_equal(self.classes_, other.classes_):
            raise ValueError(
                f"the two fits know other classes, {list(self.classes_)} and {list(other.classes_)}; only fits of the "
                f"same classes merge."
            )
        if self.class_weight != other.class_weight or self.class_weight == "balanced":
            raise ValueError(
                "merge needs the same weight for a class in both fits, which class_weight='balanced' takes from the "
                "rows of each: give both the same dictionary, or None."
            )

    def decision_function(self, X: Matrix) -> Any:
        """Return the fitted functions: of the second class, shape (n,), if there are two; else of all, (n, c)."""
        values = self._raw_predict(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Matrix) -> Any:
        """Return the class of each row; lazy if X is a Dask collection."""
        check_is_fitted(self)
        values = self.decision_function(X)
        if is_dask_collection(values):
            columns = list(range(1, values.ndim))
            return values.map_blocks(_classes_of, self.classes_, drop_axis=columns, meta=self.classes_[:0])
        return _classes_of(np.asarray(values), self.classes_)

    def score(self, X: Matrix, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of rows classified rightly; y may be None where the rows hold it."""
        return float(super().score(X, self._target_of(X, y), sample_weight))


def _classes_of(values: Array, classes: Array) -> Array:
    """Return the class that the fitted functions of each row name."""
    codes = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
    return np.asarray(classes[codes])


def _indicators(codes: Array, n_classes: int) -> Array:
    """Return ±1 for each row and class, in one byte each; a single column for two classes."""
    if n_classes == 2:
        return np.where(codes == 1, 1, -1).astype(np.int8)[:, None]
    return np.where(codes[:, None] == np.arange(n_classes), 1, -1).astype(np.int8)
