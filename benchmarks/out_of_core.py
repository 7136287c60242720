"""Fits on rows larger than the memory budget: peak memory, a hard limit, and speed against rows in memory.

    python -m benchmarks.out_of_core FOLDER --rows 10000000 --max-memory 500MB

``FOLDER`` gets ``X.npy`` and ``y.npy`` (2 GB at the default size) unless they are there. Each measurement runs in a
separate process, so that memory kept by one does not hide what the next one adds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from nystrom import KernelRidge, open_rows
from nystrom.engine import LocalEngine
from nystrom.engine.memory import parse_memory
from nystrom.engine.passes import Passes
from nystrom.landmarks.clustered import SketchedKMeans
from nystrom.rows import RowBlocks, array_rows
from nystrom.sketch import SignSketch

COLUMNS, LANDMARKS, PIECE = 50, 200, 250_000


def make_data(folder: Path, n: int) -> None:
    """Write rows around 100 centres, and a smooth target, a piece at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "X.npy").exists() and open_rows(folder / "X.npy").shape == (n, COLUMNS):
        return
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float64, (n,))
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(100, COLUMNS)).astype(np.float32)
    for start in range(0, n, PIECE):
        stop = min(start + PIECE, n)
        block = (
            rng.standard_normal((stop - start, COLUMNS), dtype=np.float32)
            + centres[rng.integers(100, size=stop - start)]
        )
        X[start:stop] = block
        y[start:stop] = np.sin(block[:, 0]) + 0.1 * block[:, 1]


class PeakMemory:
    """The most resident memory that the process adds inside the ``with`` block, sampled every 2 ms."""

    def __enter__(self) -> PeakMemory:
        self._process = psutil.Process()
        self._base = self.peak = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def added(self) -> int:
        return self.peak - self._base


def timed(work: Any) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fit(folder: Path, max_memory: str, landmarks: str, address_limit: bool) -> dict[str, Any]:
    """Fit a ridge on the file within the budget."""
    rows = open_rows(folder / "X.npy", target=folder / "y.npy")
    warm_up()
    if address_limit:
        used = psutil.Process().memory_info().vms
        limit = used + int(parse_memory(max_memory) or 0)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    model = KernelRidge(n_landmarks=LANDMARKS, landmarks=landmarks, max_memory=max_memory, random_state=0)
    with PeakMemory() as memory:
        seconds = timed(lambda: model.fit(rows))
    kind = "address-space limit" if address_limit else "resident memory"
    return {
        "what": f"fit, {landmarks}, max_memory={max_memory}, {kind}",
        "added_MB": round(memory.added / 1e6, 1),
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows.shape[0] / seconds),
    }


def warm_up() -> None:
    """Load libraries and start thread pools, so that they do not count as memory of the fit."""
    X = np.random.default_rng(0).normal(size=(20_000, 3)).astype(np.float32)
    KernelRidge(n_landmarks=10, random_state=0).fit(X, X[:, 0])


def throughput(folder: Path, max_memory: str, n: int) -> dict[str, Any]:
    """Compare the fit from a file with the fit in memory, best of three in turn."""
    X, y = np.load(folder / "X.npy", mmap_mode="r")[:n], np.load(folder / "y.npy", mmap_mode="r")[:n]
    np.save(folder / "part.npy", X)
    X, y = np.array(X), np.array(y)
    rows = open_rows(folder / "part.npy", target=y)
    file = KernelRidge(n_landmarks=LANDMARKS, max_memory=max_memory, random_state=0)
    memory = KernelRidge(n_landmarks=LANDMARKS, random_state=0)
    pairs = [(timed(lambda: file.fit(rows)), timed(lambda: memory.fit(X, y))) for _ in range(3)]
    same = np.array_equal(file.landmark_coef_, memory.landmark_coef_)
    (folder / "part.npy").unlink()
    from_file, in_memory = (min(times) for times in zip(*pairs, strict=True))
    return {
        "what": f"fit of {n} rows: throughput from file / in memory",
        "ratio": round(in_memory / from_file, 3),
        "same bits": same,
    }


def sketch(folder: Path, n: int) -> dict[str, Any]:
    """Compare the sketching pass of Algorithm 3 over the cached file with the one in memory, best of five in turn."""
    part = folder / "part.npy"
    np.save(part, np.load(folder / "X.npy", mmap_mode="r")[:n])
    X = np.load(part)

    def run(rows: RowBlocks) -> float:
        made = SignSketch().fit(COLUMNS, SketchedKMeans().sketch_dim, np.random.default_rng(0))
        passes = Passes(rows, LocalEngine())
        return timed(lambda: passes.map_rows(lambda block: made(block.X), made.dim, rows.dtype, label="sketch"))

    pairs = [(run(open_rows(part)), run(array_rows(X))) for _ in range(5)]
    part.unlink()
    from_file, in_memory = (min(times) for times in zip(*pairs, strict=True))
    return {
        "what": f"sketch of {n} rows: seconds from cached file / in memory",
        "seconds": [round(from_file, 3), round(in_memory, 3)],
        "ratio": round(from_file / in_memory, 3),
    }


def main() -> None:
    """Run every measurement in a process of its own and print one line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--max-memory", default="500MB")
    parser.add_argument("--only", choices=["auto", "sketched-kmeans", "limit", "throughput", "sketch"])
    given = parser.parse_args()
    make_data(given.folder, given.rows)
    small = min(given.rows, 2_000_000)
    if given.only is None:
        for name in ("auto", "sketched-kmeans", "limit", "throughput", "sketch"):
            subprocess.run([sys.executable, "-m", "benchmarks.out_of_core", *sys.argv[1:], "--only", name], check=False)
        return
    measured = {
        "auto": lambda: fit(given.folder, given.max_memory, "auto", False),
        "sketched-kmeans": lambda: fit(given.folder, given.max_memory, "sketched-kmeans", False),
        "limit": lambda: fit(given.folder, given.max_memory, "auto", True),
        "throughput": lambda: throughput(given.folder, given.max_memory, small),
        "sketch": lambda: sketch(given.folder, small),
    }[given.only]()
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
