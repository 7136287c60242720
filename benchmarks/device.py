"""Features, ridge and predictions on a device, against NumPy and Falkon: ``python -m benchmarks device --device cuda``.

Prints one table. ``--rows`` sets its size; m = 10,000 is left out below 40,000 rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nystrom import KernelRidge, Nystroem

COLUMNS = 100
GAMMA = 0.5 / COLUMNS
LANDMARKS = (1_000, 10_000)


def rows_of(n: int) -> tuple[Any, Any]:
    """Return rows in float32 and a smooth target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS)).astype(np.float32)
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def ridge(m: int, engine: str, **options: Any) -> KernelRidge:
    options = {"solver": "factor", "landmarks": "uniform", "n_landmarks": m} | options
    return KernelRidge(alpha=1.0, gamma=GAMMA, random_state=0, engine=engine, **options)


def cases(n: int) -> Iterator[tuple[str, Callable[[str], Callable[[], Any]]]]:
    """Yield each case with a function that takes an engine and returns the call to time."""
    X, y = rows_of(n)
    features = {"gamma": GAMMA, "n_components": 500, "n_landmarks": 1_000, "landmarks": "uniform", "random_state": 0}
    yield f"features, n={n:,}, m=1,000", lambda engine: lambda: Nystroem(engine=engine, **features).fit_transform(X)
    for m in LANDMARKS:
        if 4 * m <= n:
            yield f"ridge, n={n:,}, m={m:,}", lambda engine, m=m: lambda: ridge(m, engine).fit(X, y)
    yield f"exact ridge, n={n:,}", lambda engine: lambda: ridge(1_000, engine, solver="exact", tol=1e-3).fit(X, y)

    def predict(engine: str) -> Callable[[], Any]:
        model = ridge(1_000, engine).fit(X, y)
        return lambda: model.predict(X)

    yield f"predict, n={n:,}, m=1,000", predict


def falkon_seconds(n: int, m: int, repeat: int) -> float | None:
    """Return the seconds of Falkon's fit, or None if it is not installed."""
    try:
        import falkon
        import torch
    except ImportError:
        return None
    X, y = (torch.from_numpy(np.asarray(each, np.float32)) for each in rows_of(n))
    kernel = falkon.kernels.GaussianKernel(sigma=float(np.sqrt(0.5 / GAMMA)))
    return best(lambda: falkon.Falkon(kernel=kernel, penalty=1.0 / n, M=m, seed=0).fit(X, y[:, None]), repeat)


def best(run: Callable[[], Any], repeat: int) -> float:
    def once() -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    return min(once() for _ in range(repeat))


def main(device: str, n: int, repeat: int) -> None:
    """Print the table of seconds, the best of several rounds."""
    print(f"| case | NumPy, s | torch on {device}, s | ratio | Falkon, s |\n|---|---|---|---|---|")
    for name, make in cases(n):
        runs = {engine: make(engine) for engine in ("local", f"torch:{device}")}
        seconds = {engine: best(run, repeat) for engine, run in runs.items()}
        here, there = seconds.values()
        m = next((m for m in LANDMARKS if name == f"ridge, n={n:,}, m={m:,}"), None)
        peer = None if m is None else falkon_seconds(n, m, repeat)
        print(f"| {name} | {here:.3g} | {there:.3g} | {there / here:.2f} | {'' if peer is None else f'{peer:.3g}'} |")
