"""The inputs: real sets if the data home has them, else generated ones of the same shape; and the error."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from nystrom import datasets


def image_like(n: int, p: int, seed: int = 0) -> np.ndarray:
    """Return float32 rows with clusters and a decaying spectrum, non-negative like pixels."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(60, p)).astype(np.float32) * (1 / np.arange(1, 61, dtype=np.float32) ** 0.7)[:, None]
    centres = rng.normal(size=(40, 60)).astype(np.float32)
    out = np.empty((n, p), np.float32)
    for start in range(0, n, 10_000):
        size = min(10_000, n - start)
        scores = centres[rng.integers(40, size=size)] + 0.6 * rng.standard_normal((size, 60), np.float32)
        out[start : start + size] = scores @ basis + 0.05 * rng.standard_normal((size, p), np.float32)
    return np.maximum(out, 0)


def wide_floats(n: int, p: int) -> np.ndarray:
    """Return the rows of :func:`image_like` in float64."""
    return image_like(n, p).astype(np.float64)


def separate_clusters(n: int, p: int, m: int, seed: int = 0) -> np.ndarray:
    """Return float32 rows in m round clusters, whose distances are ten times their width."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((m, p), np.float32)
    return centres[rng.integers(m, size=n)] + np.float32(0.3) * rng.standard_normal((n, p), np.float32)


def random_sparse(n: int, p: int, per_row: int, seed: int = 0) -> Any:
    """Return float32 rows with the given mean number of entries per row, at random positions."""
    rng = np.random.default_rng(seed)
    places = rng.integers(p, size=(n, per_row))
    ends = np.arange(0, n * per_row + 1, per_row)
    X = sp.csr_matrix((rng.random(n * per_row, np.float32), places.ravel(), ends), shape=(n, p))
    X.sum_duplicates()
    return X


def text_like(n: int, p: int, seed: int = 0) -> Any:
    """Return sparse rows of unit length with the word frequencies of text (Zipf), 300 words per row, 30 topics."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, p + 1) ** 1.05
    topics = [rng.permutation(p) for _ in range(30)]
    popular = rng.choice(p, size=(n, 300), p=frequency / frequency.sum())
    columns = np.stack([topics[topic][words] for topic, words in zip(rng.integers(30, size=n), popular, strict=True)])
    mixed = np.where(rng.random((n, 300)) < 0.5, columns, popular)
    X = sp.csr_matrix((np.ones(n * 300, np.float32), mixed.ravel(), np.arange(0, n * 300 + 1, 300)), shape=(n, p))
    X.sum_duplicates()
    scale = 1 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags(scale.astype(np.float32)) @ X)


def mnist() -> tuple[str, np.ndarray]:
    """Return mnist's 60,000 × 784 in float32, or generated rows of its shape."""
    if datasets.is_available("mnist"):
        return "mnist", np.ascontiguousarray(datasets.load("mnist")[0], dtype=np.float32)
    return "mnist-shaped (generated)", image_like(60_000, 784)


def text() -> tuple[str, Any]:
    """Return 5,363 sparse rows of the stand-in for E2006-tfidf, or generated ones of that shape."""
    if datasets.is_available("rfc-tfidf"):
        return "rfc-tfidf (stand-in for E2006-tfidf)", datasets.load("rfc-tfidf")[0][:5363].astype(np.float32)
    return "text-shaped (generated)", text_like(5363, 148_228)


def spread(X: Any) -> float:
    """Return the mean squared distance of the rows to their mean: the paper's c."""
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    squares = float(X.multiply(X).sum()) if sp.issparse(X) else float(np.einsum("ij,ij->", X, X, dtype=np.float64))
    return squares / X.shape[0] - float(mean @ mean)


class FrobeniusJudge:
    """Computes the relative Frobenius error of features on one sample of rows, the same for all contestants.

    Squares on and off the diagonal are averaged separately and weighted by their shares of the n × n entries.
    """

    def __init__(self, X: Any, gamma: float, size: int = 4000, seed: int = 1) -> None:
        self.n = X.shape[0]
        self.rows = np.sort(np.random.default_rng(seed).choice(self.n, size=min(size, self.n), replace=False))
        S = X[self.rows].astype(np.float64)
        products = np.asarray((S @ S.T).todense() if sp.issparse(S) else S @ S.T)
        squares = np.diag(products)
        self.K = np.exp(-gamma * np.maximum(squares[:, None] + squares - 2 * products, 0))
        np.fill_diagonal(self.K, 1.0)

    def _total(self, A: np.ndarray) -> float:
        size, diagonal = len(A), float(np.sum(np.diag(A) ** 2))
        off = float(np.sum(A**2)) - diagonal
        return off * self.n * (self.n - 1) / (size * (size - 1)) + diagonal * self.n / size

    def __call__(self, features: np.ndarray) -> float:
        L = np.asarray(features[self.rows], dtype=np.float64)
        return float(np.sqrt(self._total(self.K - L @ L.T) / self._total(self.K)))


def smooth(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n × 20 normal rows in float64 and a smooth target with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    y = np.sin(X[:, 0] * 2) + X[:, 1] * X[:, 2] + 0.3 * np.cos(3 * X[:, 3]) + 0.1 * rng.normal(size=n)
    return X, y
