"""Whether the parts of a model that came from a file fit together: shapes first, then one row is tried."""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

from nystrom.engine.base import make_progress
from nystrom.models.values import LeftOut
from nystrom.types import Array, issparse

_METHODS = ("predict", "transform", "predict_proba", "decision_function")


def require_matrix(X: object, name: str) -> None:
    """Raise ``ValueError`` unless X is a dense or sparse matrix of finite real numbers."""
    if not (issparse(X) or isinstance(X, np.ndarray)) or X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} must be a matrix of float32 or float64 numbers")
    if not np.isfinite(X.data if issparse(X) else X).all():
        raise ValueError(f"{name} must be finite")


def check_machine(model: Any) -> None:
    """Raise ``ValueError`` unless the parts of a fitted machine fit together: shapes first, then one row is tried."""
    from nystrom.kernels import Kernel, Precomputed
    from nystrom.nystroem.factor import NystromMap
    from nystrom.solvers.landmark_cg import UnfactoredMap

    fitted = getattr(model, "map_", None)
    if (
        not isinstance(fitted, (NystromMap, UnfactoredMap))
        or not isinstance(model.kernel_, Kernel)
        or model.kernel_ != fitted.kernel
    ):
        raise ValueError("map_ and kernel_ are not those of a fitted machine")
    Z = fitted.landmarks.points
    require_matrix(Z, "landmarks_")
    m = Z.shape[0]
    if m < 1 or Z.shape != model.landmarks_.shape or model.n_features_in_ != Z.shape[1]:
        raise ValueError(f"{m} landmarks of {Z.shape[1]} columns do not fit the rest")
    if isinstance(model.kernel_, Precomputed):
        indices = model.kernel_.indices
        if indices is None or len(indices) != m or not 0 <= min(indices) <= max(indices) < Z.shape[1]:
            raise ValueError("the landmarks' columns of a precomputed kernel do not fit the rest")
    projection = fitted.projection if isinstance(fitted, NystromMap) else LeftOut("map_.projection")
    counts = dict.fromkeys(("map_.projection", "projection_", "landmark_coef_", "degree_coef_"), m)
    counts["landmark_coef_"] = _count_mean_landmarks(model, default=m)
    for name, value in (("map_.projection", projection), *vars(model).items()):
        if (
            name in counts
            and not isinstance(value, LeftOut)
            and (not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.shape[:1] != (counts[name],))
        ):
            raise ValueError(f"{name} must have a row of numbers for each of the {counts[name]} landmarks")
    centers = getattr(model, "cluster_centers_", None)
    if centers is not None and (not isinstance(centers, np.ndarray) or centers.ndim != 2 or not centers.size):
        raise ValueError("cluster_centers_ must be a matrix")
    _try_one_row(model, Z[:1])


def _count_mean_landmarks(model: Any, *, default: int) -> int:
    """Return the number of landmarks of a Gaussian process's mean, which may have more than its variance."""
    from nystrom.solvers.landmark_cg import UnfactoredMap

    mean = getattr(model, "mean_map_", None)
    if mean is None:
        return default
    if not isinstance(mean, UnfactoredMap) or mean.kernel != model.kernel_:
        raise ValueError("mean_map_ is not that of a fitted machine")
    require_matrix(mean.landmarks.points, "the landmarks of mean_map_")
    m, p = mean.landmarks.points.shape
    if m < 1 or p != model.n_features_in_:
        raise ValueError(f"{m} landmarks of the mean, of {p} columns, do not fit the rest")
    return int(m)


def check_scaler(model: Any) -> None:
    """Raise ``ValueError`` unless one of scikit-learn's scalers gives a number for each column."""
    if _scaled(model).shape != (1, model.n_features_in_):
        raise ValueError("its parts do not fit together")


def check_steps(steps: list[Any]) -> None:
    """Raise ``ValueError`` unless each step of a pipeline takes as many columns as the one before gives."""
    if not steps:
        raise ValueError("a pipeline without steps")
    for step in steps[:-1]:
        if not hasattr(step, "transform"):
            raise ValueError(f"{type(step).__name__} can only be the last step of a pipeline")
    for before, step in pairwise(steps):
        given = len(_attempt(before.get_feature_names_out))
        if hasattr(step, "_read_names") or given != step.n_features_in_:
            raise ValueError(f"{type(step).__name__} does not fit the step before it, which gives {given} columns")
        if not hasattr(before, "_read_names") and not np.isfinite(_scaled(before)).all():
            raise ValueError(f"{type(before).__name__} must give finite numbers")


def _scaled(step: Any) -> Array:
    return _attempt(lambda: _unnamed(step).transform(np.zeros((1, step.n_features_in_))))


def _unnamed(model: Any) -> Any:
    """Return the model without the names of its columns: a row that is tried has none."""
    if not hasattr(model, "feature_names_in_"):
        return model
    trial = copy(model)
    if len(trial.feature_names_in_) != trial.n_features_in_:
        raise ValueError("feature_names_in_ does not fit the number of columns")
    del trial.feature_names_in_
    return trial


def _attempt(method: Any) -> Array:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(method())
    except Exception as error:
        raise ValueError(f"its parts do not fit together ({error})") from error


def _try_one_row(model: Any, row: Any) -> None:
    """Raise ``ValueError`` unless every method that makes something of new rows gives one result for one row."""
    from nystrom.kernels import Precomputed

    make_progress(model.verbose)
    if model.engine not in ("auto", "local", "dask"):
        raise ValueError(f"engine is {model.engine!r}")
    trial = copy(_unnamed(model))
    trial.engine, trial.verbose = "local", 0
    results = {name: _attempt(lambda name=name: getattr(trial, name)(row)) for name in _METHODS if hasattr(trial, name)}
    if hasattr(trial, "log_marginal_likelihood") and not isinstance(trial.kernel_, Precomputed):
        results["deviation"] = _attempt(lambda: trial.predict(row, return_std=True)[1])
    if hasattr(trial, "inverse_coef_"):
        back = _attempt(lambda: trial.inverse_transform(results["transform"]))
        if back.shape != row.shape or not np.isfinite(back).all():
            raise ValueError("its inverse does not fit the rest")
    for result in results.values():
        if result.shape[:1] != (1,) or result.ndim > 2 or not result.size:
            raise ValueError("its parts do not fit together")
    _check_classes(trial, results)


def _check_classes(model: Any, results: dict[str, Array]) -> None:
    classes = getattr(model, "classes_", None)
    if not isinstance(classes, np.ndarray):
        return
    k = len(classes) if classes.ndim == 1 else 0
    shapes = {"predict_proba": {(1, k)}, "decision_function": {(1,)} if k == 2 else {(1, k)}}
    if k < 2 or any(results[name].shape not in allowed for name, allowed in shapes.items() if name in results):
        raise ValueError("classes_ does not fit the rest")
