"""What the machines with a target share: the target checked and put beside the rows, scores over blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, _check_y

from nystrom.engine import Engine, is_dask_collection
from nystrom.estimators.base import KernelMachine
from nystrom.rows import RowBlocks
from nystrom.types import Array


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
    dtype: Any = np.float64

    def __call__(self, values: Array) -> Array:
        return np.asarray(self.function(values))


class SupervisedMachine(KernelMachine):
    """Base of the machines that learn a target."""

    def _check_X_y(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        numeric: bool = True,
        multi_output: bool = True,
        reset: bool = True,
    ) -> tuple[RowBlocks, Array | None, Array | None]:
        """Return the rows, the target (None where it lies inside the rows) and the weights, all checked."""
        rows = self._check_X(X, reset=reset)
        if y is None:
            if not rows.has_target:
                raise ValueError(self._needs_y())
        elif not (is_dask_collection(y) and numeric and rows.on_cluster):  # else it stays there, beside the rows
            y = np.asarray(_check_y(y, multi_output=multi_output, y_numeric=numeric, estimator=self))
            if len(y) != rows.shape[0]:
                raise ValueError(f"y has {len(y)} entries, but X has {rows.shape[0]} rows; there must be one per row.")
        return rows, y, None if sample_weight is None else self._check_weight(sample_weight, rows)

    def _needs_y(self) -> str:
        return (
            f"{type(self).__name__} requires y to be passed, but the target y is None: give y, or rows that hold "
            f"their target."
        )

    def _check_weight(self, sample_weight: Any, rows: RowBlocks) -> Array:
        n = rows.shape[0]
        weight = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
        if not weight.sum() > 0:
            raise ValueError("sample_weight must have at least one positive entry; got only zeros.")
        return np.asarray(weight)

    def _target_of(self, X: Any, y: Any) -> Any:
        """Return y, or the target inside the rows X where y is None."""
        if y is not None or not (isinstance(X, RowBlocks) and X.has_target):
            return y
        rows = self._check_X(X, reset=False)
        return gather_target(rows, self._engine(rows))
