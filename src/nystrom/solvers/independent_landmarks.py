"""Landmarks that span the same functions as all of them, where the kernel has few directions."""

from __future__ import annotations

import numpy as np

from nystrom.factor import prepare
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks
from nystrom.types import Array

# With more directions than this, or than this share of the landmarks, all landmarks are kept.
_MOST_DIRECTIONS = 500
_MOST_SHARE = 0.25


def independent_landmarks(kernel: Kernel, landmarks: Landmarks) -> Array | None:
    """Return the numbers of landmarks whose kernel functions span those of all, to rounding; None if they are many.

    A linear kernel has as many directions as columns, and a polynomial or a very wide kernel few more: the kernel
    matrix of thousands of landmarks is then singular, and equations in their coefficients lose digits. Pivoted Cholesky
    finds a subset of the landmarks that leaves nothing of the others but rounding.

    Cost: O(m r²) time and O(m r) memory for r directions, at most 500.
    """
    m = len(landmarks)
    most = min(_MOST_DIRECTIONS, int(_MOST_SHARE * m))
    Z = landmarks.points.astype(np.float64)
    evaluate = prepare(kernel, Landmarks(Z, landmarks.indices))
    left = np.asarray(kernel.diag(Z), dtype=np.float64).copy()
    level = 10 * float(np.finfo(np.float64).eps) * np.sqrt(m) * float(np.max(left, initial=0.0))
    columns, pivots = np.empty((most, m)), np.empty(most, dtype=np.intp)
    for count in range(most):
        pivot = int(np.argmax(left))
        if not left[pivot] > level:
            return pivots[:count] if count else None
        column = np.asarray(evaluate(Z[[pivot]]), dtype=np.float64).ravel()
        column -= columns[:count, pivot] @ columns[:count]
        columns[count] = column / np.sqrt(left[pivot])
        pivots[count] = pivot
        left -= columns[count] ** 2
        # Its own remainder is rounding, and must not be drawn again.
        left[pivot] = 0.0
    return None
