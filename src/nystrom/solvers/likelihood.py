"""The marginal likelihood of a Gaussian process on the factor, and its optimum: O(r) per value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nystrom.solvers.alpha_path import RidgeProblem, auto_alphas
from nystrom.types import Array

_TINY = float(np.finfo(np.float64).tiny)


class Optimum(NamedTuple):
    """The noise, the amplitude and, for each row and target, the negative of the bound that they make least."""

    alpha: float
    amplitude: float
    objective: float


def log_likelihood(problem: RidgeProblem, alpha: float, amplitude: float) -> float:
    """Return ``log N(y; 0, s L Lᵀ + αI)``, with s the amplitude and α the noise; the sum of the targets."""
    ratio = np.array([alpha / amplitude])
    n, t = problem.count, problem.cross.shape[1]
    quadratic = float(problem.quadratic(ratio).sum()) / amplitude
    determinant = float(problem.log_determinant(ratio)[0])
    return -0.5 * (quadratic + t * (determinant + n * np.log(2 * np.pi * amplitude)))


def optimum(problem: RidgeProblem, unexplained: float, alpha: float | None, amplitude: float | None) -> Optimum:
    """Return the noise α and the amplitude s that maximise the bound on the likelihood; those given stay as they are.

    What is maximised is ``log N(y; 0, s L Lᵀ + αI) − s tr(K − L Lᵀ) / 2α`` (Titsias, 2009), which is at most the
    likelihood of the exact process: without its second term, the noise would be taken too small wherever
    the landmarks explain the rows poorly.

    Parameters
    ----------
    problem : RidgeProblem
        Without weights and intercept.
    unexplained : float
        ``tr(K − L Lᵀ)`` for an amplitude of 1.
    alpha, amplitude : float or None
        None is to be found.

    Notes
    -----
    In terms of the ratio λ = α/s all is one-dimensional: the best s for a given λ is ``yᵀ(L Lᵀ + λI)⁻¹y / n``.
    """

    def amplitudes(ratios: Array) -> Array:
        if amplitude is not None:
            return np.full(len(ratios), amplitude)
        if alpha is not None:
            return alpha / ratios
        return np.maximum(problem.quadratic(ratios).mean(axis=1) / problem.count, _TINY)

    def objective(ratios: Array) -> Array:
        scale = amplitudes(ratios)
        n = problem.count
        quadratic = problem.quadratic(ratios).mean(axis=1) / scale
        total = n * np.log(2 * np.pi * scale) + problem.log_determinant(ratios) + quadratic + unexplained / ratios
        return np.asarray(total / (2 * n))

    if alpha is not None and amplitude is not None:
        ratios = np.array([alpha / amplitude])
    else:
        ratios = auto_alphas(problem.values)
        best = int(np.argmin(objective(ratios)))
        bounds = np.log(ratios[[max(best - 1, 0), min(best + 1, len(ratios) - 1)]])
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda log_ratio: float(objective(np.exp([log_ratio]))[0]), bounds=bounds, method="bounded"
        )
        ratios = np.exp([found.x])
    scale = float(amplitudes(ratios)[0])
    return Optimum(float(ratios[0]) * scale, scale, float(objective(ratios)[0]))
