"""The peers, each used according to its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.cluster import KMeans
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import rbf_kernel

from nystrom.engine.threads import blas_threads
from nystrom.kernels import Gaussian
from nystrom.linalg import cholesky_in_place


def sklearn_uniform(X: Any, m: int, gamma: float, seed: int = 0) -> np.ndarray:
    """scikit-learn's Nystroem: uniform landmarks, rank m."""
    return Nystroem(gamma=gamma, n_components=m, random_state=seed).fit_transform(X)


def sklearn_kmeans(X: Any, m: int) -> np.ndarray:
    """Centres of scikit-learn's KMeans on the full rows, with the paper's ten iterations."""
    return KMeans(m, max_iter=10, n_init=1, random_state=0).fit(X).cluster_centers_


def clustered(X: Any, m: int, gamma: float) -> np.ndarray:
    """scikit-learn's Nystroem fed with KMeans centres: the usual way to write Clustered Nyström today."""
    model = Nystroem(gamma=gamma, n_components=m, random_state=0).fit(sklearn_kmeans(X, m))
    return model.transform(X)


def features_of(X: Any, Z: np.ndarray, rank: int, gamma: float) -> np.ndarray:
    """The best rank-r features for given landmarks, in float64 by the paper's formula: used to judge landmarks."""
    C = rbf_kernel(X.astype(np.float64), Z.astype(np.float64), gamma=gamma)
    W = rbf_kernel(Z.astype(np.float64), gamma=gamma)
    values, V = np.linalg.eigh(W)
    kept = values > 1e-10 * values[-1]
    B = C @ (V[:, kept] / np.sqrt(values[kept]))
    return B @ np.linalg.eigh(B.T @ B)[1][:, ::-1][:, :rank]


def pivoted_cholesky(X: np.ndarray, m: int, gamma: float) -> np.ndarray:
    """Randomly pivoted Cholesky after the pseudocode of Chen, Epperly, Tropp and Webber: one pivot at a time."""
    rng = np.random.default_rng(0)
    n = X.shape[0]
    left = np.ones(n)
    F = np.zeros((n, m), dtype=X.dtype)
    squares = np.einsum("ij,ij->i", X, X)
    for i in range(m):
        pivot = rng.choice(n, p=left / left.sum())
        g = np.exp(-gamma * np.maximum(squares + squares[pivot] - 2 * (X @ X[pivot]), 0))
        g -= F[:, :i] @ F[pivot, :i]
        F[:, i] = g / np.sqrt(g[pivot])
        left = np.maximum(left - F[:, i] ** 2, 0)
    return F


def faiss_kmeans() -> Callable[[np.ndarray, int], np.ndarray] | None:
    """Return faiss's k-means on all rows with ten iterations, or None if faiss is not installed."""
    try:
        import faiss
    except ImportError:
        return None

    def run(X: np.ndarray, m: int) -> np.ndarray:
        # Cluster all rows, as the others do: by default faiss uses only 256 rows per centre.
        found = faiss.Kmeans(X.shape[1], m, niter=10, seed=1, max_points_per_centroid=X.shape[0])
        found.train(np.ascontiguousarray(X, dtype=np.float32))
        return np.asarray(found.centroids)

    return run


def cholesky_ridge(X: np.ndarray, y: np.ndarray, gamma: float, alpha: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the predictions of exact kernel ridge by a Cholesky factor of K, formed whole in float64.

    In blocks, on all threads: with two threads, SciPy's cho_factor and solve crash with a segmentation fault from about
    16,000 rows, and are slower below.
    """
    kernel = Gaussian(gamma)
    K = np.asfortranarray(kernel(X, X).T)
    K[np.diag_indices(len(X))] += alpha
    with blas_threads(1):
        cholesky_in_place(K)
        half = solve_triangular(K, y, trans="T", check_finite=False)
        dual = solve_triangular(K, half, check_finite=False)
    return lambda new: kernel(new, X) @ dual
