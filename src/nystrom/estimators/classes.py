"""What every classifier shares: classes learned from the target, and predicted from scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from nystrom.checks import check_tolerance
from nystrom.engine import is_dask_collection
from nystrom.estimators.supervised import Link, SupervisedMachine, gather_target
from nystrom.rows import RowBlocks
from nystrom.types import Array, ClassWeight, Emitted, OutPath, RowsLike, TargetLike

# Work on a target of many rows is done in pieces, to hold no wide copy of it.
_ROWS_AT_A_TIME = 2**16


class KernelClassifier(ClassifierMixin, SupervisedMachine):
    """Base of the classifiers; a subclass has ``class_weight`` and gives ``_raw_predict``, one score per class."""

    def _check_X_classes(
        self, X: RowsLike, y: TargetLike, sample_weight: TargetLike
    ) -> tuple[RowBlocks, Array, Array | None]:
        """Return the rows, the number of the class of each, and the weights; learn ``classes_``."""
        rows, y, weight = self._check_X_y(X, y, sample_weight, numeric=False, multi_output=False)
        if y is None:
            y = gather_target(rows, self._engine(rows)).ravel()
        check_classification_targets(y)
        emphasis = None
        if self.class_weight is not None:
            emphasis = _emphasis(self.class_weight, y, weight)
            balance = emphasis(y)
            weight = balance if weight is None else weight * balance
        # A row of weight 0 is left out, and so is a class that has no other rows.
        self.classes_ = np.unique(y if weight is None else y[weight > 0])
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold at least 2 classes; got {len(self.classes_)} class, {self.classes_.tolist()}, in rows of "
                f"positive weight: there is nothing to tell apart."
            )
        # What a row of each class weighs when it is there once.
        self._class_weights = None if emphasis is None else emphasis(self.classes_)
        return rows, _numbers_of(y, self.classes_), weight

    def decision_function(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the fitted functions: of the second class, shape (n,), if there are two; else of all, (n, c).

        With ``out``, a path, they are streamed there, as by :meth:`nystrom.Nystroem.transform`.
        """
        values = self._raw_predict(X, out=out)
        if out is not None:
            return values
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: RowsLike, *, out: OutPath = None) -> Emitted:
        """Return the class of each row; lazy if X is a Dask collection.

        With ``out``, a path, the classes are streamed there, as by :meth:`nystrom.Nystroem.transform`; they must be
        numbers.
        """
        if out is not None:
            return self._write_classes(X, out)
        values = self.decision_function(X)
        if is_dask_collection(values):
            columns = list(range(1, values.ndim))
            return values.map_blocks(_classes_of, self.classes_, drop_axis=columns, meta=self.classes_[:0])
        return _classes_of(np.asarray(values), self.classes_)

    def _write_classes(self, X: RowsLike, out: OutPath) -> Emitted:
        check_is_fitted(self)
        classes = self.classes_
        if classes.dtype.kind not in "fiub":
            raise ValueError(
                "out= writes numbers, and the classes are text: write decision_function(X, out=...) and take the "
                "classes from it, or use the command 'nystrom predict', which writes text."
            )

        def function(values: Array) -> Array:
            return _classes_of(values[:, 0] if values.shape[1] == 1 else values, classes)[:, None]

        return self._raw_predict(X, Link("classes", function, 1, classes.dtype), out=out)

    def score(self, X: RowsLike, y: TargetLike = None, sample_weight: TargetLike = None) -> float:
        """Return the share of rows classified rightly; y may be None where the rows hold it."""
        return float(super().score(X, self._target_of(X, y), sample_weight))


def _numbers_of(y: Array, classes: Array) -> Array:
    """Return the number of each row's class in as few bytes as hold it; a class of weight 0 has the last number."""
    numbers = np.empty(len(y), np.min_scalar_type(-len(classes)))
    for start in range(0, len(y), _ROWS_AT_A_TIME):
        piece = slice(start, start + _ROWS_AT_A_TIME)
        numbers[piece] = np.minimum(np.searchsorted(classes, y[piece]), len(classes) - 1)
    return numbers


def _emphasis(class_weight: ClassWeight, y: Array, weight: Array | None) -> Callable[[Array], Array]:
    """Return the function from classes to their weights; "balanced" makes all count alike, as their rows weigh."""
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
    """Return the weight of each class in a dict, 1 for those it does not name."""
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight must be 'balanced', a dict from classes to weights, or None; got {class_weight!r}."
        )
    for name, weight in class_weight.items():
        check_tolerance(weight, f"class_weight[{name!r}]")
    known = classes.tolist()
    # A class with a weight may have no row here, as in a part of the rows; but then every other must be named too.
    unknown = [name for name in class_weight if name not in known]
    if unknown and not all(name in class_weight for name in known):
        raise ValueError(f"class_weight names {unknown[0]!r}, which is no class of y; its classes are {known}.")
    return np.array([float(class_weight.get(name, 1.0)) for name in known])


def _classes_of(values: Array, classes: Array) -> Array:
    """Return the class that the fitted functions of each row name."""
    codes = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(axis=1)
    return np.asarray(classes[codes])


def indicators(codes: Array, n_classes: int) -> Array:
    """Return ±1 for each row and class, in one byte each; a single column for two classes."""
    names = np.arange(1, 2) if n_classes == 2 else np.arange(n_classes)
    return np.where(codes[:, None] == names, np.int8(1), np.int8(-1))
