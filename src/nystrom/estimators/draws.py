"""Draws from a Gaussian process at any rows, and its predictions before a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from nystrom.devices import fetch, to_host
from nystrom.engine.passes import Passes
from nystrom.estimators.scikit_kernels import Covariance, Variance, covariance_given, noise_of_rows
from nystrom.kernels import Kernel
from nystrom.landmarks import Landmarks
from nystrom.nystroem.factor import NystromMap
from nystrom.rows import Block, RowBlocks
from nystrom.rows.draw import gather
from nystrom.rows.sparse import stack_rows
from nystrom.solvers.landmark_cg import UnfactoredMap
from nystrom.types import Array, RowsLike, to_dense

# Up to this many rows, draws have the full covariance; with more, it is full on this many of the rows.
_JOINT_ROWS = 3000
_DRAWN_ROWS = 2000


def predict_prior(machine: Any, X: RowsLike, return_std: bool, return_cov: bool) -> Any:
    """Return predictions before a fit: the mean 0, and the deviation or covariance of the prior."""
    if covariance_given(machine).kernel.needs_moments:
        check_is_fitted(machine)  # raises: the width is that of the training rows
    prior, rows = _prior(machine, X)
    X = to_dense(rows.take(np.arange(rows.shape[0]))).astype(np.float64)
    t = machine.n_targets or 1
    mean = np.zeros((len(X), t) if t > 1 else len(X))
    noise = 0.0 if prior.source is None else noise_of_rows(prior.source, X)
    if return_cov:
        found = prior.amplitude.value * prior.kernel(X, X) + np.diag(np.broadcast_to(noise, len(X)))
    elif return_std:
        found = np.sqrt(prior.amplitude.value * prior.kernel.diag(X) + noise)
    else:
        return mean
    return mean, np.stack([found] * t, axis=-1) if t > 1 else found


def sample_prior(machine: Any, X: RowsLike, n_samples: int, rng: np.random.Generator) -> Array:
    """Return draws from the prior, including the noise of a WhiteKernel, at the rows of X."""
    prior, rows = _prior(machine, X)
    n, t = rows.shape[0], machine.n_targets or 1
    normal = rng.standard_normal((n, t * n_samples))
    draws = draw_unexplained(machine, prior.kernel, None, rows, np.zeros((n, 0)), normal, rng)
    draws *= np.sqrt(prior.amplitude.value or 1.0)
    if prior.source is not None:
        noise = noise_of_rows(prior.source, rows.take(np.arange(n)))
        draws += np.sqrt(noise)[:, None] * rng.standard_normal(draws.shape)
    draws = draws.reshape(n, t, n_samples) if t > 1 else draws
    return draws if rows.home is None else rows.home.send(draws)


def _prior(machine: Any, X: RowsLike) -> tuple[Covariance, RowBlocks]:
    """Return the covariance before a fit, and the rows, from which a width that is not given is computed."""
    rows, asked = machine._check_X(X, reset=True), covariance_given(machine)
    kernel = asked.kernel
    if kernel.needs_moments:
        kernel = kernel.resolve(Passes(rows, machine._engine(rows)).moments)
    return replace(asked, kernel=kernel, amplitude=Variance(asked.amplitude.value or 1.0)), rows


def draw_unexplained(
    machine: Any,
    kernel: Kernel,
    fitted: NystromMap | None,
    rows: RowBlocks,
    phi: Array,
    normal: Array,
    rng: np.random.Generator,
) -> Array:
    """Return draws with covariance ``k − φφᵀ`` at the rows, or with covariance k before a fit; see ``sample_y``."""
    n = rows.shape[0]
    if n <= _JOINT_ROWS and kernel.has_coordinates:
        X = rows.take(np.arange(n)).astype(np.float64)
        left = kernel(X, X) - phi @ phi.T
        values, vectors = np.linalg.eigh((left + left.T) / 2)
        return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * normal))
    wider: NystromMap | UnfactoredMap | None = fitted
    weights = np.zeros((phi.shape[1], normal.shape[1]))
    if kernel.has_coordinates:
        # A draw from the prior at the landmarks and some rows, minus the part that the landmarks explain.
        some = np.sort(rng.choice(n, min(n, _DRAWN_ROWS), replace=False))
        points = gather(Passes(rows, machine._engine(rows)), some)
        if fitted is not None:
            points = stack_rows([fitted.landmarks.points, points])
        wider = UnfactoredMap(Landmarks(points, None), kernel)
        weights = rng.standard_normal((wider.n_components, normal.shape[1]))
    assert wider is not None

    def function(block: Block) -> Array:
        psi = to_host(wider.features(block.X)).astype(np.float64)
        left = np.sqrt(wider.residual(block.X, psi, start=block.start))[:, None]
        return psi @ weights + left * normal[block.start : block.start + len(psi)]

    draws = fetch(machine._emit(rows, function, normal.shape[1], np.float64, label="draws"))
    if fitted is not None and kernel.has_coordinates:
        at_landmarks = wider.features(fitted.landmarks.points).astype(np.float64) @ weights
        draws -= phi @ (fitted.projection.T @ at_landmarks)
    return draws
