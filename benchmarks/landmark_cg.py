"""Many landmarks and exact answers: conjugate gradients against the closed form and a plain Falkon.

``python -m benchmarks.landmark_cg [many] [few] [huge] [exact-100k] [falkon]``; each prints one table. Memory
is the peak that a contestant adds, each in its own process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.linalg

from benchmarks.measure import _peak, _reset_peak, touch_memory
from nystrom import KernelRidge, plan, select_landmarks
from nystrom.engine.threads import resolve_n_jobs
from nystrom.kernels import Gaussian
from nystrom.planning import calibrate
from nystrom.rows import array_rows
from nystrom.solvers.ridge import STEPS

Array = np.ndarray
GAMMA, ALPHA = 0.05, 0.01
# Bytes of memory to touch before a contestant runs: about as much as the largest one uses.
_TOUCHED = 5 * 2**30


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


def falkon_itself(X: Array, y: Array, X_test: Array, y_test: Array, m: int, dtype: str) -> dict[str, float | str]:
    """Fit with Falkon in the Python that FALKON_PYTHON names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=X, y=y, X_test=X_test, y_test=y_test)
        peer = Path(__file__).with_name("falkon_peer.py")
        command = [os.environ["FALKON_PYTHON"], str(peer), str(path), str(m), dtype, str(GAMMA), str(ALPHA)]
        found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        return {
            "seconds": np.nan,
            "processor": np.nan,
            "MB": np.nan,
            "rmse": np.nan,
            "note": found.stderr.strip().splitlines()[-1][:80],
        }
    return json.loads(found.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def one(name: str, n: int, m: int, p: int = 10) -> dict[str, float | str]:
    """Fit once and return seconds, added memory, test error and steps."""
    dtype = "float64" if name.startswith("exact") else "float32"
    X, y, X_test, y_test = rows(n, p, dtype)
    if name.startswith("falkon "):
        touch_memory(_TOUCHED)
        return {"name": name, **falkon_itself(X, y, X_test, y_test, m, name.split()[1])}
    common = {"gamma": GAMMA, "n_landmarks": m, "random_state": 0}
    note = ""
    touch_memory(_TOUCHED)
    before = _reset_peak()
    start, began = time.perf_counter(), time.process_time()
    if name == "falkon":
        Z = X[np.random.default_rng(0).choice(n, m, replace=False)]
        coefficients = plain_falkon(X, y, Z, ALPHA, 20)
        predict = lambda new: Gaussian(GAMMA)(new.astype(np.float64), Z.astype(np.float64)) @ coefficients  # noqa: E731
    else:
        settings = {
            "factor": {"solver": "factor"},
            "cg": {"solver": "cg", "tol": 1e-5, "max_memory": "1.2GB" if m < 10_000 else "5GB"},
            "cg held": {"solver": "cg", "tol": 1e-5},
            "cg uniform": {"solver": "cg", "tol": 1e-5, "landmarks": "uniform"},
            "exact 4GB": {"solver": "exact", "max_memory": "4GB"},
        }[name]
        model = KernelRidge(0.1 if name.startswith("exact") else ALPHA, **{**common, **settings}).fit(X, y)
        note = "" if name == "factor" else f"{model.n_iter_} steps to {model.residuals_[-1]:.0e}"
        predict = model.predict
    took, processor = time.perf_counter() - start, time.process_time() - began
    added = _peak() - before
    error = float(np.sqrt(np.mean((predict(X_test) - y_test) ** 2)))
    return {"name": name, "seconds": took, "processor": processor, "MB": added, "rmse": error, "note": note}


def huge(n: int, m: int) -> None:
    """Fit once within 5 GB with many landmarks, and print the plan and the measurements.

    Seconds are wall-clock time and processor time of both threads, which other load does not increase.
    """
    X, y, X_test, y_test = rows(n)
    n_jobs = resolve_n_jobs(None)
    shape = {"dtype": X.dtype, "solver": "cg", "block_rows": array_rows(X).block_rows, "n_jobs": n_jobs}
    planned, used = (
        plan(n, 10, m, dtype=X.dtype, solver="cg", calibration=calibrate(10, m, clock=clock, **shape))
        for clock in (time.perf_counter, time.process_time)
    )
    before = _reset_peak()
    start, began = time.perf_counter(), time.process_time()
    Z = select_landmarks(X, m, gamma=GAMMA, random_state=0).points
    choosing = time.process_time() - began
    model = KernelRidge(ALPHA, gamma=GAMMA, landmarks=Z, max_memory="5GB", solver="cg", tol=1e-5).fit(X, y)
    took, processor, peak = time.perf_counter() - start, time.process_time() - began, _peak()
    error = float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)))
    stages = {stage.name: stage.seconds for stage in used.stages}
    selection, one_step = stages["cluster the sample"], stages[f"{STEPS} steps"] / STEPS
    megabytes = planned.memory / 2**20
    print(f"\n**n = {n:,}, p = 10, float32, m = {m:,}, within 5 GB; {before:.0f} MB of it before the fit**\n")
    print("| | seconds | processor | of it: landmarks | peak MB | steps | test RMSE |\n|---|---|---|---|---|---|---|")
    steps = f"{STEPS} of {one_step:.1f} s processor"
    print(f"| plan | {planned.seconds:.0f} | {used.seconds:.0f} | {selection:.1f} | {megabytes:.0f} | {steps} | |")
    steps = f"{model.n_iter_} to {model.residuals_[-1]:.0e}"
    print(f"| fit | {took:.0f} | {processor:.0f} | {choosing:.1f} | {peak:.0f} | {steps} | {error:.4f} |")
    ratios = f"{took / planned.seconds:.2f} | {processor / used.seconds:.2f} | | {peak / megabytes:.2f}"
    print(f"| fit / plan | {ratios} | | |", flush=True)


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
    print(f"\n**{title}**\n\n| solver | seconds | ÷ first | processor | ÷ first | added MB | ÷ first | test RMSE | |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        row = best[name]
        measured = " | ".join(
            f"{row[key]:.{digits}f} | {row[key] / first[key]:.2f}"  # type: ignore[operator]
            for key, digits in (("seconds", 1), ("processor", 1), ("MB", 0))
        )
        print(f"| {name} | {measured} | {row['rmse']:.4f} | {row['note']} |", flush=True)


def main(wanted: list[str]) -> None:
    """Run the contests named, or all."""
    n = 100_000
    falkons = ["falkon float32", "falkon float64"] if "FALKON_PYTHON" in os.environ else ["falkon"]
    contests = {
        "few": lambda: contest(
            "n = 100,000, p = 10, float32, m = 1,000", ["factor", "cg", "cg held"], n, 1000, repeat=3
        ),
        "many": lambda: contest("n = 100,000, p = 10, float32, m = 6,000", ["factor", "cg", "cg held"], n, 6000),
        "huge": lambda: huge(5 * n, 20_000),
        "exact-100k": lambda: contest("exact, n = 100,000, p = 5, λ = 0.1, residual 1e-8", ["exact 4GB"], n, 1000, 5),
        "falkon": lambda: [
            contest(f"Falkon, n = 100,000, p = 10, m = {m:,}", [*falkons, "cg held", "cg uniform"], n, m)
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
