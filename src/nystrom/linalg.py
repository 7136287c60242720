"""Small dense algebra: eigenvalues with a cut-off at rounding, whitening, orthonormal columns, fixed signs."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike

from nystrom.devices import on_device
from nystrom.exceptions import NotPositiveSemidefiniteError
from nystrom.loops.device import cross
from nystrom.types import Array

# Matrix order above which symmetric products are computed in blocks, which is faster.
_LARGE_ORDER = 8000
# Size of a negative eigenvalue relative to the largest that exceeds the rounding errors of any kernel in float32.
INDEFINITE = 1e-5
# Safety factor on the estimate of the smallest eigenvalue.
_SAFE = 2.0
# Maximum Lanczos steps for the largest eigenvalue, and steps between convergence checks.
_MOST_STEPS = 40
_STEPS_PER_LOOK = 4
# Number of groups of columns of a triangular factor; each group skips the zero rows below its end.
_PANELS = 8
# Minimum number of columns per group.
_LEAST_PANEL = 32
# Order of the blocks of large symmetric matrices.
_PANEL = 1024
# The same for a Cholesky factor: the share of triangular solves, which are slower than products, grows with it.
_CHOLESKY_PANEL = 256
# Largest number of multiplications for which OpenBLAS does not copy the operands: with smaller products, a pass of a
# logistic regression with 1,000 landmarks and 10 or 26 classes takes 0.4 or 0.55 of the time. Slices with fewer rows
# than the second number gain nothing.
_SMALL_PRODUCT = 700_000
_LEAST_SLICE = 16


def gram(F: Array) -> Array:
    """Return ``FᵀF``, in blocks if the order is above ``_LARGE_ORDER``.

    Examples
    --------
    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[1., 2.],
           [2., 5.]])
    """
    if on_device(F):
        return cross(F, F)
    k = F.shape[1]
    if k <= _LARGE_ORDER:
        return np.asarray(F.T @ F)
    out = np.empty((k, k), dtype=F.dtype)
    for start in range(0, k, _PANEL):
        own = slice(start, min(start + _PANEL, k))
        # A product of a matrix with itself: NumPy then makes one triangle and copies it, so the block is symmetric.
        out[own, own] = F[:, own].T @ F[:, own]
        out[own, own.stop :] = F[:, own].T @ F[:, own.stop :]
        out[own.stop :, own] = out[own, own.stop :].T
    return out


class Eigen(NamedTuple):
    """Eigenvalues in descending order and their orthonormal eigenvectors, as columns."""

    values: Array
    vectors: Array


class Whitening(NamedTuple):
    """``T`` with ``Tᵀ W T = I`` on the kept directions.

    ``values`` are the kept eigenvalues of W, ``T = V S^{-1/2}`` their whitening, ``cutoff`` the eigenvalue below
    which directions were dropped.
    """

    T: Array
    values: Array
    cutoff: float


class QuickWhitening(NamedTuple):
    """A triangular ``T`` with ``Tᵀ W T = I``, an upper bound on the condition of W, and ``‖T‖²``."""

    T: Array
    condition: float
    norm: float


def column_signs(vectors: Array) -> Array:
    """Return ±1 for each column: the sign of its entry of largest magnitude."""
    if vectors.size == 0:
        return np.ones(vectors.shape[1])
    largest = np.abs(vectors).argmax(axis=0)
    return np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def psd_eigh(A: Array) -> Eigen:
    """Return the eigen-decomposition of a symmetric matrix in float64, largest eigenvalue first, signs fixed.

    Cost: O(m³) time, O(m²) memory.

    Examples
    --------
    >>> psd_eigh(np.diag([1.0, 3.0])).values
    array([3., 1.])
    """
    A = np.asarray(A, dtype=np.float64)
    # Scaling by a power of two is exact and keeps squares inside LAPACK from overflowing or underflowing.
    peak = float(np.max(np.abs(np.diag(A)), initial=0.0))
    scale = 2.0 ** np.round(np.log2(peak)) if peak > 0 and np.isfinite(peak) else 1.0
    values, vectors = np.linalg.eigh(A / scale)
    vectors = vectors[:, ::-1]
    return Eigen(values[::-1] * scale, vectors * column_signs(vectors))


def whiten(W: Array, *, block_dtype: DTypeLike = np.float64, caution: float = 1.0) -> Whitening:
    """Return the whitening of the landmarks' kernel matrix W.

    Directions are kept while ``σ > max(4 ε64 σ₁, 10 ε_C √m max W_ii)``, with ε_C the eps of the dtype in which blocks
    of the kernel are computed: smaller eigenvalues are rounding errors. The rest is dropped, never clamped.

    Parameters
    ----------
    W : array of shape (m, m)
        Kernel matrix of the landmarks, in float64.
    block_dtype : dtype
        Dtype of the kernel blocks that T will multiply.
    caution : float
        Factor on the cut-off.

    Raises
    ------
    NotPositiveSemidefiniteError
        If W has an eigenvalue far below zero.
    ValueError
        If W is not finite.
    """
    if not np.isfinite(W).all():
        raise ValueError(
            "the kernel of the landmarks is not finite: its values overflow. Scale the rows down "
            "(for example with sklearn.preprocessing.StandardScaler) or lower gamma, degree or coef0."
        )
    m = W.shape[0]
    values, vectors = psd_eigh((W + W.T) / 2)
    largest = float(values[0])
    if values[-1] < -INDEFINITE * max(largest, -float(values[-1])):
        raise NotPositiveSemidefiniteError(
            f"the kernel is not positive semidefinite: the kernel matrix of the {m} landmarks has the eigenvalue "
            f"{values[-1]:.3g}, against {largest:.3g} for the largest. A Nyström approximation needs k(x, y) to be an "
            f"inner product; use a positive definite kernel such as 'gaussian', or shift a precomputed one."
        )
    cutoff = caution * max(4 * np.finfo(np.float64).eps * largest, _rounding_level(W, block_dtype))
    kept = values > cutoff
    return Whitening(vectors[:, kept] / np.sqrt(values[kept]), values[kept], float(cutoff))


def least_ritz_share(K: Array, *, n_steps: int = 30) -> float:
    """Return an upper bound on (smallest eigenvalue) / (largest magnitude of an eigenvalue), by Lanczos steps.

    A negative bound proves that K is not positive semidefinite. Cost: O(n² n_steps).
    """
    scale = float(np.max(np.abs(K), initial=0.0))
    n = len(K)
    n_steps = min(n_steps, n)
    basis = np.zeros((n_steps, n))
    v = np.random.default_rng(0).standard_normal(n)
    for step in range(n_steps):
        # Twice, because rounding leaves components of the earlier directions.
        for _ in range(2):
            v -= basis[:step].T @ (basis[:step] @ v)
        length = float(np.linalg.norm(v))
        if not length > 0 or scale == 0:
            break
        basis[step] = v / length
        v = K @ (basis[step] / scale)
    basis = basis[np.abs(basis).max(axis=1) > 0]
    ritz = np.linalg.eigvalsh(basis @ (K / scale if scale else K) @ basis.T)
    largest = float(np.max(np.abs(ritz), initial=0.0))
    return float(ritz[0]) / largest if largest > 0 else 0.0


def cholesky(A: Array) -> Array:
    """Return the upper triangular R with ``RᵀR = A``, for any order; ``LinAlgError`` unless A is positive definite."""
    if not np.isfinite(A).all():
        raise np.linalg.LinAlgError("the matrix is not finite.")
    if len(A) <= _LARGE_ORDER:
        return np.asarray(np.linalg.cholesky(A).T)
    R = np.triu(A)
    if not cholesky_in_place(R):
        raise np.linalg.LinAlgError("the matrix is not positive definite.")
    return R


def shifted_cholesky(A: Array) -> Array:
    """Return the upper triangular R with ``RᵀR = A + sI``, for A that is positive semidefinite up to rounding.

    The shift s is 0 if that suffices, else the smallest sufficient multiple of ``ε m max A_ii`` by a power of 100.
    """
    shift, level = 0.0, len(A) * float(np.finfo(A.dtype).eps) * float(np.max(np.diag(A), initial=0.0))
    while np.isfinite(A).all() and shift < np.inf:
        shifted = A.copy()
        shifted[np.diag_indices_from(shifted)] += shift
        try:
            return cholesky(shifted)
        except np.linalg.LinAlgError:
            shift = max(100 * shift, level, float(np.finfo(A.dtype).tiny))
    raise ValueError(
        "the sums of the features over the rows are not finite. Divide the weights, or the rows, by a constant."
    )


def whiten_quickly(W: Array, *, block_dtype: DTypeLike, caution: float, most: float) -> QuickWhitening | None:
    """Return a triangular ``T`` with ``Tᵀ W T = I``, or None.

    By Cholesky, in a tenth of the time of :func:`whiten`. None unless :func:`whiten` would certainly keep every
    direction and the condition is below ``most``.
    """
    T = inverse_cholesky(W)
    if T is None:
        return None
    norm = whitening_norm(T)
    lowest, largest = 1.0 / (_SAFE * norm), row_sum_norm(W)
    if not lowest > caution * _rounding_level(W, block_dtype) or not lowest * most > largest:
        return None
    return QuickWhitening(T, largest / lowest, norm)


def inverse_cholesky(W: Array) -> Array | None:
    """Return the upper triangular ``T`` with ``Tᵀ W T = I``; None if W is not positive definite to rounding."""
    try:
        R = cholesky(W)
    except (np.linalg.LinAlgError, ValueError):
        return None
    T, failed = scipy.linalg.lapack.dtrtri(R)
    return None if failed else np.asarray(T)


def whitened(C: Array, T: Array) -> Array:
    """Return ``C T`` in the dtype of C; a triangular T (:func:`whiten_quickly`) takes slightly over half the time."""
    T = T.astype(C.dtype, copy=False)
    m, k = T.shape
    if on_device(C) or m != k or m < 2 * _PANELS or np.tril(T, -1).any():
        return C @ T
    out = np.empty((C.shape[0], k), dtype=C.dtype)
    bounds = np.linspace(0, m, _PANELS + 1).astype(int)
    for first, last in pairwise(bounds):
        np.matmul(C[:, :last], T[:last, first:last], out=out[:, first:last])
    return out


def congruent(S: Array, T: Array) -> Array:
    """Return ``Tᵀ S T`` of a symmetric S, symmetric to the last bit; zeros at the end of columns of T save time.

    For a triangular T this takes a third of the operations of two products.

    Examples
    --------
    >>> congruent(np.eye(2), np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[1., 2.],
           [2., 5.]])
    """
    k = T.shape[1]
    bounds = np.linspace(0, k, min(_PANELS, max(k // _LEAST_PANEL, 1)) + 1).astype(int)
    panels = []
    product = np.empty((S.shape[0], k))
    for first, last in pairwise(bounds):
        filled = np.flatnonzero(T[:, first:last].any(axis=1))
        panel = T[: filled[-1] + 1 if filled.size else 0, first:last]
        np.matmul(S[:, : len(panel)], panel, out=product[:, first:last])
        panels.append((first, last, panel))
    out = np.empty((k, k))
    for first, last, panel in panels:
        np.matmul(panel.T, product[: len(panel), first:], out=out[first:last, first:])
        own = out[first:last, first:last]
        own[:] = (own + own.T) / 2
        out[last:, first:last] = out[first:last, last:].T
    return out


def cholesky_in_place(A: Array, block: int = _CHOLESKY_PANEL) -> bool:
    """Replace the upper triangle of A by R with ``RᵀR = A``; the lower triangle is neither read nor written.

    Returns whether A was positive definite. Rows of blocks are computed one after the other, each by one product with
    those above it, which at large orders is faster than LAPACK's own function. Cost: m³/3 operations, and a
    copy of one row of blocks.
    """
    m = len(A)
    for start in range(0, m, block):
        stop = min(start + block, m)
        panel = A[start:stop, start:].copy(order="K")
        if start:
            above, own = A[:start, start:], A[:start, start:stop]
            # The product in the memory order that BLAS expects, so that nothing is copied.
            panel -= (above.T @ own).T if A.flags.f_contiguous else own.T @ above
        diagonal, failed = scipy.linalg.lapack.dpotrf(panel[:, : stop - start], lower=0, clean=1)
        if failed:
            return False
        below = np.tril(A[start:stop, start:stop], -1)
        A[start:stop, start:stop] = diagonal + below
        if stop < m:
            A[start:stop, stop:] = scipy.linalg.solve_triangular(
                diagonal, panel[:, stop - start :], trans="T", check_finite=False, overwrite_b=True
            )
    return True


def row_sum_norm(W: Array) -> float:
    """Return the largest row sum of magnitudes: an upper bound of the largest eigenvalue, close for kernels."""
    return float(np.abs(W).sum(axis=1).max())


def whitening_norm(T: Array) -> float:
    """Return ``‖T‖²``, one over the smallest eigenvalue that T whitens, to about 1 %, by Lanczos steps."""
    # Scaled to size 1, so that products stay in range for a kernel of any size; 1 % accuracy does not need float64.
    scale = float(np.max(np.abs(T), initial=0.0)) or 1.0
    T = (T / scale).astype(np.float32)
    k = T.shape[1]
    if k < 3:
        return scale * float(np.linalg.norm(T, 2) ** 2) * scale
    n_steps = min(k, _MOST_STEPS)
    basis = np.zeros((n_steps, k))
    diagonal, beside = np.zeros(n_steps), np.zeros(n_steps)
    v = np.random.default_rng(0).standard_normal(k)
    found = 0.0
    for step in range(n_steps):
        basis[step] = v / np.linalg.norm(v)
        v = (T.T @ (T @ basis[step].astype(np.float32))).astype(np.float64)
        diagonal[step] = basis[step] @ v
        # Once is enough for 1 % accuracy.
        v -= (basis[: step + 1] @ v) @ basis[: step + 1]
        beside[step] = np.linalg.norm(v)
        if step % _STEPS_PER_LOOK == 0 or step + 1 == n_steps or not beside[step] > 0:
            before, found = found, _largest_of_tridiagonal(diagonal[: step + 1], beside[:step])
            if found - before <= 1e-3 * found or not beside[step] > 0:
                break
    return scale * found * scale


def _largest_of_tridiagonal(diagonal: Array, beside: Array) -> float:
    small = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return float(np.linalg.eigvalsh(small)[-1])


def _rounding_level(W: Array, block_dtype: DTypeLike) -> float:
    """Return ``10 ε_C √m max W_ii``: eigenvalues of W below it are rounding errors of blocks in this dtype."""
    return 10 * float(np.finfo(block_dtype).eps) * float(np.sqrt(W.shape[0])) * float(np.max(np.diag(W), initial=0.0))


def correct_orthonormal(U: Array, gram: Array) -> Array:
    """Return ``U R⁻¹`` with ``RᵀR = gram = UᵀU``: one Cholesky-QR step, which reduces ‖UᵀU − I‖ to about 1e-15.

    Columns from the first one whose length is not near 1 on are rounding errors and dropped.
    """
    r = _count_sound(gram)
    R = cholesky(gram[:r, :r])
    correction = scipy.linalg.solve_triangular(R, np.eye(r), lower=False, check_finite=False)
    return np.asarray(U[:, :r] @ correction.astype(U.dtype, copy=False))


def _count_sound(gram: Array) -> int:
    sound = np.abs(gram.diagonal() - 1) < 0.5
    count = len(sound) if sound.all() else int(np.argmin(sound))
    if count == 0:
        raise ValueError(
            "the landmarks explain nothing of the rows: every eigenvalue of the approximation is rounding error. "
            "Likely cause: gamma is so large that rows resemble only themselves. Lower gamma, or take rows as "
            "landmarks (landmarks='uniform')."
        )
    return count


def small_product(C: Array, A: Array) -> Array:
    """Return ``C A`` on the host, for an A with few columns."""
    return cross(C.T, A) if on_device(C) else C @ A


def cross_product(A: Array, B: Array) -> Array:
    """Return ``AᵀB`` on the host."""
    return cross(A, B) if on_device(A) else A.T @ B


def thin_product(A: Array, B: Array) -> Array:
    """Return ``A B`` for a B with few columns as many small products, whose operands OpenBLAS does not copy."""
    if on_device(A):
        return cross(A.T, B)
    out = np.empty((len(A), B.shape[1]))
    for some in _small_products(len(A), A.shape[1], B.shape[1]):
        np.matmul(A[some], B, out=out[some])
    return out


def add_thin_cross(total: Array, A: Array, B: Array) -> None:
    """Add ``Aᵀ B`` to a matrix, for a B with few columns, as many small products."""
    if on_device(A):
        total += cross(A, B)
        return
    for some in _small_products(len(A), A.shape[1], B.shape[1]):
        total += A[some].T @ B[some]


def _small_products(n: int, m: int, t: int) -> list[slice]:
    """Return slices of the rows of an n × m matrix whose products with t columns are small; all of it for large t."""
    size = _SMALL_PRODUCT // max(m * t, 1)
    size = size if t > 1 and size >= _LEAST_SLICE else max(n, 1)
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]
