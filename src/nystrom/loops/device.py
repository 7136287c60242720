"""The loops with the array API, for blocks of rows on a device. Sums are returned on the host in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nystrom.devices import DeviceArray, host, to_values
from nystrom.types import Array

# Number of differences computed at a time when rows are compared with landmarks.
_DIFFERENCES = 2**22
# Bytes per difference that a limit of memory is divided by: three numbers, in a quarter of the memory.
_DIFFERENCE_BYTES = 4 * 3 * 8
# Number of exponentials computed at a time on a processor, so that they stay in its cache.
_CACHED_NUMBERS = 2**19
# Number of columns of a Gram matrix computed at a time; parts below the diagonal are skipped.
_PANEL = 128
# Number of rows summed exactly on a device without float64: products of 8-bit slices have 16 bits, their sum 24.
_EXACT_ROWS = 256
# Sizes of the slices of a number: 8 bits and a sign first, then 9 bits of each rounding remainder.
_SLICES = (2.0**8, 2.0**9, 2.0**9)


def exponentials(
    X: DeviceArray, columns: DeviceArray, norms: DeviceArray, gamma: float, center: DeviceArray | None, exp: bool
) -> Any:
    """Return ``min((X − center) @ columns − γ‖x − center‖² − norms, 0)``, or its exponential."""
    xp = X.place.xp
    # A processor takes as many rows at a time as fit its cache.
    size = max(_CACHED_NUMBERS // columns.shape[1], 1) if X.place.is_processor else max(len(X), 1)
    parts = []
    for first in range(0, max(len(X), 1), size):
        rows = X[first : first + size].astype(columns.dtype, copy=False).values
        if center is not None:
            rows = rows - center.values
        found = rows @ columns.values
        found -= (gamma * xp.linalg.vecdot(rows, rows))[:, None]
        found -= norms.values
        found = xp.clip(found, max=0.0)
        parts.append(xp.exp(found) if exp else found)
    return DeviceArray(parts[0] if len(parts) == 1 else xp.concat(parts, axis=0), X.place)


def differences(X: DeviceArray, Z: DeviceArray, power: float) -> Any:
    """Return ``Σ |x − z|^power`` over columns from differences: n·m·p operations, accurate at any distance."""
    xp = X.place.xp
    if power == 2:
        return _by_pairs(X, Z, lambda x, z: (x - z) ** 2)
    return _by_pairs(X, Z, lambda x, z: xp.abs(x - z) if power == 1 else xp.abs(x - z) ** power)


def mismatches(X: DeviceArray, Z: DeviceArray) -> Any:
    """Return the number of columns in which each row differs from each landmark."""
    return _by_pairs(X, Z, lambda x, z: X.place.xp.astype(x != z, X.values.dtype))


def minus_chi2(X: DeviceArray, Z: DeviceArray) -> Any:
    """Return ``−Σ (x − z)² / (x + z)``, with 0 for 0 / 0."""
    xp = X.place.xp

    def term(x: Any, z: Any) -> Any:
        total = x + z
        return -((x - z) ** 2) / xp.where(total > 0, total, xp.ones_like(total))

    return _by_pairs(X, Z, term)


def _by_pairs(X: DeviceArray, Z: DeviceArray, term: Callable[[Any, Any], Any]) -> Any:
    """Return the sum over columns of a function of each row and each landmark."""
    xp, memory = X.place.xp, X.place.memory
    most = _DIFFERENCES if memory is None else min(_DIFFERENCES, memory // _DIFFERENCE_BYTES)
    step = max(1, most // max(Z.size, 1))
    rows, points = X.astype(Z.dtype, copy=False), Z.values[None, :, :]
    starts = range(0, max(len(X), 1), step)
    parts = [xp.sum(term(rows[first : first + step].values[:, None, :], points), axis=2) for first in starts]
    return DeviceArray(parts[0] if len(parts) == 1 else xp.concat(parts, axis=0), X.place)


def nearest(X: DeviceArray, columns: DeviceArray, half: DeviceArray, shift: DeviceArray) -> Array:
    """Return the number of the first column with the largest ``(x − shift) · column − half``, on the host."""
    xp = X.place.xp
    scores = (xp.astype(X.values, columns.values.dtype, copy=False) - shift.values) @ columns.values - half.values
    scores = xp.where(xp.isnan(scores), -xp.inf, scores)
    return host(DeviceArray(xp.argmax(scores, axis=1), X.place), np.int32)


def sum_by_label(labels: Array, X: DeviceArray, n_clusters: int, weight: Array | None = None) -> Array:
    """Return the sums of the rows of each label, in float64 on the host; a weight counts as repetitions."""
    xp, numbers = X.place.xp, X.place.send(np.arange(n_clusters))
    hot = xp.astype(X.place.send(labels.astype(np.int64))[:, None] == numbers, X.values.dtype)
    if weight is not None:
        hot = X.place.send(hot, np.float64) * X.place.send(weight)[:, None]
    return cross(DeviceArray(hot, X.place), X)


def cross(A: DeviceArray, B: Any) -> Array:
    """Return ``AᵀB`` in float64 on the host; B may be on the host.

    A device without float64 multiplies slices of 8 bits, whose sums over 256 rows are exact.
    """
    place = A.place
    if place.has_float64:
        b = place.send(to_values(B), np.float64)
        return host(DeviceArray(place.xp.permute_dims(place.send(A.values, np.float64), (1, 0)) @ b, place))
    if not isinstance(B, DeviceArray):
        high = B.astype(np.float32)
        return cross(A, A.beside(high)) + cross(A, A.beside((B - high).astype(np.float32)))
    found = np.zeros((A.shape[1], B.shape[1]))
    for first in range(0, len(A), _EXACT_ROWS):
        rows = slice(first, first + _EXACT_ROWS)
        right = list(_slices(B[rows].values, place.xp))
        for left, unit in _slices(A[rows].values, place.xp):
            for other, its in right:
                found += host(DeviceArray(place.xp.permute_dims(left, (1, 0)) @ other, place)) * (unit * its)
    return found


def _slices(A: Any, xp: Any) -> Iterator[tuple[Any, float]]:
    """Yield integers up to 256 and their units, which sum to A up to 2⁻²⁷ of its largest entry."""
    A = xp.astype(A, xp.float32, copy=False)
    largest = float(xp.max(xp.abs(A))) if A.shape[0] and A.shape[1] else 0.0
    if not 0 < largest < np.inf:
        yield A, 1.0
        return
    unit = float(2.0 ** (np.floor(np.log2(largest)) + 1))
    for share in _SLICES:
        unit /= share
        whole = xp.round(A / unit)
        yield whole, unit
        A = A - whole * unit


def add_gram(out: Array, F: DeviceArray, dtype: np.dtype, totals: Array | None) -> None:
    """Add ``FᵀF`` to ``out`` and the sums of the columns to ``totals``; products of the rows in ``dtype``."""
    if dtype == np.float64 and not F.place.has_float64:
        out += cross(F, F)
    else:
        values, k = F.place.send(F.values, dtype), F.shape[1]
        for first in range(0, k, _PANEL):
            own = F.place.xp.permute_dims(values[:, first : min(first + _PANEL, k)], (1, 0))
            out[first : first + _PANEL, first:] += host(DeviceArray(own @ values[:, first:], F.place))
    if totals is not None:
        totals += column_sums(F)


def column_sums(F: DeviceArray) -> Array:
    """Return the sums of the columns, in float64 on the host."""
    xp = F.place.xp
    if F.place.has_float64:
        return host(DeviceArray(xp.sum(F.place.send(F.values, np.float64), axis=0), F.place))
    ones = DeviceArray(xp.ones((len(F), 1), dtype=F.values.dtype, device=F.place.device), F.place)
    return cross(ones, F)[0]


def normal_product(C: DeviceArray, V: Array, out: Array, weights: Array | None) -> Array:
    """Return ``U = C V`` on the host and add ``Cᵀ (w ∘ U)`` to ``out``, all sums in float64."""
    V2, out2 = (A if A.ndim == 2 else A[:, None] for A in (V, out))
    if C.place.has_float64:
        C = C.astype(np.float64, copy=False)
    U = cross(C.T, V2)
    out2 += cross(C, U if weights is None else U * weights[:, None])
    return U.reshape(-1, *V.shape[1:])
