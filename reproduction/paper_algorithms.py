"""The paper's Algorithms 1 and 2 exactly as written, on given matrices C and W.

The library computes the same approximations in another way (see :mod:`nystrom.nystroem.factor`). These versions are
for timing them against each other, as in the paper, and for checking the library.
"""

from __future__ import annotations

import numpy as np

from nystrom.types import Array


def standard_as_written(C: Array, W: Array, rank: int) -> Array:
    """Return L of Algorithm 1 with orthogonal columns: C V_r Σ_r^{-1/2}, rotated by its own eigenvectors.

    Cost: O(nmr + nr² + m³).
    """
    values, vectors = np.linalg.eigh(W)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    kept = values > np.finfo(W.dtype).eps * len(W) * values[0]
    L = C @ (vectors[:, kept] / np.sqrt(values[kept]))
    _, rotation = np.linalg.eigh(L.T @ L)
    return L @ rotation[:, ::-1]


def optimal_as_written(C: Array, W: Array, rank: int) -> Array:
    """Return L of Algorithm 2: C = QR, R W⁺ Rᵀ = V' Σ' V'ᵀ, L = Q V'_r Σ'_r^{1/2}.

    Cost: O(nm² + m³ + nmr). It loses about half of the digits if W is ill-conditioned.
    """
    Q, R = np.linalg.qr(C)
    values, vectors = np.linalg.eigh(R @ np.linalg.pinv(W, hermitian=True) @ R.T)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    L: Array = Q @ (vectors * np.sqrt(np.maximum(values, 0)))
    return L
