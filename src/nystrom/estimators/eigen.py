"""Eigenvalues and eigenvectors of a kernel matrix that is never formed."""

from __future__ import annotations

from nystrom.engine import make_engine
from nystrom.engine.survey import Survey
from nystrom.estimators.base import resolve_sizes
from nystrom.factor import FACTORS, naive_eigh, orthonormal_eigh
from nystrom.generator import RandomState, make_generator
from nystrom.kernels import GammaLike, KernelLike, make_kernel
from nystrom.landmarks import LandmarksLike, make_selector
from nystrom.landmarks.base import resolve
from nystrom.rows import as_blocks
from nystrom.threads import within_n_jobs
from nystrom.types import Array, Emitted, RowsLike


@within_n_jobs
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
        How many eigenvalues; fewer come back where the numerical rank is lower.
    kernel, gamma, degree, coef0, n_landmarks, landmarks, n_jobs, random_state
        As in :class:`nystrom.Nystroem`.
    factor : {"optimal", "standard", "naive"}
        Which estimate.

    Returns
    -------
    eigenvalues : array of shape (r,)
        Descending.
    eigenvectors : array of shape (n, r)
        In float64; a lazy Dask array in the chunks of X where X is a Dask collection.

    Notes
    -----
    Cost: O(n m (p + m)) time, O(n r + m²) memory. On a cluster two more passes make the eigenvectors orthonormal.

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
    rows = as_blocks(X)
    rank, m = resolve_sizes(n_components, n_landmarks, rows.shape[0])
    if rank is None:
        raise ValueError("n_components must be a whole number of at least 1; got None.")
    parsed = make_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0)
    survey = Survey(rows, make_engine(rows, n_jobs))
    chosen = make_selector(landmarks).select(survey, m, parsed, make_generator(random_state))
    parsed = resolve(parsed, survey)
    if factor == "naive":
        return naive_eigh(survey, parsed, chosen, rank)
    return orthonormal_eigh(survey, FACTORS[factor](survey, parsed, chosen, rank))
