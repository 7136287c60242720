"""Whether ``Nystroem(tol=…)`` keeps its word: ``python -m benchmarks.tolerance [held | time] [--runs N] [--rows N]``.

Five kinds of rows and three tolerances, with new rows and seeds in each run, starting at ``--first-seed``. ``held``
counts how often the exact error is below the tolerance, and compares the number of landmarks with the smallest
sufficient size on a fine grid. That size varies randomly, by up to a half with polynomial kernels: it is given for the
seed of the run, and as the median over ``--draws`` seeds. With ``--store FILE`` each run is stored, and a second call
continues where the first ended. ``time`` compares wall-clock and processor time with a fit that is given the size.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage import CASES
from nystrom import Nystroem
from nystrom.types import Matrix

TOLERANCES = (0.1, 0.05, 0.02)
NAMES = ("wide", "heavy tails", "clusters", "polynomial", "laplacian")
STEP = 1.05
# Distance between the landmark seeds of the grid; the first is the seed of the run.
NEXT_DRAW = 1000
# Number of grid steps to jump before the steps in between are tried.
STRIDE = 4


def smallest(X: Matrix, tol: float, params: dict[str, Any], found: int, seed: int) -> int:
    """Return the smallest sufficient size on a grid with steps of 5 %, searched below and above ``found``.

    Judged by the estimated error, which is within 1 % of the exact one.
    """

    def size(steps: int) -> int:
        return max(round(found * STEP**steps), 1)

    def suffices(steps: int) -> bool:
        fitted = Nystroem(n_components=None, n_landmarks=size(steps), random_state=seed, **params).fit(X)
        return fitted.approximation_error(X).value <= tol

    good = 0
    while not suffices(good):
        good += 1
    if good:
        return size(good)
    bad = -STRIDE
    while size(bad) > 1 and suffices(bad):
        good, bad = bad, bad - STRIDE
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if suffices(middle) else (good, middle)
    return size(good)


def seconds(machine: Nystroem, X: Matrix) -> tuple[float, float]:
    """Return the wall-clock and the processor time of a fit."""
    start, busy = time.perf_counter(), time.process_time()
    machine.fit(X)
    return time.perf_counter() - start, time.process_time() - busy


def held(name: str, tol: float, seed: int, rows: int, draws: int) -> dict[str, Any]:
    """Return the result of one run: the exact error, the landmarks, and the smallest sufficient number."""
    case = CASES[name]
    X = case.rows(rows, np.random.default_rng(seed))
    features = Nystroem(tol=tol, random_state=seed, **case.params).fit(X)
    m, error = len(features.landmarks_), features.approximation_error(X, exact=True).value
    least = [smallest(X, tol, case.params, m, seed + other) for other in range(0, draws * NEXT_DRAW, NEXT_DRAW)]
    return {"rows": name, "tol": tol, "seed": seed, "n": rows, "error": error, "m": m, "smallest": least}


def table_held(seeds: range, rows: int, draws: int, store: Path | None) -> None:
    known = [json.loads(line) for line in store.read_text().splitlines()] if store and store.exists() else []
    done = {(r["rows"], r["tol"], r["seed"], r["n"]): r for r in known}
    # Loop over seeds first, so that an unfinished table has runs of every kind.
    for seed in seeds:
        for name in NAMES:
            for tol in TOLERANCES:
                key = (name, tol, seed, rows)
                if key not in done:
                    done[key] = held(*key, draws)
                    if store:
                        with store.open("a") as file:
                            file.write(json.dumps(done[key]) + "\n")
    print_held([done[name, tol, seed, rows] for name in NAMES for tol in TOLERANCES for seed in seeds])


def print_held(runs: list[dict[str, Any]]) -> None:
    """Print a line per kind of rows and tolerance: medians and maxima."""
    print(
        "| rows | tol | held | landmarks | landmarks ÷ smallest | ÷ its median over draws |\n|---|---|---|---|---|---|"
    )
    own = [r["m"] / r["smallest"][0] for r in runs]
    usual = [r["m"] / float(np.median(r["smallest"])) for r in runs]
    good = [r["error"] <= r["tol"] for r in runs]
    for name in NAMES:
        for tol in TOLERANCES:
            here = [i for i, r in enumerate(runs) if (r["rows"], r["tol"]) == (name, tol)]
            if here:
                landmarks = np.median([runs[i]["m"] for i in here])
                ratios = " | ".join(
                    f"{np.median([of[i] for i in here]):.2f}, {max(of[i] for i in here):.2f}" for of in (own, usual)
                )
                kept = sum(good[i] for i in here)
                print(f"| {name} | {tol} | {kept} of {len(here)} | {landmarks:.0f} | {ratios} |")
    print(f"\nheld in {sum(good)} of {len(runs)}")
    for of, what in ((own, "the smallest size of its own seed"), (usual, "the median over draws")):
        within = sum(ratio <= 1.4 for ratio in of)
        print(f"at most 1.4 times {what} in {within}; median {np.median(of):.2f}, most {max(of):.2f}")


def table_time(runs: int, rows: int) -> None:
    print("| rows | tol | landmarks | seconds | ÷ fit of given size | the same, processor time |\n" + "|---" * 6 + "|")
    ratios = []
    for name in NAMES:
        for tol in TOLERANCES:
            case = CASES[name]
            X = case.rows(rows, np.random.default_rng(0))
            search, knew, m = [], [], 0
            for _ in range(runs):
                features = Nystroem(tol=tol, random_state=0, **case.params)
                search.append(seconds(features, X))
                m = len(features.landmarks_)
                knew.append(seconds(Nystroem(n_components=None, n_landmarks=m, random_state=0, **case.params), X))
            best = np.min(search, axis=0)
            ratios.append(best / np.min(knew, axis=0))
            print(f"| {name} | {tol} | {m} | {best[0]:.3f} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} |", flush=True)
    for kind, of in zip(("by the clock", "in processor time"), np.transpose(ratios), strict=True):
        print(f"{kind}: median {np.median(of):.2f}, most {max(of):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("held", "time"), default="held")
    parser.add_argument("--runs", type=int, default=7, help="runs per kind of rows and tolerance")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=0, help="of the runs of held")
    parser.add_argument("--draws", type=int, default=3, help="seeds of the smallest size")
    parser.add_argument("--store", type=Path, help="file of finished runs")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "time":
        table_time(given.runs, given.rows)
    else:
        table_held(range(given.first_seed, given.first_seed + given.runs), given.rows, given.draws, given.store)


if __name__ == "__main__":
    main()
