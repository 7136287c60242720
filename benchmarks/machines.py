"""Checks of the machines' promises, as ratios measured in one run: ``python -m benchmarks.machines [NAME ...]``."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from nystrom import KernelLogisticRegression, KernelRidge, KernelRidgeClassifier, open_rows
from nystrom.engine import LocalEngine, blas_threads
from nystrom.exceptions import ConvergenceWarning
from nystrom.rows import array_rows, as_blocks
from nystrom.solvers.exact import KernelProduct, TiledRows, solve_exactly

Array = np.ndarray


def regression(n: int, p: int = 10) -> tuple[Array, Array]:
    """Return rows of a smooth function with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, np.sin(X[:, :3]).sum(axis=1) + 0.1 * rng.normal(size=n)


def seconds(model: KernelRidge, X: Array, y: Array) -> float:
    """Return the processor time of one fit, all threads together."""
    # Processor time, because wall-clock time on a shared machine includes the load of others.
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


def logistic() -> None:
    """Logistic regression on mnist, 1,000 landmarks and all directions, against scikit-learn on the same features."""
    from sklearn.exceptions import ConvergenceWarning as Unfinished
    from sklearn.linear_model import LogisticRegression

    from nystrom.datasets import load
    from nystrom.solvers.lbfgs import make_problem, minimise
    from nystrom.solvers.losses import Multinomial

    X, y = load("mnist", dtype=np.float32)
    new, target = load("mnist", split="test", dtype=np.float32)
    codes = y.astype(int)
    start = time.perf_counter()
    model = KernelLogisticRegression(100.0, n_landmarks=1000, random_state=0).fit(X, y)
    took = time.perf_counter() - start
    error, loss = 1 - model.score(new, target), log_loss(model.predict_log_proba(new), target)
    print(f"ours: test error {error:.2%}, log-loss {loss:.4f}, objective {model.objective_:.0f}, fit {took:.1f} s")
    features = np.concatenate([model.map_.features(X[i : i + 5000]) for i in range(0, len(X), 5000)])
    linear = LogisticRegression(C=100.0, max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unfinished)
        start = time.perf_counter()
        linear.fit(features, codes)
        theirs = time.perf_counter() - start
    goal = 100 * len(y) * log_loss(linear.predict_log_proba(features.astype(float)), codes)
    goal += (linear.coef_.astype(float) ** 2).sum() / 2
    error = 1 - linear.score(model.map_.features(new), target.astype(int))
    print(f"scikit-learn on our features: test error {error:.2%}, objective {goal:.0f}, {theirs:.1f} s")
    problem = make_problem(
        array_rows(X),
        codes,
        None,
        fitted=model.map_,
        engine=LocalEngine(),
        loss=Multinomial(),
        n_columns=10,
        fit_intercept=True,
    )
    for tol in (1e-2, 1e-3, 1e-4):
        start = time.perf_counter()
        found = minimise(problem, 100.0, tol=tol, max_iter=1000)
        ours = time.perf_counter() - start
        print(f"solver, tol {tol:g}: objective {found.objective:.0f}, {found.n_iter} passes, {ours:.1f} s")
    print(f"the last is {ours / theirs:.2f} of scikit-learn's time")


def file() -> None:
    """Logistic regression of ten classes on 1,000,000 × 30 rows: within 1 GB of a file, from memory, and on Dask."""
    import dask.array as da

    from benchmarks.out_of_core import PeakMemory

    n, rng = 1_000_000, np.random.default_rng(0)
    directions = rng.normal(size=(30, 10))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        X = np.lib.format.open_memmap(path, "w+", np.float32, (n, 30))
        y = np.empty(n, dtype=np.int8)
        for start in range(0, n, 50_000):
            piece = rng.normal(size=(50_000, 30))
            X[start : start + 50_000] = piece
            y[start : start + 50_000] = np.square(piece @ directions + 1).argmax(axis=1)
        del X
        rows = open_rows(path)
        memory = np.load(path)
        sources = {
            "a file": rows,
            "memory": as_blocks(memory, block_rows=rows.block_rows),
            "Dask": da.from_array(memory, chunks=(rows.block_rows, -1)),
        }
        found = {}
        for name, source in sources.items():
            start_time = time.perf_counter()
            model = KernelLogisticRegression(10.0, n_landmarks=500, max_memory="1GB", tol=1e-3, random_state=0)
            with PeakMemory() as peak:
                model.fit(source, y)
            took, added = time.perf_counter() - start_time, peak.added / 1e9
            found[name] = np.vstack([model.landmark_coef_, model.intercept_])
            same = np.array_equal(found[name], found["a file"])
            print(
                f"1,000,000 x 30 from {name}: fit {took:.0f} s, {model.n_iter_} passes of the solver, added "
                f"{added:.2f} GB; {'the same bits' if same else 'OTHER BITS'} as from the file",
                flush=True,
            )


def log_loss(log_probabilities: Array, y: Array) -> float:
    """Return the mean negative log-probability of the true class."""
    return float(-log_probabilities[np.arange(len(y)), y.astype(int)].mean())


if __name__ == "__main__":
    suites = {"path": path, "exact": exact, "mnist": mnist, "logistic": logistic, "file": file}
    for name in sys.argv[1:] or suites:
        suites[name]()
