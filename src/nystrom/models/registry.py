"""What model files may hold: the classes by name, and checks that their parts fit together."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from nystrom.conformal import ClassLink
from nystrom.devices import fetch
from nystrom.engine.progress import make_progress
from nystrom.estimators.trust import ClassScores, ErrorScores, Held, calibrate
from nystrom.models.values import Kind, LeftOut, dataclass_kind
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
    from nystrom.kernels import Kernel
    from nystrom.kernels.scikit import is_scikit_kernel
    from nystrom.nystroem.factor import NystromMap
    from nystrom.solvers.landmark_cg import UnfactoredMap

    fitted = getattr(model, "map_", None)
    if (
        not isinstance(fitted, (NystromMap, UnfactoredMap))
        or not isinstance(fitted.kernel, Kernel)
        or (model.kernel_ != fitted.kernel and not is_scikit_kernel(model.kernel_))
    ):
        raise ValueError("map_ and kernel_ are not those of a fitted machine")
    Z = fitted.landmarks.points
    require_matrix(Z, "landmarks_")
    m = Z.shape[0]
    if m < 1 or Z.shape != model.landmarks_.shape or model.n_features_in_ != Z.shape[1]:
        raise ValueError(f"{m} landmarks of {Z.shape[1]} columns do not fit the rest")
    if not fitted.kernel.has_coordinates:
        indices = fitted.kernel.get_params()["indices"]
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
    """Return the number of landmarks of a Gaussian process's mean, which may exceed that of its variance."""
    from nystrom.solvers.landmark_cg import UnfactoredMap

    mean = getattr(model, "mean_map_", None)
    if mean is None:
        return default
    if not isinstance(mean, UnfactoredMap) or mean.kernel != model.map_.kernel:
        raise ValueError("mean_map_ is not that of a fitted machine")
    require_matrix(mean.landmarks.points, "the landmarks of mean_map_")
    m, p = mean.landmarks.points.shape
    if m < 1 or p != model.n_features_in_:
        raise ValueError(f"{m} landmarks of the mean, of {p} columns, do not fit the rest")
    return int(m)


def check_scaler(model: Any) -> None:
    """Raise ``ValueError`` unless a scikit-learn scaler has a number for each column."""
    if _scaled(model).shape != (1, model.n_features_in_):
        raise ValueError("its parts do not fit together")


def check_steps(steps: list[Any]) -> None:
    """Raise ``ValueError`` unless each step of a pipeline takes as many columns as the previous step returns."""
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
    """Return the model without its column names, since the trial row has none."""
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
    """Raise ``ValueError`` unless every method for new rows returns one result for one row."""
    make_progress(model.verbose)
    if model.engine not in ("auto", "local", "dask"):
        raise ValueError(f"engine is {model.engine!r}")
    trial = copy(_unnamed(model))
    trial.engine, trial.verbose = "local", 0
    results = {name: _attempt(lambda name=name: getattr(trial, name)(row)) for name in _METHODS if hasattr(trial, name)}
    if hasattr(trial, "log_marginal_likelihood") and trial.map_.kernel.has_coordinates:
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


