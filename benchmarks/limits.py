"""The peak rates of the machine, measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

FLOP_BOUND = "limit: all flops at peak GEMM rate"


def _best(run, repeat: int = 5) -> float:  # type: ignore[no-untyped-def]
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def gemm_rate(dtype: type, size: int = 3000) -> float:
    """Return the peak rate of a matrix product in GF/s, all threads."""
    A = np.random.default_rng(0).normal(size=(size, size)).astype(dtype)
    return 2 * size**3 / _best(lambda: A @ A) / 1e9


@contextmanager
def reader(X: np.ndarray, threads: int) -> Iterator[Callable[[], object]]:
    """Yield a function that reads X once, one dot product per thread; BLAS has one thread meanwhile."""
    pieces = np.array_split(X.reshape(-1), threads)
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        yield lambda: wait([pool.submit(np.dot, part, part) for part in pieces])


def kernel_product(X: np.ndarray, m: int) -> float:
    """Return the seconds of ``X @ Z.T`` alone."""
    Z = np.ascontiguousarray(X[:m])
    return _best(lambda: X @ Z.T, repeat=3)


def fit_flops(n: int, p: int, m: int, r: int) -> float:
    """Return the operations that a fit cannot avoid: k(X, Z), half its Gram matrix, and the features."""
    return 2.0 * n * p * m + 1.0 * n * m * m + 2.0 * n * m * r
