"""Sums behind the Shapley values of a product kernel: one number per factor and landmark."""

from __future__ import annotations

import numpy as np

from nystrom.loops.extension import aligned, native
from nystrom.types import Array


def coalition_sums(x: Array, background: Array, weights: Array, nodes: Array, parts: Array) -> Array:
    """Return ``Σ_b w_b (x_j − b_j) Σ_q u_q Π_{i≠j} (b_i + t_q (x_i − b_i))`` for each factor j and landmark.

    For factors that are not negative no term cancels another, and nothing is divided. Time O(B q p m).

    Parameters
    ----------
    x : float64 ndarray of shape (p, m)
        Factors of one row with m landmarks.
    background : float64 ndarray of shape (B, p, m)
        Factors of the background rows.
    weights : ndarray of shape (B,)
    nodes, parts : ndarrays of shape (q,)
        Nodes t and weights u of the quadrature on [0, 1].

    Returns
    -------
    float64 ndarray of shape (p, m)

    Examples
    --------
    With one factor, the difference of the row and the background:

    >>> import numpy as np
    >>> coalition_sums(np.array([[3.0]]), np.array([[[1.0]]]), np.ones(1), np.array([0.5]), np.ones(1))
    array([[2.]])
    """
    x, background = aligned(x, np.float64), aligned(background, np.float64)
    weights, nodes, parts = (aligned(values, np.float64) for values in (weights, nodes, parts))
    if x.ndim != 2 or background.shape != (len(weights), *x.shape):
        raise ValueError(f"background must have shape {(len(weights), *x.shape)}; got {background.shape}.")
    if len(nodes) != len(parts):
        raise ValueError(f"nodes and parts must have the same size; got {len(nodes)} and {len(parts)}.")
    out = np.zeros(x.shape)
    if native is None:
        _by_arrays(x, background, weights, nodes, parts, out)
    else:
        native.coalitions(x, background, weights, nodes, parts, out)
    return out


def _by_arrays(x: Array, background: Array, weights: Array, nodes: Array, parts: Array, out: Array) -> None:
    for b, weight in zip(background, weights, strict=True):
        slope = x - b
        # (q, p, m), with ones before the first and behind the last factor.
        factors = b + nodes[:, None, None] * slope
        prefix, suffix = np.ones_like(factors), np.ones_like(factors)
        np.cumprod(factors[:, :-1], axis=1, out=prefix[:, 1:])
        np.cumprod(factors[:, :0:-1], axis=1, out=suffix[:, -2::-1])
        out += weight * slope * np.tensordot(parts, prefix * suffix, 1)


__all__ = ["coalition_sums"]