# Attributes that predictions do not need, by estimator: they hold a value per training row, or per pair of landmarks.
# ``save(full=True)`` keeps all of them.
_STATISTICS = ("map_.whitening", "map_.rotation", "map_.statistics")
_FEATURES = ("projection_", "map_.projection")
ESTIMATORS: dict[str, tuple[str, ...]] = {
    "nystrom.estimators.Nystroem": _STATISTICS,
    "nystrom.estimators.KernelPCA": (
        *_STATISTICS,
        "map_.projection",
        *(f"inverse_{name}" for name in _STATISTICS),
        "inverse_map_.projection",
    ),
    "nystrom.estimators.KernelKMeans": (*_STATISTICS, "labels_"),
    "nystrom.estimators.SpectralClustering": (*_STATISTICS, "map_.projection", "labels_"),
    "nystrom.estimators.KernelRidge": (*_STATISTICS, *_FEATURES),
    "nystrom.estimators.KernelRidgeClassifier": (*_STATISTICS, *_FEATURES),
    "nystrom.estimators.KernelLogisticRegression": (*_STATISTICS, *_FEATURES),
    "nystrom.estimators.KernelSVC": (*_STATISTICS, *_FEATURES),
    "nystrom.estimators.KernelSVR": (*_STATISTICS, *_FEATURES),
    "nystrom.estimators.GaussianProcessRegressor": (*_STATISTICS, "_exact_sample"),
    "nystrom.preprocessing.TableEncoder": ("_summaries",),
    "sklearn.preprocessing.StandardScaler": (),
    "sklearn.preprocessing.MinMaxScaler": (),
    "sklearn.preprocessing.MaxAbsScaler": (),
    "sklearn.preprocessing.RobustScaler": (),
}
# Kernels of scikit-learn's Gaussian processes: their parameters are numbers, arrays, text and kernels of this kind.
_SCIKIT_KERNELS = (
    *("RBF", "Matern", "RationalQuadratic", "ExpSineSquared", "DotProduct", "PairwiseKernel"),
    *("ConstantKernel", "WhiteKernel", "Sum", "Product", "Exponentiation"),
)
# One value per training row; kept if predictions are computed from them.
_DUAL = ("_dual_coef", "dual_coef_")
_NEVER = ("_metadata_request", "_stages", "stages", "_like", "search_", "_skl_callbacks")
_RESULT = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*_|_[A-Za-z][A-Za-z0-9_]*")


def left_out(model: Any, *, full: bool) -> frozenset[str]:
    """Return the dotted names of the attributes that a file of this model omits."""
    if full:
        return frozenset()
    steps = model.steps if type(model).__name__ == "Pipeline" else [("", model)]
    names = set()
    for name, step in steps:
        prefix = f"{name}." if name else ""
        key = next((key for key in ESTIMATORS if _class(key) is type(step)), "")
        dual = () if getattr(step, "solver_", None) == "exact" else _DUAL
        names |= {prefix + name for name in (*ESTIMATORS.get(key, ()), *(dual if key.startswith("nystrom") else ()))}
    return frozenset(names)


