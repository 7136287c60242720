"""What the machines for numbers share."""

from __future__ import annotations

from sklearn.base import MultiOutputMixin, RegressorMixin

from nystrom.estimators.supervised import SupervisedMachine, require_numbers
from nystrom.types import Emitted, OutPath, RowsLike, TargetLike


class KernelRegressor(MultiOutputMixin, RegressorMixin, SupervisedMachine):
    """Base of the regressors; a subclass gives ``_raw_predict`` and sets ``_one_target``."""

    _one_target: bool

    def predict(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the fitted function at the rows of X, shape (n,) or (n, t).

        With ``out``, a path, the values are streamed there (n × t), as by :meth:`nystrom.Nystroem.transform`.
        """
        values = self._raw_predict(X, out=out)
        if out is not None:
            return values
        return values[:, 0] if self._one_target else values

    def score(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> float:
        """Return R² of the predictions; y may be None where the rows hold it."""
        for values, name in ((y, "y"), (sample_weight, "sample_weight")):
            if values is not None:
                require_numbers(values, name, "a score needs numbers. Convert them.")
        return float(super().score(X, self._target_of(X, y), sample_weight))
