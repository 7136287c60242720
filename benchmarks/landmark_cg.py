"""Many landmarks and exact answers: conjugate gradients against the closed form, a plain Falkon and a dense solve.

``python -m benchmarks.landmark_cg [many] [few] [huge] [exact] [falkon]``; each prints one table. Memory is the peak
that a contestant adds, each in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings

import numpy as np
import scipy.linalg

from benchmarks.measure import _peak, _reset_peak
from nystrom import KernelRidge
from nystrom.kernels import Gaussian

Array = np.ndarray
GAMMA, ALPHA = 0.05, 0.01


def rows(n: int, p: int = 10, dtype: str = "float32") -> tuple[Array, Array, Array, Array]:
    """Return training and test rows of a function with interactions and noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + 10_000, p)).astype(dtype)
    y = np.sin(X[:, 0]) * X[:, 1] + np.cos(X[:, 2] * X[:, 3]) + 0.1 * rng.normal(size=len(X))
    return X[:n], y[:n], X[n:], y[n:]


def plain_falkon(X: Array, y: Array, Z: Array, alpha: float, steps: int, tile: int = 2000) -> Array:
    """Return landmark coefficients by the algorithm of Rudi, Carratino and Rosasco (2017), as written, in float64."""
    kernel = Gaussian(GAMMA)
    n, m = len(X), len(Z)
    Z = Z.astype(np.float64)
    T = scipy.linalg.cholesky(kernel(Z, Z) + 1e-12 * m * np.eye(m))
    A = scipy.linalg.cholesky(T @ T.T / m + alpha / n * np.eye(m))

    def solve(R: Array, v: Array, trans: int) -> Array:
        return scipy.linalg.solve_triangular(R, v, trans=trans)

    def both(v: Array, add: Array | None) -> Array:
        out = np.zeros(m)
        for start in range(0, n, tile):
            C = kernel(X[start : start + tile].astype(np.float64), Z)
            out += C.T @ (C @ v if add is None else add[start : start + tile])
        return out

    def product(beta: Array) -> Array:
        inner = solve(A, beta, 0)
        fitted = solve(T, both(solve(T, inner, 0), None) / n, 1)
        return solve(A, fitted + alpha / n * inner, 1)

    right = solve(A, solve(T, both(np.zeros(m), y) / n, 1), 1)
    beta, residual = np.zeros(m), right.copy()
    direction, old = residual.copy(), residual @ residual
    for _ in range(steps):
        curved = product(direction)
        size = old / (direction @ curved)
        beta += size * direction
        residual -= size * curved
        new = residual @ residual
        direction, old = residual + new / old * direction, new
    return solve(T, solve(A, beta, 0), 0)


def one(name: str, n: int, m: int, p: int = 10) -> dict[str, float | str]:
    """Fit once and return seconds, added memory, test error and steps."""
    dtype = "float64" if name.startswith(("dense", "exact")) else "float32"
    X, y, X_test, y_test = rows(n, p, dtype)
    common = {"gamma": GAMMA, "n_landmarks": m, "random_state": 0}
    note = ""
    before = _reset_peak()
    start = time.perf_counter()
    if name == "dense":
        K = Gaussian(GAMMA)(X, X)
        K[np.diag_indices(n)] += 0.1
        # What solve(assume_a="pos") does. Both end in a segmentation fault from about 16,000 rows on (SciPy 1.17.1).
        dual = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K, overwrite_a=True, check_finite=False), y)
        del K
        predict = lambda new: Gaussian(GAMMA)(new, X) @ dual  # noqa: E731
    elif name == "falkon":
        Z = X[np.random.default_rng(0).choice(n, m, replace=False)]
        coefficients = plain_falkon(X, y, Z, ALPHA, 20)
        predict = lambda new: Gaussian(GAMMA)(new.astype(np.float64), Z.astype(np.float64)) @ coefficients  # noqa: E731
    else:
        settings = {
            "factor": {"solver": "factor"},
            "cg": {"solver": "cg", "tol": 1e-5, "max_memory": "1.2GB" if m < 10_000 else "5GB"},
            "cg held": {"solver": "cg", "tol": 1e-5},
            "exact 4GB": {"solver": "exact", "max_memory": "4GB"},
            "exact 1GB": {"solver": "exact", "max_memory": "1GB"},
        }[name]
        model = KernelRidge(0.1 if name.startswith("exact") else ALPHA, **{**common, **settings}).fit(X, y)
        note = "" if name == "factor" else f"{model.n_iter_} steps to {model.residuals_[-1]:.0e}"
        predict = model.predict
    took = time.perf_counter() - start
    added = _peak() - before
    error = float(np.sqrt(np.mean((predict(X_test) - y_test) ** 2)))
    return {"name": name, "seconds": took, "MB": added, "rmse": error, "note": note}


def contest(title: str, names: list[str], n: int, m: int, p: int = 10, repeat: int = 1) -> None:
    """Run each contestant in its own process, in turn, and print the best of each."""
    best: dict[str, dict[str, float | str]] = {}
    for _ in range(repeat):
        for name in names:
            command = [sys.executable, "-m", "benchmarks.landmark_cg", "--one", name, str(n), str(m), str(p)]
            found = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
            if name not in best or found["seconds"] < best[name]["seconds"]:
                best[name] = found
    first = best[names[0]]
    print(f"\n**{title}**\n\n| solver | seconds | ÷ first | added MB | ÷ first | test RMSE | |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        row = best[name]
        time_ratio, memory_ratio = row["seconds"] / first["seconds"], row["MB"] / first["MB"]  # type: ignore[operator]
        print(
            f"| {name} | {row['seconds']:.1f} | {time_ratio:.2f} | {row['MB']:.0f} | {memory_ratio:.2f} "
            f"| {row['rmse']:.4f} | {row['note']} |",
            flush=True,
        )


def main(wanted: list[str]) -> None:
    """Run the contests named, or all."""
    n = 100_000
    contests = {
        "few": lambda: contest(
            "n = 100,000, p = 10, float32, m = 1,000", ["factor", "cg", "cg held"], n, 1000, repeat=3
        ),
        "many": lambda: contest("n = 100,000, p = 10, float32, m = 6,000", ["factor", "cg", "cg held"], n, 6000),
        "huge": lambda: contest("n = 500,000, p = 10, float32, m = 20,000", ["cg"], 5 * n, 20_000),
        "exact": lambda: contest(
            "exact, n = 12,000, p = 5, λ = 0.1, residual 1e-8", ["dense", "exact 4GB", "exact 1GB"], 12_000, 1000, 5
        ),
        "falkon": lambda: [
            contest(f"Falkon as written, n = 100,000, p = 10, m = {m:,}", ["falkon", "cg held"], n, m)
            for m in (1000, 4000, 10_000)
        ],
    }
    for name in wanted or contests:
        contests[name]()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main(sys.argv[1:])
