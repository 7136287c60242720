"""Normal equations without a copy in float64: ``U = C V`` and ``Cᵀ(w ∘ U)`` in one reading of C."""

from __future__ import annotations

import numpy as np

from nystrom.loops.extension import by_rows, native, takes
from nystrom.types import Array

# With more columns of V than this, two products of a small copy in float64 are faster than the loop.
_MOST_COLUMNS = 4
# Numbers of C that NumPy copies to float64 at a time.
_CHUNK_NUMBERS = 2**17


def normal_product(C: Array, V: Array, out: Array, weights: Array | None = None) -> Array:
    """Return ``U = C V`` and add ``Cᵀ (w ∘ U)`` to ``out``; all sums in float64, whatever the dtype of C.

    Kernel values in float32 are accurate enough for conjugate gradients, but sums in float32 are not. C is read
    once. Time O(n m t).

    Parameters
    ----------
    C : ndarray of shape (n, m), float32 or float64
        Kernel values of a block of rows.
    V : ndarray of shape (m, t) or (m,)
    out : float64 ndarray of the shape of V, C-contiguous
        Added to in place.
    weights : ndarray of shape (n,), optional
        Ones by default.

    Returns
    -------
    U : float64 ndarray of shape (n, t) or (n,)

    Examples
    --------
    >>> import numpy as np
    >>> C, out = np.array([[1.0, 2.0]], np.float32), np.zeros(2)
    >>> normal_product(C, np.array([3.0, 4.0]), out), out
    (array([11.]), array([11., 22.]))
    """
    V = np.asarray(V, np.float64)
    if C.ndim != 2 or V.ndim not in (1, 2) or V.shape[0] != C.shape[1]:
        raise ValueError(f"V must have a row per column of C, of shape {C.shape}; got shape {V.shape}.")
    if out.dtype != np.float64 or out.shape != V.shape or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(
            f"out must be a writeable, contiguous float64 array of shape {V.shape}; "
            f"got dtype {out.dtype}, shape {out.shape}."
        )
    if weights is not None:
        weights = np.ascontiguousarray(weights, np.float64)
        if weights.shape != C.shape[:1]:
            raise ValueError(f"weights must have shape {C.shape[:1]}; got {weights.shape}.")
    U = np.empty((C.shape[0], *V.shape[1:]))
    V2, U2, out2 = (A if A.ndim == 2 else A[:, None] for A in (V, U, out))
    if native is None or not takes(C.dtype) or V2.shape[1] > _MOST_COLUMNS:
        _by_chunks(C, V2, U2, out2, weights)
    else:
        native.normal_product(by_rows(C), by_rows(V2), weights, U2, out2)
    return U


def _by_chunks(C: Array, V: Array, U: Array, out: Array, weights: Array | None) -> None:
    size = max(_CHUNK_NUMBERS // max(C.shape[1], 1), 16)
    for start in range(0, C.shape[0], size):
        rows = slice(start, start + size)
        part = C[rows].astype(np.float64, copy=False)
        U[rows] = part @ V
        out += part.T @ (U[rows] if weights is None else weights[rows, None] * U[rows])


__all__ = ["normal_product"]
