"""Kernel logistic regression: probabilities from a few landmarks."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.utils.validation import check_is_fitted

from nystrom.estimators.classes import indicators
from nystrom.estimators.loss import LossClassifier
from nystrom.estimators.supervised import Link
from nystrom.solvers.losses import Logistic, Loss, Multinomial
from nystrom.types import Array, Emitted, OutPath, RowsLike, TargetLike


class KernelLogisticRegression(LossClassifier):
    """Kernel logistic regression: a classifier with probabilities.

    Minimises ``C Σ w_i ℓ_i + ½‖f‖²`` over the functions that the landmarks span, with ℓ minus the log of the
    probability of the row's class: the sigmoid of f for two classes, the softmax of one f per class for more. This is
    :class:`sklearn.linear_model.LogisticRegression` on the features of :class:`nystrom.Nystroem`.

    Parameters
    ----------
    **shared : LossParameters
        Those of :class:`nystrom.estimators.loss.LossClassifier`.

    Attributes
    ----------
    classes_ : array of shape (c,)
        The classes, sorted.
    landmark_coef_, intercept_ : arrays of shape (m, t), (t,)
        The scores are ``k(x, Z) @ landmark_coef_ + intercept_``; t is 1 for two classes, else c.
    C_ : float
        The C taken.
    Cs_, C_scores_ : arrays
        Those tried and their mean held-out losses, where there was a choice: less is better.
    objective_ : float
        What was minimised, at the solution.
    n_iter_ : int
        Passes that the solver made.
    kernel_, landmarks_, eigenvalues_, certificate_, ...
        As in :class:`nystrom.Nystroem`.

    Notes
    -----
    Cost: that of the map; then O(n m c) per pass of the solver, a few dozen of them. Kernel values of all rows are held
    where memory allows (up to 1 GiB, or what ``max_memory`` leaves), and computed again in every pass where not.

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

    def fit(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> KernelLogisticRegression:
        """Fit to the rows X and their classes y, which may be None where the rows hold them."""
        rows, codes, weight = self._check_X_classes(X, y, sample_weight)
        target = indicators(codes, len(self.classes_))
        self._fit_loss(rows, target if target.shape[1] == 1 else codes, weight, target=target, strata=codes)
        return self

    def _loss(self, n_columns: int) -> Loss:
        return Logistic() if n_columns == 1 else Multinomial()

    def predict_proba(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the probability of each class, in the order of ``classes_``, shape (n, c).

        With ``out``, a path, they are streamed there, as by :meth:`nystrom.Nystroem.transform`.
        """
        check_is_fitted(self)
        return self._raw_predict(X, Link("probabilities", _probabilities, len(self.classes_)), out=out)

    def predict_log_proba(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the logarithm of the probability of each class, shape (n, c); exact where it is very small."""
        check_is_fitted(self)
        return self._raw_predict(X, Link("log probabilities", _log_probabilities, len(self.classes_)), out=out)


def _probabilities(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return np.hstack([expit(-scores), expit(scores)])
    return np.asarray(softmax(scores, axis=1))


def _log_probabilities(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return -np.logaddexp(0.0, np.hstack([scores, -scores]))
    return np.asarray(log_softmax(scores, axis=1))
