"""Whether ``Nystroem(tol=…)`` keeps its word: ``python -m benchmarks.tolerance [--runs N] [--rows N]``.

Five kinds of rows and three tolerances, each with other rows and seeds per run: how often the exact error is below the
tolerance, how many landmarks more than the smallest size of a fine grid that suffices, and how much more processor time
than the fit that knew the size.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.coverage import CASES
from nystrom import Nystroem
from nystrom.types import Matrix

TOLERANCES = (0.1, 0.05, 0.02)
NAMES = ("wide", "heavy tails", "clusters", "polynomial", "laplacian")


def smallest(X: Matrix, tol: float, params: dict[str, Any], found: int, seed: int) -> int:
    """Return the smallest size of a grid of steps of 5 % that suffices, looked for below and above ``found``."""

    def suffices(m: int) -> bool:
        fitted = Nystroem(n_components=None, n_landmarks=m, random_state=seed, **params).fit(X)
        return fitted.approximation_error(X, exact=True).value <= tol

    size = found
    while size > 1 and suffices(max(int(size / 1.05), 1)):
        size = min(max(int(size / 1.05), 1), size - 1)
    while not suffices(size):
        size = max(int(size * 1.05), size + 1)
    return size


def seconds(machine: Nystroem, X: Matrix) -> float:
    best = np.inf
    for _ in range(2):
        start = time.process_time()
        machine.fit(X)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs per kind of rows and tolerance")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--no-grid", action="store_true", help="leave out the search of the smallest size")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| rows | tol | held | landmarks | ÷ smallest | processor time ÷ the fit that knew |\n|---|---|---|---|---|---|"
    )
    total = held = 0
    for name in NAMES:
        case = CASES[name]
        for tol in TOLERANCES:
            kept, sizes, ratios, times = 0, [], [], []
            for seed in range(given.runs):
                X = case.rows(given.rows, np.random.default_rng(seed))
                features = Nystroem(tol=tol, random_state=seed, **case.params)
                took = seconds(features, X)
                m = len(features.landmarks_)
                kept += features.approximation_error(X, exact=True).value <= tol
                knew = seconds(Nystroem(n_components=None, n_landmarks=m, random_state=seed, **case.params), X)
                times.append(took / knew)
                sizes.append(m)
                if not given.no_grid:
                    ratios.append(m / smallest(X, tol, case.params, m, seed))
            total, held = total + given.runs, held + kept
            ratio = f"{np.median(ratios):.2f}" if ratios else ""
            print(
                f"| {name} | {tol} | {kept} of {given.runs} | {np.median(sizes):.0f} | {ratio} "
                f"| {np.median(times):.2f} |",
                flush=True,
            )
    print(f"\nheld in {held} of {total}")


if __name__ == "__main__":
    main()
