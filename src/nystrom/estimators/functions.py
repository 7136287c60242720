"""Functions of rows without an estimator: leading eigenvalues and eigenvectors, and the best possible error."""

from __future__ import annotations

from nystrom.checks import RandomState, check_choice, check_count, make_generator
from nystrom.engine import Resources
from nystrom.engine.passes import Passes
from nystrom.engine.threads import one_blas_thread
from nystrom.errors import ErrorEstimate
from nystrom.errors.measure import NORMS, best_error
from nystrom.estimators.pipeline import resolve_sizes
from nystrom.kernels import GammaLike, KernelLike, make_kernel
from nystrom.landmarks import LandmarksLike, make_selector
from nystrom.landmarks.base import see
from nystrom.nystroem.factor import FACTORS, naive_eigh, orthonormal_eigh
from nystrom.rows import as_blocks
from nystrom.types import Array, Emitted, RowsLike


@one_blas_thread
def kernel_eigh(
    X: RowsLike,
    *,
    n_components: int,
    kernel: KernelLike = "gaussian",
    gamma: GammaLike = "scale",
    degree: int = 3,
    coef0: float = 1,
    n_landmarks: int | None = None,
    landmarks: LandmarksLike = "auto",
    factor: str = "optimal",
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> tuple[Array, Emitted]:
    """Return the leading eigenvalues and eigenvectors of the kernel matrix of the rows.

    The output of the paper's Algorithm 2 (``factor="optimal"``) or Algorithm 1 (``factor="standard"``), with
    orthonormal eigenvectors; ``factor="naive"`` gives the paper's first estimate, ``(n/m) Σ_r`` and ``√(m/n) C V_r
    Σ_r⁺``, which are not orthonormal and are here for comparison only.

    Parameters
    ----------
    X : array, CSR, RowBlocks, Dask array or dataframe of shape (n, p)
        The rows.
    n_components : int
        Number of eigenvalues; fewer are returned if the numerical rank is lower.
    kernel, gamma, degree, coef0, n_landmarks, landmarks, n_jobs, random_state
        As in :class:`nystrom.Nystroem`.
    factor : {"optimal", "standard", "naive"}
        Which estimate.

    Returns
    -------
    eigenvalues : array of shape (r,)
        Descending.
    eigenvectors : array of shape (n, r)
        In float64; for a Dask collection X, a lazy Dask array with the chunks of X.

    Notes
    -----
    Cost: O(n m (p + m)) time, O(n r + m²) memory. On a cluster, two more passes make the eigenvectors orthonormal.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> values, vectors = kernel_eigh(X, n_components=5, random_state=0)
    >>> bool(np.allclose(vectors.T @ vectors, np.eye(5)))
    True
    """
    allowed = (*sorted(FACTORS), "naive")
    if factor not in allowed:
        raise ValueError(f"factor must be one of {allowed}; got {factor!r}.")
    parsed = make_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0)
    rows = as_blocks(X, objects=parsed.takes_objects)
    rank, m = resolve_sizes(n_components, n_landmarks, rows.shape[0])
    if rank is None:
        raise ValueError("n_components must be a whole number of at least 1; got None.")
    passes = Passes(rows, Resources(n_jobs=n_jobs).engine(rows))
    view = see(passes, parsed)
    chosen, _ = view.select(make_selector(landmarks), m, make_generator(random_state))
    parsed = view.back(view.resolved())
    if factor == "naive":
        return naive_eigh(passes, parsed, chosen, rank)
    return orthonormal_eigh(passes, FACTORS[factor](passes, parsed, chosen, rank))


@one_blas_thread
def best_possible(
    X: RowsLike,
    n_components: int,
    *,
    kernel: KernelLike = "gaussian",
    gamma: GammaLike = "scale",
    degree: int = 3,
    coef0: float = 1,
    norm: str = "fro",
    landmarks: LandmarksLike = "auto",
    confidence: float = 0.95,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
) -> ErrorEstimate:
    """Return the relative error of the exact best approximation of rank r, which no choice of landmarks can beat.

    Compare it with :meth:`nystrom.Nystroem.approximation_error` to see how much of an error is due to the rank, and how
    much to the landmarks.

    Parameters
    ----------
    X : rows
        Any rows.
    n_components : int
        The rank r.
    kernel, gamma, degree, coef0, n_jobs
        As in :class:`nystrom.Nystroem`.
    norm : {"fro", "trace"}
        Norm of the error.
    landmarks : str, array or selector
        How landmarks are chosen for the estimate with more than 2,000 rows.
    confidence : float
        Of the interval.
    random_state : int, Generator, RandomState or None
        Seed.

    Returns
    -------
    ErrorEstimate
        Exact up to 2,000 rows, with an interval for more.

    Notes
    -----
    Cost: O(n³) up to 2,000 rows; for more, two fits of 4r and 8r landmarks (at least 200 and 400) and their errors.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom import Nystroem
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> best = best_possible(X, 10)
    >>> bool(best.value < Nystroem(n_components=10, random_state=0).fit(X).approximation_error(X).value)
    True
    """
    rank = check_count(n_components, "n_components")
    check_choice(norm, "norm", NORMS)
    parsed = make_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0)
    rows = as_blocks(X, objects=parsed.takes_objects)
    passes = Passes(rows, Resources(n_jobs=n_jobs).engine(rows))
    view = see(passes, parsed)
    selector, rng = view.selector(make_selector(landmarks)), make_generator(random_state)
    return best_error(view.passes, view.resolved(), rank, selector, rng, norm=norm, confidence=confidence)
