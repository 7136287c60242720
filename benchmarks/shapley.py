"""Shapley values of ``nystrom.explain`` against ``shap.KernelExplainer``: ``python -m benchmarks.shapley``.

Processor time per row, with 500 landmarks and 50 background rows, in the same process. Up to 11 columns KernelExplainer
examines every subset of the columns, so both are exact; with more it draws subsets, and its error is its distance from
the exact values. It calls ``predict`` of the same machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nystrom


def _per_row(act: Callable[[], Any], rows: int, rounds: int = 3) -> tuple[Any, float]:
    """Return the result, and the least processor time per row."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        found = act()
        times.append((time.process_time() - start) / rows)
    return found, min(times)


def _line(p: int, samples: int) -> str:
    import shap

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, p))
    y = np.sin(X[:, 0] * X[:, 1]) + X[:, 2] * X[:, 3] + 0.1 * rng.normal(size=2000)
    model = nystrom.KernelRidge(alpha=0.1, n_landmarks=500, random_state=0).fit(X, y)
    other, rows = shap.KernelExplainer(model.predict, X[:50]), X[1000:1100]
    ours, own = _per_row(lambda: nystrom.explain(model, rows, X[:50]).values, 100)
    theirs, its = _per_row(lambda: other.shap_values(rows[:2], nsamples=samples, silent=True, l1_reg=0), 2)
    error = np.linalg.norm(theirs - ours[:2]) / np.linalg.norm(ours[:2])
    return f"| {p} | {samples:,} | {error:.1e} | {its / own:.0f} |"


def main() -> None:
    """Print a line for each number of columns and of subsets."""
    print("| columns | subsets | error of KernelExplainer | its time ÷ ours |\n|---|---|---|---|")
    for p, samples in ((5, 30), (8, 254), (11, 2046), (20, 2088), (20, 8000)):
        print(_line(p, samples), flush=True)


if __name__ == "__main__":
    main()
