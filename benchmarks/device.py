"""Features, ridge and predictions on a device, against NumPy and Falkon: ``python -m benchmarks device --device cuda``.

Prints one table, and stores it with ``--store``. ``--rows`` sets its size; m = 10,000 is left out below 40,000 rows.
``--quick`` takes a tenth of the rows and of the landmarks. Times are the best of several rounds: seconds, or for the
processor itself its time over all threads, which other work disturbs less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import records
from nystrom import KernelRidge, Nystroem

COLUMNS = 100
GAMMA = 0.5 / COLUMNS
LANDMARKS = (1_000, 10_000)
QUICK = 10


def rows_of(n: int) -> tuple[Any, Any]:
    """Return rows in float32 and a smooth target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS)).astype(np.float32)
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def ridge(m: int, engine: str, **options: Any) -> KernelRidge:
    options = {"solver": "factor", "landmarks": "uniform", "n_landmarks": m} | options
    return KernelRidge(alpha=1.0, gamma=GAMMA, random_state=0, engine=engine, **options)


def cases(n: int, landmarks: tuple[int, ...]) -> Iterator[tuple[str, Callable[[str], Callable[[], Any]]]]:
    """Yield each case with a function that takes an engine and returns the call to time."""
    (X, y), few = rows_of(n), landmarks[0]
    features = {"gamma": GAMMA, "n_components": few // 2, "n_landmarks": few, "landmarks": "uniform", "random_state": 0}
    yield f"features, n={n:,}, m={few:,}", lambda engine: lambda: Nystroem(engine=engine, **features).fit_transform(X)
    for m in landmarks:
        if 4 * m <= n:
            yield f"ridge, n={n:,}, m={m:,}", lambda engine, m=m: lambda: ridge(m, engine).fit(X, y)
    yield f"exact ridge, n={n:,}", lambda engine: lambda: ridge(few, engine, solver="exact", tol=1e-3).fit(X, y)

    def predict(engine: str) -> Callable[[], Any]:
        model = ridge(few, engine).fit(X, y)
        return lambda: model.predict(X)

    yield f"predict, n={n:,}, m={few:,}", predict


def falkon(n: int, m: int) -> Callable[[], Any] | None:
    """Return Falkon's fit, or None if it is not installed."""
    try:
        import falkon
        import torch
    except ImportError:
        return None
    X, y = (torch.from_numpy(np.asarray(each, np.float32)) for each in rows_of(n))
    kernel = falkon.kernels.GaussianKernel(sigma=float(np.sqrt(0.5 / GAMMA)))
    return lambda: falkon.Falkon(kernel=kernel, penalty=1.0 / n, M=m, seed=0).fit(X, y[:, None])


def best(runs: dict[str, Callable[[], Any]], repeat: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the least time of each run, taken in turn."""
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(repeat):
        for name, run in runs.items():
            began = clock()
            run()
            found[name] = min(found[name], clock() - began)
    return found


def main(device: str, n: int, repeat: int, *, quick: bool) -> list[dict[str, Any]]:
    """Print the table, and return its records."""
    scale = QUICK if quick else 1
    n, landmarks = n // scale, tuple(m // scale for m in LANDMARKS)
    clock = time.process_time if device == "cpu" else time.perf_counter
    found = []
    for name, make in cases(n, landmarks):
        runs = {"NumPy": make("local"), f"torch on {device}": make(f"torch:{device}")}
        m = next((m for m in landmarks if name == f"ridge, n={n:,}, m={m:,}"), None)
        peer = None if m is None else falkon(n, m)
        if peer is not None:
            runs["Falkon"] = peer
        seconds = best(runs, repeat, clock)
        here, there, *_ = seconds.values()
        times = {f"{key}, s": float(f"{value:.3g}") for key, value in seconds.items()}
        found.append({"case": name, **times, f"torch on {device} ÷ NumPy": round(there / here, 2)})
    print(records.table(found, origin=False), flush=True)
    return found
