"""Support vector machines of the squared losses, for classes and for numbers."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from nystrom.checks import check_tolerance
from nystrom.estimators.classes import indicators
from nystrom.estimators.loss import LossClassifier, LossMachine, LossParameters
from nystrom.estimators.regressor import KernelRegressor
from nystrom.estimators.supervised import gather_target
from nystrom.solvers.losses import Loss, SquaredEpsilonInsensitive, SquaredHinge
from nystrom.types import Candidates, RowsLike, TargetLike


class KernelSVC(LossClassifier):
    """Support vector classifier with the squared hinge loss.

    Minimises ``C Σ w_i max(0, 1 − y_i f(x_i))² + ½‖f‖²`` over the functions that the landmarks span, one class against
    the rest where there are more than two. This is :class:`sklearn.svm.LinearSVC` on the features of
    :class:`nystrom.Nystroem`, but for the intercept: it is not penalised here, and part of ‖f‖² there.

    Parameters
    ----------
    **shared : LossParameters
        Those of :class:`nystrom.estimators.loss.LossClassifier`.

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

    def fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelSVC:
        """Fit to the rows X and their classes y, which may be None where the rows hold them."""
        rows, codes, weight = self._check_X_classes(X, y, sample_weight)
        target = indicators(codes, len(self.classes_))
        self._fit_loss(rows, target, weight, target=target, strata=codes)
        return self

    def _loss(self, n_columns: int) -> Loss:
        return SquaredHinge()


class KernelSVR(KernelRegressor, LossMachine):
    """Support vector regression with the squared epsilon-insensitive loss.

    Minimises ``C Σ w_i max(0, |y_i − f(x_i)| − ε)² + ½‖f‖²`` over the functions that the landmarks span: errors up to ε
    cost nothing. This is :class:`sklearn.svm.LinearSVR` with ``loss="squared_epsilon_insensitive"`` on the features of
    :class:`nystrom.Nystroem`, but for the intercept: it is not penalised here, and part of ‖f‖² there.

    Parameters
    ----------
    C : float, list of float or "auto", default=1.0
        Weight of the loss: the larger, the closer the fit. From a list, or from a grid ("auto"), the value with the
        least loss on held-out rows is taken; each fit begins where the last one ended.
    epsilon : float, default=0.1
        Errors up to this cost nothing; in the units of y.
    **shared : LossParameters
        Those of :class:`nystrom.estimators.loss.LossMachine`.

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

    def __init__(self, C: Candidates = 1.0, *, epsilon: float = 0.1, **shared: Unpack[LossParameters]) -> None:
        super().__init__(C=C, **shared)
        self.epsilon = epsilon

    def fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelSVR:
        """Fit to the rows X and the target y, which may be None where the rows hold it."""
        rows, y, weight = self._check_X_y(X, y, sample_weight)
        if y is None:
            y = gather_target(rows, self._engine(rows))
        target = np.asarray(y, dtype=np.float64).reshape(rows.shape[0], -1)
        if not np.isfinite(target).all():
            raise ValueError("Input y contains NaN or infinity: drop such rows before the fit.")
        # What the intercept takes up leaves first, so that a large mean costs the solver no digits.
        offset = np.average(target, axis=0, weights=weight) if self.fit_intercept else np.zeros(target.shape[1])
        target = target - offset
        self._fit_loss(rows, target, weight, target=target, strata=np.zeros(rows.shape[0], dtype=np.int8))
        self.intercept_ = self.intercept_ + offset
        self._one_target = y.ndim == 1 or (target.shape[1] == 1 and rows.has_target)
        return self

    def _loss(self, n_columns: int) -> Loss:
        return SquaredEpsilonInsensitive(check_tolerance(self.epsilon, "epsilon"))
