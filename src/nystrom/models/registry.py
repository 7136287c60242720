"""What a model file may hold: the types by name, how each is taken apart, and what predictions can do without.

An estimator is one line of ``ESTIMATORS``; kernels, selectors and their kin come from the lists of their own packages.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from nystrom.models.consistency import check_machine, check_scaler, check_steps, require_matrix
from nystrom.models.values import Kind, LeftOut, dataclass_kind

# Attributes that predictions do without, for each estimator: they hold something for each training row, or for each
# pair of landmarks. ``save(full=True)`` keeps all of them.
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
    "nystrom.estimators.GaussianProcessRegressor": _STATISTICS,
    "nystrom.preprocessing.TableEncoder": ("_summaries",),
    "sklearn.preprocessing.StandardScaler": (),
    "sklearn.preprocessing.MinMaxScaler": (),
    "sklearn.preprocessing.MaxAbsScaler": (),
    "sklearn.preprocessing.RobustScaler": (),
}
# One value for each training row; kept where predictions are made of them.
_DUAL = ("_dual_coef", "dual_coef_")
_NEVER = ("_metadata_request", "_stages", "stages")
_RESULT = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*_|_[A-Za-z][A-Za-z0-9_]*")


def left_out(model: Any, *, full: bool) -> frozenset[str]:
    """Return the dotted names of what a file of this model leaves out."""
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
    from nystrom.nystroem.factor import NystromMap
    from nystrom.nystroem.statistics import Statistics
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
    for name in landmarks.__all__:
        cls = getattr(landmarks, name)
        if isinstance(cls, type) and issubclass(cls, landmarks.Selector) and cls is not landmarks.Selector:
            found[f"landmarks.{name}"] = _estimator_kind(cls)
    for cls in (
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
    ):
        found[cls.__name__] = _checked_kind(cls)
    found["TiledRows"] = Kind(TiledRows, _training_rows, _build_training_rows)
    found["Pipeline"] = Kind(Pipeline, lambda value: dict(value.steps), _build_pipeline)
    return found


def _checked_kind(cls: type) -> Kind:
    """Return the kind of a dataclass whose fields that are kernels, landmarks and the like must be just that."""
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
        values = {**model.get_params(deep=False), **vars(model)}
        if isinstance(values.get("random_state"), (np.random.Generator, np.random.RandomState)):
            values["random_state"] = None  # its state is of no use to predictions
        # The map shares its arrays with the results that users know; those give the members their names.
        names = sorted((name for name in values if name not in _NEVER), key=lambda name: name == "map_")
        return {name: values[name] for name in names}

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
