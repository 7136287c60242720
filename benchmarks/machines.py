"""What the machines promise, as ratios measured in one run: ``python benchmarks/machines.py [path|exact|mnist]``."""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np

from nystrom import KernelRidge, KernelRidgeClassifier
from nystrom.engine import LocalEngine, blas_threads
from nystrom.exceptions import ConvergenceWarning
from nystrom.solvers.exact import KernelProduct, TiledRows, solve_exactly

Array = np.ndarray


def regression(n: int, p: int = 10) -> tuple[Array, Array]:
    """Return rows of a smooth function with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, np.sin(X[:, :3]).sum(axis=1) + 0.1 * rng.normal(size=n)


def seconds(model: KernelRidge, X: Array, y: Array) -> float:
    """Return the processor time of one fit, all threads together."""
    # Of the processor: on a machine that others use too, the clock would measure them.
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def path() -> None:
    """A path of 100 values by leave-one-out against a single fit: n = 20,000, m = 500; the median of five pairs."""
    X, y = regression(20_000)
    common = {"n_landmarks": 500, "random_state": 0, "n_jobs": 1}
    one = KernelRidge(1.0, **common)
    many = KernelRidge(np.geomspace(1e-4, 1e4, 100), selection="loo", **common)
    with blas_threads(1):
        one.fit(X, y)
        pairs = [(seconds(one, X, y), seconds(many, X, y)) for _ in range(5)]
    ratio = np.median([b / a for a, b in pairs])
    print(f"alpha path: single fit {pairs[0][0]:.2f} s, 100 values {pairs[0][1]:.2f} s, median ratio {ratio:.2f}")


def exact() -> None:
    """Steps to a relative residual of 1e-8 with and without the factor, n = 20,000, and the peak memory."""
    X, y = regression(20_000, 5)
    alpha = 0.1
    model = KernelRidge(alpha, solver="exact", n_landmarks=1000, random_state=0)
    start = time.perf_counter()
    model.fit(X, y)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"exact: {model.n_iter_} steps to {model.residuals_[-1]:.1e} in {took:.0f} s, peak {peak:.2f} GiB", flush=True
    )
    tiles = TiledRows(model.training_rows_)
    product = KernelProduct(tiles, model.kernel_, LocalEngine())
    limit = 3 * model.n_iter_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = solve_exactly(product, y[:, None], alpha, fitted=None, rows=tiles, tol=1e-8, max_iter=limit)
    print(f"plain conjugate gradients: residual {plain.residuals[-1]:.1e} after {len(plain.residuals) - 1} steps")


def mnist() -> None:
    """Test error on mnist with 1,000 landmarks and default parameters."""
    from nystrom.datasets import load

    X, y = load("mnist", dtype=np.float32)
    new, target = load("mnist", split="test", dtype=np.float32)
    start = time.perf_counter()
    model = KernelRidgeClassifier(n_landmarks=1000, random_state=0).fit(X, y)
    took = time.perf_counter() - start
    print(f"mnist: test error {1 - model.score(new, target):.2%}, fit {took:.0f} s, alpha {model.alpha_:.3g}")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["path", "exact", "mnist"]
    for name in wanted:
        {"path": path, "exact": exact, "mnist": mnist}[name]()
