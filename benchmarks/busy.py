"""Compare default and single-thread fits, searches and predictions, on an idle and on a busy machine.

The two contestants are processes, since BLAS reads the number of threads when it is loaded: one with the defaults, one
with OPENBLAS_NUM_THREADS=1. They take turns. Busy processes are started and ended here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Result
from nystrom import KernelRidge

BUSY = (0, 2, 4)
# Seconds for the rounds of one size: after these no other round begins.
PATIENCE = 20.0
# Rows, columns, landmarks, and the parameters that are searched.
SIZES: list[tuple[int, int, int, dict[str, Any]]] = [
    (1_000, 10, 100, {}),
    (4_000, 15, 1_000, {"metric": "auto"}),
    (10_000, 20, 500, {"gamma": "auto"}),
    (12_000, 20, 3_000, {}),
    (50_000, 20, 1_000, {}),
    (100_000, 10, 300, {}),
]


Peer = Callable[[int], dict[str, Any]]


def busy(repeat: int) -> Iterator[Result]:
    """Yield two results per case and number of busy processes: with the defaults, and with one thread."""
    with ExitStack() as stack:
        peers = {
            "nystrom": stack.enter_context(_peer({})),
            "nystrom, one thread": stack.enter_context(_peer({"OPENBLAS_NUM_THREADS": "1"})),
        }
        for n_busy in BUSY:
            beside = f"beside {n_busy} busy processes" if n_busy else "idle"
            for i, (n, p, m, search) in enumerate(SIZES):
                with _spinning(n_busy):
                    rounds = _rounds(peers, i, repeat)
                kind = f"search of {', '.join(search)}" if search else "fit"
                for what, case in (("fit", kind), ("predict", "prediction")):
                    for name in peers:
                        runs = [found[name][what] for found in rounds]
                        yield Result(
                            f"{case}, {n:,} × {p}, {m:,} landmarks, {beside}",
                            name,
                            min(run["seconds"] for run in runs),
                            0.0,
                            None,
                            processor=min(run["processor"] for run in runs),
                            times=tuple(run["seconds"] for run in runs),
                        )


def _rounds(peers: dict[str, Peer], size: int, repeat: int) -> list[dict[str, dict[str, Any]]]:
    """Return the times of each peer per round: at most ``repeat`` rounds, and at least one."""
    start, rounds = time.perf_counter(), []
    while not rounds or (len(rounds) < repeat and time.perf_counter() - start < PATIENCE):
        rounds.append({name: peer(size) for name, peer in peers.items()})
    return rounds


@contextmanager
def _spinning(count: int) -> Iterator[None]:
    """Keep the given number of processes busy inside the ``with`` block."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.3 if spinners else 0.0)
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@contextmanager
def _peer(settings: dict[str, str]) -> Iterator[Peer]:
    """Start a process with these settings; yield a function that makes it run the size of a given index."""
    unset = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.busy"],
        cwd=Path(__file__).parents[1],
        env=unset | settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    to, from_ = child.stdin, child.stdout

    def run(size: int) -> dict[str, Any]:
        print(size, file=to, flush=True)
        return json.loads(from_.readline())

    try:
        yield run
    finally:
        to.close()
        child.wait()


@dataclass
class _Clock:
    """Seconds and processor seconds since its creation."""

    def __post_init__(self) -> None:
        self._start, self._used = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._start, "processor": time.process_time() - self._used}


def _run(size: int) -> dict[str, dict[str, float]]:
    n, p, m, search = SIZES[size]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    clock = _Clock()
    model = KernelRidge(alpha="auto", n_landmarks=m, random_state=0, **search).fit(X, y)
    fitted = clock.read()
    clock = _Clock()
    model.predict(X)
    return {"fit": fitted, "predict": clock.read()}


if __name__ == "__main__":
    _run(0)  # load what a first fit imports
    for line in sys.stdin:
        print(json.dumps(_run(int(line))), flush=True)
