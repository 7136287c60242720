"""Classification by kernel ridge regression on the classes' indicators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, Unpack

import numpy as np

from nystrom.estimators.classes import KernelClassifier, indicators
from nystrom.estimators.ridge import RidgeMachine, RidgeParameters
from nystrom.factor import NystromMap
from nystrom.solvers.alpha_path import RidgeProblem, ridge_problem
from nystrom.types import Array, Candidates, ClassWeight, RowsLike, TargetLike


class KernelRidgeClassifier(KernelClassifier, RidgeMachine):
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

    There is no ``predict_proba``: the fitted values are least-squares estimates of ±1, which leave [−1, 1], need not
    sum to a constant and are not calibrated. :class:`nystrom.KernelLogisticRegression` has probabilities; for these
    scores, :class:`sklearn.calibration.CalibratedClassifierCV` learns some from held-out rows.

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
        alpha: Candidates = "auto",
        *,
        selection: str = "gcv",
        class_weight: ClassWeight = None,
        fit_intercept: bool = True,
        **shared: Unpack[RidgeParameters],
    ) -> None:
        super().__init__(alpha=alpha, selection=selection, fit_intercept=fit_intercept, **shared)
        self.class_weight = class_weight

    def fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelRidgeClassifier:
        """Fit to the rows X and their classes y, which may be None where the rows hold them."""
        rows, codes, weight = self._check_X_classes(X, y, sample_weight)
        self._fit_ridge(rows, indicators(codes, len(self.classes_)), weight)
        self._one_target = len(self.classes_) == 2
        return self

    def _problem(self, fitted: NystromMap) -> RidgeProblem:
        weights, s = self._class_weights, fitted.statistics
        if weights is None:
            return super()._problem(fitted)
        # Class weights say whose errors matter more, not that there are more rows: these are counted without them.
        shares = (1 + s.target_mean) / 2
        shares = np.append(1 - shares, shares) if len(weights) == 2 else shares
        count = float(np.sum(s.weight * shares / weights))
        return ridge_problem(fitted, fit_intercept=self.fit_intercept, count=count)

    def _unit(self) -> Callable[[Array], Array] | None:
        weights = self._class_weights
        if weights is None:
            return None
        if len(weights) == 2:
            return lambda y: weights[(y.reshape(-1) > 0).astype(np.intp)]
        return lambda y: weights[y.argmax(axis=1)]

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
