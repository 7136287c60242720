"""Conjugate gradients for several right-hand sides at once, with true residuals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nystrom.exceptions import ConvergenceWarning, warn_caller
from nystrom.types import Array

# The recurrence's residual drifts from the true one, which is computed when the recurrence converges. The iteration
# restarts from it as long as this lowers it at least by this factor.
_PROGRESS = 0.5
# Residuals may rise by the square root of the condition number before they fall, although the error falls with each
# step. Above this factor, rounding dominates.
_DIVERGENCE = 1e8
_RISE = 1e3


@dataclass(frozen=True)
class Solution:
    """The result of the iteration.

    Attributes
    ----------
    coefficients : array (n, t)
        X.
    residuals : array (steps + 1,)
        ``‖Y − A X‖ / ‖Y‖`` at the start and after each step, the largest over the columns. The last one is the true
        residual; earlier ones above ``tol`` come from the recurrence.
    converged : bool
        Whether the last residual is at most the tolerance.
    stopped_early : bool
        Whether ``watch`` stopped the iteration.
    """

    coefficients: Array
    residuals: Array
    converged: bool
    stopped_early: bool = False


def conjugate_gradients(
    product: Callable[[Array, str], Array],
    Y: Array,
    *,
    precondition: Callable[[Array], Array] | None = None,
    start: Array | None = None,
    watch: Callable[[Array], bool] | None = None,
    residual: Callable[[Array, str], Array] | None = None,
    tol: float = 1e-8,
    max_iter: int = 200,
) -> Solution:
    """Solve ``A X = Y`` for a positive definite A, all columns at once.

    Parameters
    ----------
    product : callable
        ``(V, label) ↦ A V``; the label names the step and its residual.
    Y : array (n, t)
        Right-hand sides.
    precondition : callable, optional
        ``V ↦ P⁻¹ V``.
    start : array (n, t), optional
        Initial X; zeros by default.
    watch : callable, optional
        Called with X after each step; True stops the iteration.
    residual : callable, optional
        ``(X, label) ↦ Y − A X`` with more digits than the product; used if the product is too inaccurate for ``tol``.
        The iteration then continues from it: iterative refinement.
    tol : float
        Stop when ``‖Y − A X‖ ≤ tol ‖Y‖`` in every column, by the true residual.
    max_iter : int
        Largest number of steps. The result says if they were not enough, or if rounding stopped the iteration.

    Notes
    -----
    Cost: one product per step, and one per check of convergence.

    Examples
    --------
    >>> A = np.diag([1.0, 2.0, 3.0])
    >>> conjugate_gradients(lambda V, label: A @ V, np.ones((3, 1))).coefficients.ravel().round(6)
    array([1.      , 0.5     , 0.333333])
    """
    norms = column_norms(Y)
    # Scale each column to about unit length, by a power of two: inner products stay in range without rounding.
    units = 2.0 ** np.round(np.log2(norms))
    norms, Y = norms / units, Y / units
    X = np.zeros_like(Y) if start is None else start / units
    watched = None if watch is None else lambda X: watch(X * units)

    def relative(R: Array) -> float:
        return float(np.max(np.linalg.norm(R, axis=0) / norms, initial=0.0))

    R = Y.copy() if start is None else Y - product(X, "conjugate gradients, first residual")
    residuals = [relative(R)]
    verified = np.inf
    stopped = False
    while residuals[-1] > tol and len(residuals) <= max_iter:
        tried, stopped = _descend(product, precondition, X, R, residuals, relative, watched, tol, max_iter)
        if stopped:
            X = tried
            break
        label = f"conjugate gradients, true residual after step {len(residuals) - 1}"
        left = Y - product(tried, label)
        if residual is not None and relative(left) > tol:
            left = residual(tried * units, label) / units
        residuals[-1] = relative(left)
        if residuals[-1] < verified:
            X, R = tried, left
        if not residuals[-1] <= _PROGRESS * verified:
            residuals[-1] = relative(R)
            break
        verified = residuals[-1]
    return Solution(X * units, np.asarray(residuals), residuals[-1] <= tol, stopped)


def column_norms(Y: Array) -> Array:
    """Return the length of each column, 1 for a column of zeros, without overflow or underflow of squares."""
    peaks = np.max(np.abs(Y), axis=0, initial=0.0)
    peaks[peaks == 0] = 1.0
    norms = peaks * np.linalg.norm(Y / peaks, axis=0)
    norms[norms == 0] = 1.0
    return np.asarray(norms)


def warn_unless_converged(residuals: Array, converged: bool, tol: float, advice: str) -> None:
    """Warn that the iteration ended above its tolerance, with advice."""
    if not converged:
        warn_caller(
            f"conjugate gradients stopped after {len(residuals) - 1} steps at a relative residual of "
            f"{residuals[-1]:.2g}, above tol={tol:.2g}. {advice}",
            ConvergenceWarning,
        )


def _descend(
    product: Callable[[Array, str], Array],
    precondition: Callable[[Array], Array] | None,
    X: Array,
    R: Array,
    residuals: list[float],
    relative: Callable[[Array], float],
    watch: Callable[[Array], bool] | None,
    tol: float,
    max_iter: int,
) -> tuple[Array, bool]:
    """Iterate from X, with residual R, until the recurrence meets ``tol``; return the new X and ``watch``'s value.

    Each step lowers the error in the norm of A, although residuals may rise at first. If the steps are used up, or
    rounding shows in a direction without positive curvature or in residuals that diverge, return the X with the
    smallest residual; or the last one if no step has lowered the residual yet.
    """
    Z = R if precondition is None else precondition(R)
    P, old = Z.copy(), np.einsum("ij,ij->j", R, Z)
    best, least = X.copy(), residuals[-1]
    begun = least
    while residuals[-1] > tol and len(residuals) <= max_iter:
        Q = product(P, f"conjugate gradients, step {len(residuals)}, residual {residuals[-1]:.1e}")
        # A column that has converged exactly has a zero direction: its step is zero.
        curvature = np.einsum("ij,ij->j", P, Q)
        size = np.divide(old, curvature, out=np.zeros_like(old), where=curvature > 0)
        X = X + size * P
        R = R - size * Q
        Z = R if precondition is None else precondition(R)
        new = np.einsum("ij,ij->j", R, Z)
        P = Z + np.divide(new, old, out=np.zeros_like(old), where=old > 0) * P
        broken = not (curvature[old > 0] > 0).all()
        old = new
        residuals.append(relative(R))
        if residuals[-1] < least:
            best, least = X, residuals[-1]
        if broken or not residuals[-1] <= _DIVERGENCE * least:
            return best, False
        if watch is not None and watch(X):
            return X, True
    rising = least == begun and residuals[-1] <= _RISE * begun
    return (X if residuals[-1] <= tol or rising else best), False
