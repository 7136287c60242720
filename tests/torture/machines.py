"""How each machine is built and checked against its dense definition; one line in ``MACHINES`` adds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom import (
    GaussianProcessRegressor,
    KernelKMeans,
    KernelLogisticRegression,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelSVC,
    KernelSVR,
    Nystroem,
    SpectralClustering,
)
from nystrom.kernels import Precomputed
from nystrom.types import Array
from torture.reference import EPS64, Long, Values, diagonal, kernel_values, ridge
from torture.registry import Case

# What docs/numerics.md promises of the eigenvalues where C is folded before it is whitened.
_PROMISE = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-4}
# Constants that the derivations leave out: sums of sums, several stages.
_SAFETY = 8.0


@dataclass(frozen=True)
class Trial:
    """The input of one case."""

    case: Case
    rows: Any  # in the container of the case
    dense: Array  # the same values, float64
    y: Array | None
    weight: Array | None
    settings: dict[str, Any]
    dtype: np.dtype

    @property
    def eps(self) -> float:
        return float(np.finfo(self.dtype).eps)


def norm(A: Array) -> float:
    """Return the Frobenius norm, also where squares leave the range of float64."""
    return float(np.sqrt((A.astype(Long) ** 2).sum()))


class Dense:
    """The features of a fitted map in extended precision, with their bounds."""

    def __init__(self, trial: Trial, model: Any) -> None:
        self.trial, self.model = trial, model
        Z = model.landmarks_
        self.Z = (Z.toarray() if sp.issparse(Z) else np.asarray(Z)).astype(np.float64)

    @cached_property
    def values(self) -> Values:
        return kernel_values(self.model.kernel_, self.trial.dense, self.Z, self.trial.eps)

    def times(self, M: Array) -> Values:
        """Return ``k(X, Z) @ M``, and how far from it a product in the dtype of the rows may be."""
        C, M = self.values, M.astype(Long)
        rounding = (len(M) + 16) * self.trial.eps * np.abs(C.exact)
        return Values(C.exact @ M, (C.slack + rounding) @ np.abs(M))

    @cached_property
    def diagonal(self) -> Array:
        return diagonal(self.model.kernel_, self.trial.dense)

    @cached_property
    def features(self) -> Values:
        return self.times(self.model.map_.projection)

    @cached_property
    def error(self) -> float:
        """The norm of the error of the whitened features ``k(X, Z) T``, from which everything is summed."""
        return norm(self.times(self.model.map_.whitening).slack)

    @cached_property
    def gram_error(self) -> float:
        """A bound on the error of ``ΦᵀΦ`` in the spectral norm."""
        largest = float((self.features.exact**2).sum())
        k = self.model.map_.whitening.shape[1]
        # Sums are taken relative to the landmarks' mean kernel row, which may be as large as the trace.
        own = (len(self.trial.dense) + k + 16) * self.trial.eps * float(self.diagonal.sum())
        promised = _PROMISE[self.trial.dtype] * largest
        return _SAFETY * (2 * np.sqrt(largest) * self.error + self.error**2 + own + promised)


def check_map(trial: Trial, model: Any) -> Dense:
    """Check the map: eigenvalues, trace, ``k(x, x) − ‖φ‖² ≥ 0``, and that it interpolates the landmarks' kernel."""
    dense = Dense(trial, model)
    phi = dense.features.exact
    # A weight is a repetition of its row.
    weight = np.ones(len(phi)) if trial.weight is None else trial.weight
    gram = (phi.T @ (phi * weight[:, None])).astype(np.float64)
    values = model.map_.eigenvalues
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 0).all()
    assert np.abs(gram - np.diag(values)).max(initial=0) <= dense.gram_error, "eigenvalues"
    own = dense.diagonal
    squares = (phi**2).sum(axis=1)
    peak = float(own.max())
    # The check of the fold itself (docs/numerics.md): what it lets pass is rounding.
    lowest = np.sqrt(trial.eps) * len(dense.Z) ** 0.25 * peak
    assert float((own - squares).min()) >= -lowest - _SAFETY * dense.error * np.sqrt(peak), "residual"
    total = float(weight @ own)
    if total > 0:
        error = dense.gram_error * max(len(values), 1) / total
        trace = max(1 - float(weight @ squares) / total, 0.0)
        assert abs(model.certificate_.trace.value - trace) <= error, "certificate"
    _check_interpolation(trial, model, dense)
    return dense