def _class(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


@cache
def kinds() -> Mapping[str, Kind]:
    """Return every type that a model file may hold, by its name there."""
    from sklearn.pipeline import Pipeline

    from nystrom import errors, kernels, landmarks
    from nystrom.kernels.custom import OfObjects
    from nystrom.nystroem.factor import NystromMap
    from nystrom.nystroem.fit_pass import Statistics
    from nystrom.solvers.exact import TiledRows
    from nystrom.solvers.landmark_cg import UnfactoredMap
    from nystrom.solvers.ridge import RidgeProblem
    from nystrom.tables.columns import Column, Moments, Summary
    from nystrom.tables.rows import Target

    found = {name.rpartition(".")[2]: _estimator_kind(_class(name)) for name in ESTIMATORS}
    for name in kernels.__all__:
        cls = getattr(kernels, name)
        if isinstance(cls, type) and issubclass(cls, kernels.Kernel) and is_dataclass(cls):
            found[name] = _checked_kind(cls)
    for name in _SCIKIT_KERNELS:
        cls = _class(f"sklearn.gaussian_process.kernels.{name}")
        found[f"scikit.{name}"] = Kind(cls, lambda value: value.get_params(deep=False), _scikit_builder(cls))
    for name in landmarks.__all__:
        cls = getattr(landmarks, name)
        if isinstance(cls, type) and issubclass(cls, landmarks.Selector) and cls is not landmarks.Selector:
            found[f"landmarks.{name}"] = _estimator_kind(cls)
    for cls in (
        OfObjects,
        landmarks.Landmarks,
        NystromMap,
        UnfactoredMap,
        Statistics,
        RidgeProblem,
        Column,
        Summary,
        Moments,
        Target,
        errors.Certificate,
        errors.ErrorEstimate,
        ErrorScores,
        ClassScores,
        ClassLink,
    ):
        found[cls.__name__] = _checked_kind(cls)
    found["Held"] = Kind(Held, lambda held: {"result": held.result}, _build_held)
    found["TiledRows"] = Kind(TiledRows, _training_rows, _build_training_rows)
    found["Pipeline"] = Kind(Pipeline, lambda value: dict(value.steps), _build_pipeline)
    return found


def _scikit_builder(cls: type) -> Callable[[dict[str, Any]], Any]:
    return lambda given: cls(**given)


def _checked_kind(cls: type) -> Kind:
    """Return the kind of a dataclass, whose fields declared as kernels, landmarks and so on must have these types."""
    plain = dataclass_kind(cls)
    hints = {
        name: hint
        for name, hint in typing.get_type_hints(cls, localns=_forward_names()).items()
        if isinstance(hint, type) and hint not in (int, float, bool, str, Any)
    }

    def build(given: dict[str, Any]) -> Any:
        for name, hint in hints.items():
            value = given.get(name)
            if name in given and not isinstance(value, (hint, LeftOut)):
                raise ValueError(f"{name} of {cls.__name__} must be a {hint.__name__}; it is a {type(value).__name__}")
        return plain.build(given)

    def parts(value: object) -> dict[str, object]:
        return {name: part for name, part in plain.parts(value).items() if name not in _NEVER}

    return Kind(cls, parts, build)


def _forward_names() -> dict[str, object]:
    from nystrom.engine.passes import Moments

    return {"Moments": Moments}


def _estimator_kind(cls: type) -> Kind:
    def parts(model: Any) -> dict[str, object]:
        if getattr(model, "_held", None) is not None:
            calibrate(model, "save")  # a file holds the results for left-out rows, not the rows
        values = {**model.get_params(deep=False), **vars(model)}
        if isinstance(values.get("random_state"), (np.random.Generator, np.random.RandomState)):
            values["random_state"] = None  # predictions do not need its state
        # The map shares its arrays with the public attributes, whose names the members get.
        names = sorted((name for name in values if name not in _NEVER), key=lambda name: name == "map_")
        return {name: fetch(values[name]) if hasattr(values[name], "__dlpack__") else values[name] for name in names}

    def build(given: dict[str, Any]) -> Any:
        parameters = set(cls._get_param_names())  # type: ignore[attr-defined]
        if any(isinstance(given.get(name), LeftOut) for name in parameters):
            raise ValueError(f"a parameter of {cls.__name__} is left out")
        model = cls(**{name: value for name, value in given.items() if name in parameters})
        for name, value in given.items():
            if name in parameters:
                continue
            if not _RESULT.fullmatch(name) or name.startswith("__") or hasattr(cls, name):
                raise ValueError(f"{cls.__name__} of this version has no parameter or result {name!r}")
            setattr(model, name, None if isinstance(value, LeftOut) and name.startswith("_") else value)
        if hasattr(cls, "_request"):
            check_machine(model)
        if cls.__module__.startswith("sklearn."):
            check_scaler(model)
        if hasattr(model, "_check_loaded"):
            model._check_loaded()
        return model

    return Kind(cls, parts, build)


def _build_held(given: dict[str, Any]) -> Held:
    if list(given) != ["result"] or not isinstance(given["result"], (ErrorScores, ClassScores)):
        raise ValueError("the scores of left-out rows are missing")
    return Held(result=given["result"])


def _training_rows(tiles: Any) -> dict[str, object]:
    if not tiles.rows.in_memory:
        raise TypeError(
            "the model cannot be saved: solver='exact' predicts from all training rows, and they are in a file. Fit "
            "with solver='factor', or keep the rows' file and pickle the model."
        )
    return {"points": tiles.rows.take(np.arange(tiles.shape[0])), "block_rows": tiles.block_rows}


def _build_training_rows(given: dict[str, Any]) -> Any:
    from nystrom.rows import array_rows
    from nystrom.solvers.exact import TiledRows

    points, block_rows = given["points"], given["block_rows"]
    require_matrix(points, "points")
    if not isinstance(block_rows, int) or block_rows < 1:
        raise ValueError(f"block_rows must be at least 1; it is {block_rows!r}")
    return TiledRows(array_rows(points), block_rows)


def _build_pipeline(given: dict[str, Any]) -> Any:
    from sklearn.pipeline import Pipeline

    for name, step in given.items():
        if not isinstance(step, BaseEstimator) and step not in (None, "passthrough"):
            raise ValueError(f"step {name!r} of a pipeline must be an estimator; it is a {type(step).__name__}")
    check_steps([step for step in given.values() if step not in (None, "passthrough")])
    return Pipeline(list(given.items()))
