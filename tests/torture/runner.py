"""Runs one case: it is right within its bound, or refused with a documented error; nothing else."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.exceptions import NystromError
from nystrom.types import Array
from torture.machines import MACHINES, Trial
from torture.reference import Long, spread
from torture.registry import (
    CONTAINERS,
    KERNELS,
    ORDINARY_SCALES,
    SELECTORS,
    SPARSE_CONTAINERS,
    Case,
    make_rows,
)

# Words by which an error says what is wrong: the arguments, or what they hold.
_NAMES = re.compile(
    r"\b(X|y|Input|kernel|gamma|alpha|n_landmarks|landmarks?|n_components|sample_weight|n_clusters|amplitude|"
    r"degree|coef0|rows?|class|classes|sketch_dim|target)\b"
)
_MAY_REFUSE = ("all zero", "all equal", "one row", "two rows", "fewer rows than landmarks", "huge target")
_NEED_POINTS = ("sketched-kmeans", "kmeans", "kmeans++", "points")


def run_case(case: Case, folder: Path) -> str:
    """Fit and check; return "right" or "refused".

    Raises
    ------
    AssertionError
        If the answer is wrong, or refused without need or without a word, or a warning is not the library's own.
    """
    trial, must_refuse = make_trial(case, folder)
    machine = MACHINES[case.machine]
    settings = _settings(trial)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = machine.make(**settings)
            arguments = {} if trial.weight is None else {"sample_weight": trial.weight}
            model.fit(trial.rows, *(() if trial.y is None else (trial.y,)), **arguments)
            assert not must_refuse, "NaN or infinity was accepted"
            machine.check(trial, model)
            outcome = "right"
        except AssertionError:
            raise
        except Exception as error:
            _check_refusal(trial, error, must_refuse=must_refuse)
            outcome = "refused"
    strangers = [str(w.message) for w in caught if w.category.__module__ != "nystrom.exceptions"]
    assert not strangers, f"{outcome}, with warnings: {strangers}"
    return outcome


def make_trial(case: Case, folder: Path) -> tuple[Trial, bool]:
    """Return the input of a case, and whether it must be refused."""
    X = make_rows(case)
    if case.kernel == "precomputed":
        # Rounded to float32, K is positive semidefinite to float32 only; these are read as float64.
        wide = case.dtype != "float32" or case.container in ("list", "other byte order")
        X = _kernel_matrix(X, np.float64 if wide else np.float32)
    if case.container in SPARSE_CONTAINERS and case.kernel != "precomputed" and X.dtype != object:
        X = np.where(np.random.default_rng(case.seed + 1).random(X.shape) < 0.5, np.zeros_like(X), X)
    rows = CONTAINERS[case.container](X, folder)
    dense = X.astype(np.float64)
    dtype = np.dtype(np.float32 if X.dtype == np.float32 and case.container != "list" else np.float64)
    y, weight = _target(case, len(X))
    return Trial(case, rows, dense, y, weight, {}, dtype), not np.isfinite(dense).all()


def _kernel_matrix(X: Array, dtype: Any) -> Array:
    exact = X.astype(Long)
    with np.errstate(all="ignore"):
        gamma = 1 / (spread(exact) or Long(1))
        K = np.exp(-gamma * ((exact[:, None] - exact[None]) ** 2).sum(-1))
    return K.astype(dtype)


def _target(case: Case, n: int) -> tuple[Array | None, Array | None]:
    machine = MACHINES[case.machine]
    rng = np.random.default_rng(case.seed + 2)
    weight = None
    if machine.weighted:
        weight = rng.uniform(0.5, 2.0, n)
        if case.defect == "zero weights":
            weight[rng.random(n) < 0.5] = 0.0
            weight[0] = 1.0
    if machine.target is None:
        return None, weight
    if machine.target == "classes":
        return np.arange(n) % 3 if n > 3 else np.arange(n) % 2, weight
    y = rng.normal(size=(n, 2) if machine.target == "two" else n)
    if case.defect == "huge target":
        return 1e200 * y, weight
    return y + (1e8 if case.defect == "shifted target" else 0.0), weight


def _settings(trial: Trial) -> dict[str, Any]:
    case, machine = trial.case, MACHINES[trial.case.machine]
    chosen = SELECTORS[case.selector]
    settings = {
        **KERNELS[case.kernel],
        "landmarks": chosen(trial.dense, case.m) if callable(chosen) else chosen,
        "factor": case.factor,
        "n_landmarks": case.m,
        "random_state": case.seed,
        "n_jobs": 1,
    }
    if case.machine.startswith(("KernelRidge", "Gaussian")):
        settings["alpha"] = _regularisation(case, trial.dense)
    if case.machine.startswith("Gaussian"):
        settings.setdefault("gamma", "scale")
    settings |= machine.own or {}
    if settings.get("n_components") is not None:
        settings["n_components"] = min(settings["n_components"], case.m)
    return settings


def _regularisation(case: Case, X: Array) -> float:
    """Return a tenth of the largest k(x, x), or 1 where that is no positive number in float64."""
    with np.errstate(all="ignore"):
        squares = (X.astype(Long) ** 2).sum(axis=1)
        largest = {
            "linear": squares,
            "polynomial": (squares + 1) ** 2,
            "sum": 1 + 0.5 * squares,
            "product": (0.1 * squares + 1) ** 2,
        }.get(case.kernel, np.ones(1))
        alpha = float(0.1 * largest.max())
    return alpha if np.finfo(np.float64).tiny < alpha < np.inf else 1.0


def _check_refusal(trial: Trial, error: Exception, *, must_refuse: bool) -> None:
    case = trial.case
    described = f"{type(error).__name__}: {error}"
    assert isinstance(error, (ValueError, TypeError, NystromError)), described
    assert type(error).__module__.split(".")[0] in ("builtins", "nystrom"), described
    assert _NAMES.search(str(error)), f"names no argument: {described}"
    # Landmarks that are all zero span nothing; a kernel matrix has no coordinates; the kernel may be too large to sum.
    nothing = case.kernel in ("linear", "cosine") and re.search("kernel is zero|k\\(x, x\\) is zero", str(error))
    without_points = case.kernel == "precomputed" and case.selector in _NEED_POINTS
    large = case.kernel in ("polynomial", "product") and case.scale == "large" and "large" in str(error)
    if must_refuse and not (nothing or without_points or "at least 2 classes" in str(error)):
        assert re.search("NaN|infinity|not finite", str(error)), described
        return
    may = case.scale not in ORDINARY_SCALES or case.defect in _MAY_REFUSE or nothing or without_points or large
    assert may, f"refused without need: {described}"
