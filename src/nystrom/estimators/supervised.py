"""What the machines with a target share: the target checked and put beside the rows, scores over blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from nystrom.engine import Engine, is_dask_collection, place_rows
from nystrom.estimators.base import KernelMachine, unmapped
from nystrom.rows import RowBlocks, array_rows
from nystrom.types import Array


def gather_target(rows: RowBlocks, engine: Engine) -> Array:
    """Return the target that lies inside the rows, as one array: one pass."""
    return np.concatenate([np.asarray(y) for _, y in engine.map(rows, lambda block: block.y, label="target")])


class SupervisedMachine(KernelMachine):
    """Base of the machines that learn a target."""

    def _check_X_y(
        self, X: Any, y: Any, sample_weight: Any = None, *, numeric: bool = True, multi_output: bool = True
    ) -> tuple[RowBlocks, Array | None, Array | None]:
        """Return the rows, the target (None where it lies inside the rows) and the weights, all checked."""
        X = unmapped(X)
        if isinstance(X, RowBlocks) or is_dask_collection(X):
            rows = self._check_X(X, reset=True)
            if is_dask_collection(y) and numeric and rows.on_cluster:
                pass  # stays on the cluster, where it is put beside the rows
            elif y is not None:
                y = _check_y_alone(y, numeric=numeric, multi_output=multi_output)
                if len(y) != rows.shape[0]:
                    raise ValueError(
                        f"y has {len(y)} entries, but X has {rows.shape[0]} rows; there must be one a row."
                    )
            elif not rows.has_target:
                raise ValueError(self._needs_y())
        elif y is None:
            raise ValueError(self._needs_y())
        else:
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
                multi_output=multi_output,
                y_numeric=numeric,
            )
            rows = place_rows(array_rows(X), self.engine)
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


def _check_y_alone(y: Any, *, numeric: bool, multi_output: bool) -> Array:
    if multi_output:
        y = check_array(y, ensure_2d=False, dtype="numeric" if numeric else None, input_name="y")
    else:
        y = column_or_1d(y, warn=True)
    check_consistent_length(y)
    return np.asarray(y)
