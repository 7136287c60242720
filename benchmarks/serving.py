"""Latency of predictions one row at a time: ``python -m benchmarks.serving``.

Contestants take turns in one process, so that a busy moment of the machine hits all of them; medians are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem as PeerNystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom.models import to_numpy

N_ROWS, N_COLUMNS, N_LANDMARKS = 20_000, 10, 1_000
CALLS, THREADS = 2_000, 8


def contestants(X: Any, y: Any) -> dict[str, Callable[[Any], Any]]:
    """Return a function from rows to predictions for each contestant, all fitted to the same rows."""
    model = nystrom.KernelRidge(alpha=0.1, n_landmarks=N_LANDMARKS, n_jobs=1, random_state=0).fit(X, y)
    gamma = model.kernel_.gamma
    peer = make_pipeline(PeerNystroem(gamma=gamma, n_components=N_LANDMARKS, random_state=0), Ridge(alpha=0.1)).fit(
        X, y
    )
    parts = to_numpy(model)
    Z, coef, norms = parts["landmarks"], parts["coef"], np.square(parts["landmarks"]).sum(axis=1)

    def by_numpy(rows: Any) -> Any:
        squares = np.square(rows).sum(axis=1)[:, None] - 2 * rows @ Z.T + norms
        return np.exp(-gamma * np.maximum(squares, 0.0)) @ coef

    return {"nystrom": model.predict, "NumPy alone": by_numpy, "scikit-learn": peer.predict}


def latencies(functions: dict[str, Callable[[Any], Any]], X: Any) -> dict[str, Any]:
    """Return the seconds of each call of each contestant, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for i in range(CALLS):
        row = X[i : i + 1]
        for name, function in functions.items():
            began = time.perf_counter()
            function(row)
            taken[name].append(time.perf_counter() - began)
    return {name: np.array(seconds[CALLS // 10 :]) for name, seconds in taken.items()}


def throughput(function: Callable[[Any], Any], X: Any, threads: int) -> float:
    """Return calls of one row per second from several threads."""
    rows = [X[i : i + 1] for i in range(CALLS)]
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        list(pool.map(function, rows))
        return CALLS / (time.perf_counter() - began)


def main() -> None:
    """Print the table, and the figures as JSON."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_COLUMNS))
    functions = contestants(X, np.sin(X[:, 0]) + X[:, 1])
    figures = {}
    for name, seconds in latencies(functions, X).items():
        one, many = (throughput(functions[name], X, threads) for threads in (1, THREADS))
        figures[name] = {
            "median ms": 1e3 * float(np.median(seconds)),
            "99 % ms": 1e3 * float(np.quantile(seconds, 0.99)),
            "calls per second, 1 thread": one,
            f"calls per second, {THREADS} threads": many,
        }
    print(f"| one row, m = {N_LANDMARKS:,}, p = {N_COLUMNS} | " + " | ".join(figures["nystrom"]) + " |")
    print("|---" * 5 + "|")
    for name, row in figures.items():
        print(
            f"| {name} | "
            + " | ".join(f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in row.values())
            + " |"
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