def _check_interpolation(trial: Trial, model: Any, dense: Dense) -> None:
    """Check that the features of the landmarks give back their kernel, but for the directions dropped."""
    if model.map_.rank is not None or isinstance(model.kernel_, Precomputed):
        return
    W = kernel_values(model.kernel_, dense.Z, dense.Z, EPS64)
    M = model.map_.projection.astype(Long)
    phi = W.exact @ M
    off = np.linalg.norm((phi @ phi.T - W.exact).astype(np.float64), 2)
    m, peak = len(dense.Z), float(np.abs(np.diagonal(W.exact)).max())
    dropped = max(4 * EPS64 * np.linalg.norm(W.exact.astype(np.float64), 2), 10 * trial.eps * np.sqrt(m) * peak)
    noise = norm(W.slack)
    # M is rounded too: T is as large as the least eigenvalue kept is small.
    largest = np.linalg.norm(W.exact.astype(np.float64), 2)
    noise += m * EPS64 * float(Long(largest) ** 1.5 * norm(model.map_.whitening))
    # The cut-off may have been raised a thousandfold, each time with a warning. Directions of the landmarks that no row
    # has are dropped too: they do not matter to the rows.
    spanned = model.map_.whitening.shape[1] == model.map_.n_components
    if spanned:
        assert off <= _SAFETY * (1000 * dropped + noise + trial.eps * m * peak), "interpolation"


def check_features(trial: Trial, model: Any) -> None:
    dense = check_map(trial, model)
    found = np.asarray(model.transform(trial.rows))
    assert found.shape == dense.features.exact.shape
    _near(found, dense.features)


def check_components(trial: Trial, model: Any) -> None:
    dense = check_map(trial, model)
    wanted = dense.times(model.projection_)
    offset = model.offset_.astype(Long)
    found = np.asarray(model.transform(trial.rows))
    _near(found, Values(wanted.exact - offset, wanted.slack + trial.eps * np.abs(offset)))
    phi = dense.features.exact
    centred = (phi - phi.mean(axis=0)).astype(np.float64)
    values = np.linalg.svd(centred, compute_uv=False)[: model.n_components_] ** 2
    assert np.abs(values - model.eigenvalues_).max(initial=0) <= 2 * dense.gram_error, "components"


def check_ridge(trial: Trial, model: Any, y: Array | None = None, found: Array | None = None) -> None:
    dense = check_map(trial, model)
    y = np.asarray(trial.y if y is None else y, dtype=np.float64).reshape(len(trial.dense), -1)
    phi = dense.features.exact.astype(np.float64)
    w, b = ridge(phi, y, model.alpha_, trial.weight, model.fit_intercept)
    found = np.asarray(model.predict(trial.rows) if found is None else found).reshape(y.shape)
    _check_fitted(trial, dense, found, phi @ w + b, y, model.alpha_)


def _check_fitted(trial: Trial, dense: Dense, found: Array, wanted: Array, y: Array, alpha: float) -> None:
    """Compare fitted values: an error E in ``ΦᵀDΦ`` moves them by at most ``‖Φ‖ E ‖w‖ / α``, with ‖w‖ ≤ ‖y‖/2√α."""
    assert np.isfinite(found).all()
    weight = 1.0 if trial.weight is None else float(trial.weight.max())
    size = np.sqrt(weight) * float(np.linalg.norm(dense.features.exact.astype(np.float64), 2))
    spread = np.linalg.norm(y - y.mean(axis=0)) if getattr(dense.model, "fit_intercept", False) else np.linalg.norm(y)
    relative = weight * dense.gram_error / alpha * (1 + size / np.sqrt(alpha))
    rounding = EPS64 * np.abs(y).max() * len(y)
    assert np.abs(found - wanted).max() <= _SAFETY * (relative * np.sqrt(weight) * spread + rounding), "fitted values"


def check_classifier(trial: Trial, model: Any) -> None:
    values = np.asarray(model.decision_function(trial.rows))
    known = model.classes_
    y = np.where(np.asarray(trial.y)[:, None] == known, 1.0, -1.0)
    check_ridge(trial, model, y[:, 1:] if len(known) == 2 else y, values)
    assert np.isin(model.predict(trial.rows), known).all()


def check_process(trial: Trial, model: Any) -> None:
    dense = check_map(trial, model)
    mean, std = model.predict(trial.rows, return_std=True)
    phi = dense.features.exact.astype(np.float64)
    y = np.asarray(trial.y, dtype=np.float64).reshape(len(phi), -1)
    w, _ = ridge(phi, y, model.alpha_ / model.amplitude_, None, False)
    _check_fitted(trial, dense, mean.reshape(y.shape), phi @ w, y, model.alpha_ / model.amplitude_)
    prior = np.sqrt(model.amplitude_ * diagonal(model.kernel_, trial.dense).astype(np.float64))
    assert np.isfinite(std).all()
    assert (std >= 0).all()
    assert (std <= prior * (1 + np.sqrt(trial.eps) * len(dense.Z))).all()


