"""The paper's claims on small matrices: its toy example, counterexamples to "always", the formula without y."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nystrom.types import Array
from reproduction.paper_algorithms import optimal_as_written, standard_as_written

TOY_KERNEL = np.array([[1.0, 0.0, 10.0], [0.0, 1.01, 0.0], [10.0, 0.0, 100.0]])

# Rows (2,0,0), (0,1,0), (3,0,5), (0,4,0) under the linear kernel, the first two as landmarks, r = 1. Algorithm 2
# keeps the second axis, which explains most of G; but the difference between K and G lies along the first.
COUNTEREXAMPLE = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 0.0, 5.0], [0.0, 4.0, 0.0]])


@dataclass(frozen=True)
class Pair:
    """The errors of the standard method, the optimal method and the SVD in one norm."""

    standard: float
    optimal: float
    svd: float


def compare(K: Array, landmarks: list[int], rank: int) -> dict[str, Pair]:
    """Return ‖K − L Lᵀ‖ / ‖K‖ of both methods for landmarks that are rows, by norm: "fro", "spectral", "trace".

    Examples
    --------
    >>> pair = compare(TOY_KERNEL, [0, 1], 1)["fro"]
    >>> round(pair.standard, 4), round(pair.optimal, 4)
    (1.0, 0.01)
    """
    C, W = K[:, landmarks], K[np.ix_(landmarks, landmarks)]
    values, vectors = np.linalg.eigh(K)
    best = vectors[:, -rank:] * np.sqrt(values[-rank:])
    factors = [standard_as_written(C, W, rank), optimal_as_written(C, W, rank), best]
    found = {}
    for name, order in (("fro", "fro"), ("spectral", 2), ("trace", "nuc")):
        whole = _norm(K, order)
        found[name] = Pair(*(_norm(K - L @ L.T, order) / whole for L in factors))
    return found


def _norm(A: Array, order: Any) -> float:
    return float(np.linalg.norm(A, order))


def toy_rows() -> list[dict[str, Any]]:
    """Return the rows of Section 4.1: the toy example and the counterexample, in three norms."""
    cases = (("toy", TOY_KERNEL), ("counterexample", COUNTEREXAMPLE @ COUNTEREXAMPLE.T))
    rows = []
    for study, K in cases:
        for norm, pair in compare(K, [0, 1], 1).items():
            for method in ("standard", "optimal", "svd"):
                rows.append(
                    {"study": study, "method": method, "norm": norm, "error": getattr(pair, method), "m": 2, "r": 1}
                )
    return rows


def dual_gap(n: int = 200, *, ridge: float = 0.25, random_state: int = 0) -> tuple[tuple[int, ...], float]:
    """Return the shape of the paper's α̂ as printed, and how far the formula with y is from solving the system.

    The paper prints λ⁻¹(I − L(LᵀL + λI)⁻¹Lᵀ), which is an n × n matrix; α̂ is that matrix times y.

    Examples
    --------
    >>> shape, gap = dual_gap(50)
    >>> shape, gap < 1e-10
    ((50, 50), True)
    """
    rng = np.random.default_rng(random_state)
    L, y = rng.standard_normal((n, 7)), rng.standard_normal(n)
    printed = (np.eye(n) - L @ np.linalg.solve(L.T @ L + ridge * np.eye(7), L.T)) / ridge
    exact = np.linalg.solve(L @ L.T + ridge * np.eye(n), y)
    return printed.shape, float(np.linalg.norm(printed @ y - exact) / np.linalg.norm(exact))


@cache
def trace_norm_never_breached(trials: int = 200, *, random_state: int = 0) -> bool:
    """Return whether optimal ≤ standard in trace norm on random small kernels; this is a theorem, so it should hold."""
    rng = np.random.default_rng(random_state)
    for _ in range(trials):
        X = rng.integers(-3, 4, size=(5, 4)).astype(float)
        if np.linalg.matrix_rank(X[:2]) < 2:
            continue
        pair = compare(X @ X.T, [0, 1], 1)["trace"]
        if pair.optimal > pair.standard * (1 + 1e-9) + 1e-12:
            return False
    return True