def check_clusters(trial: Trial, model: Any) -> None:
    dense = check_map(trial, model)
    labels = np.asarray(model.labels_)
    assert labels.shape == (len(trial.dense),)
    assert ((labels >= 0) & (labels < len(model.cluster_centers_))).all()
    assert np.isfinite(model.inertia_)
    assert model.inertia_ >= 0
    if isinstance(model, KernelKMeans):
        # Each row is with its nearest centre, up to the error of its features.
        phi = dense.features.exact.astype(np.float64)
        distances = np.sqrt(((dense.features.exact[:, None] - model.cluster_centers_.astype(Long)) ** 2).sum(axis=2))
        off = norm(dense.features.slack)
        slack = _SAFETY * (off + trial.eps * np.abs(phi).max(initial=0))
        for given in (np.asarray(model.predict(trial.rows)), labels):
            nearest = distances[np.arange(len(phi)), given]
            # Squared distances are taken as ‖φ‖² − 2φ·c + ‖c‖², each term rounded.
            rounded = _SAFETY * (phi.shape[1] + 16) * trial.eps * np.abs(phi).max(initial=0) ** 2 * phi.shape[1]
            assert (nearest**2 <= (distances.min(axis=1) + 2 * slack) ** 2 + rounded).all(), "nearest"
        reach = norm(phi)
        error = (slack + trial.eps * reach) * 4 * reach + slack**2
        assert abs(model.inertia_ - (nearest**2).sum()) <= _SAFETY * error, "inertia"


def check_finite(trial: Trial, model: Any) -> None:
    """Check what has no closed form: finite values, known classes."""
    check_map(trial, model)
    if hasattr(model, "decision_function"):
        assert np.isfinite(model.decision_function(trial.rows)).all()
        assert np.isin(model.predict(trial.rows), model.classes_).all()
    else:
        assert np.isfinite(model.predict(trial.rows)).all()


def check_exact(trial: Trial, model: Any) -> None:
    """Check that the dual solves ``(K + αI) a = y`` to the residual that is reported."""
    X, a = trial.dense, model.dual_coef_
    given = isinstance(model.kernel_, Precomputed)
    K = Values(X.astype(Long), np.zeros_like(X)) if given else kernel_values(model.kernel_, X, X, EPS64)
    y = np.asarray(trial.y, dtype=np.float64)
    left = (y - K.exact @ a - model.alpha_ * a).astype(np.float64)
    condition = float(np.trace(K.exact)) / model.alpha_ + 1
    allowed = (float(model.residuals_[-1]) + len(y) * EPS64 * condition) * norm(y)
    allowed += norm(K.slack @ np.abs(a))
    assert norm(left) <= _SAFETY * allowed, "residual"
    assert np.isfinite(model.predict(trial.rows)).all()


def _near(found: Array, wanted: Values) -> None:
    assert np.isfinite(found).all()
    off = np.abs(found.astype(Long) - wanted.exact)
    tiny = float(np.finfo(found.dtype).tiny) if found.dtype.kind == "f" else 0.0
    assert (off <= _SAFETY * (wanted.slack + tiny)).all(), float((off / (wanted.slack + tiny)).max())


@dataclass(frozen=True)
class Machine:
    """How a machine is made from settings, which target it takes, and how its fit is checked."""

    make: Callable[..., Any]
    check: Callable[[Trial, Any], None]
    target: str | None = None
    weighted: bool = False
    own: dict[str, Any] | None = None


MACHINES: dict[str, Machine] = {
    "Nystroem": Machine(Nystroem, check_features, own={"n_components": 5}),
    "Nystroem, all directions": Machine(Nystroem, check_features, own={"n_components": None}),
    "KernelPCA": Machine(KernelPCA, check_components, own={"n_components": 3}),
    "KernelRidge": Machine(KernelRidge, check_ridge, "real"),
    "KernelRidge, weights": Machine(KernelRidge, check_ridge, "real", weighted=True),
    "KernelRidge, intercept": Machine(KernelRidge, check_ridge, "real", weighted=True, own={"fit_intercept": True}),
    "KernelRidge, two targets": Machine(KernelRidge, check_ridge, "two"),
    "KernelRidge, auto alpha": Machine(KernelRidge, check_ridge, "real", own={"alpha": "auto", "selection": "gcv"}),
    "KernelRidge, exact": Machine(KernelRidge, check_exact, "real", own={"solver": "exact"}),
    "KernelRidgeClassifier": Machine(KernelRidgeClassifier, check_classifier, "classes"),
    "GaussianProcessRegressor": Machine(GaussianProcessRegressor, check_process, "real", own={"amplitude": 1.0}),
    "KernelKMeans": Machine(KernelKMeans, check_clusters, own={"n_clusters": 3, "n_components": 5}),
    "SpectralClustering": Machine(SpectralClustering, check_clusters, own={"n_clusters": 3, "n_components": 5}),
    "KernelLogisticRegression": Machine(KernelLogisticRegression, check_finite, "classes"),
    "KernelSVC": Machine(KernelSVC, check_finite, "classes"),
    "KernelSVR": Machine(KernelSVR, check_finite, "real"),
}
