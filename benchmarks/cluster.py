"""Costs and gains of a cluster.

    python benchmarks/cluster.py speedup   # 1 against 2 single-thread workers, interleaved, best of each
    python benchmarks/cluster.py parquet   # this process with one thread against 2 workers, from a file
    python benchmarks/cluster.py overhead  # scheduling cost per block
    python benchmarks/cluster.py client    # growth of the client's memory on a lazy array
    python benchmarks/cluster.py plan      # predicted against measured, runs over two orders of magnitude of n

Other processes disturb the times, so each figure is a ratio of interleaved runs and is printed with the load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import psutil
from distributed import Client, LocalCluster

from nystrom import KernelRidge, Nystroem
from nystrom.engine import Sums
from nystrom.engine.dask import DaskEngine, collection_rows
from nystrom.planning import calibrate, plan


def start_cluster(n_workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", memory_limit=0
    )


def make_chunk(info: np.ndarray, p: int) -> np.ndarray:
    """Return 20 Gaussian clusters, seeded by the chunk."""
    centers = 2 * np.random.default_rng(0).normal(size=(20, p))
    rng = np.random.default_rng(int(info[0]))
    return centers[rng.integers(20, size=len(info))] + rng.normal(size=(len(info), p))


def lazy_rows(n: int, p: int, chunk: int) -> da.Array:
    first = da.arange(n, chunks=chunk)
    return first.map_blocks(make_chunk, p, new_axis=1, chunks=(first.chunks[0], (p,)), meta=np.empty((0, 0)))


def speedup(arguments: argparse.Namespace) -> None:
    """Time the same fit with 1 and with 2 workers, in turn; the data is generated and kept on the workers."""
    best: dict[int, float] = {}
    for _ in range(arguments.repeats):
        for n_workers in (1, 2):
            with start_cluster(n_workers) as cluster, Client(cluster) as client:
                X = lazy_rows(arguments.rows, 50, 8192).persist()
                client.gather(client.compute(X[:, :1].sum()))
                began = time.perf_counter()
                Nystroem(n_components=100, n_landmarks=500, random_state=0).fit(X)
                seconds = time.perf_counter() - began
            best[n_workers] = min(seconds, best.get(n_workers, np.inf))
            print(f"{n_workers} worker(s): {seconds:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"best: {best[1]:.1f} s and {best[2]:.1f} s, ratio {best[2] / best[1]:.2f}")


def parquet(arguments: argparse.Namespace) -> None:
    """Time the same fit of a Parquet file in this process and on two workers, in turn, after one uncounted round."""
    n, p = arguments.rows, arguments.columns
    with tempfile.TemporaryDirectory() as folder, start_cluster(2) as cluster, Client(cluster):
        path = Path(folder) / "rows.parquet"
        table = pd.DataFrame(make_chunk(np.arange(n), p)).rename(columns="x{}".format)
        table.assign(y=np.sin(table["x0"]) + table["x1"]).to_parquet(path, index=False, row_group_size=50_000)
        best: dict[str, float] = {}
        for turn in range(arguments.repeats + 1):
            for engine in ("local", "dask"):
                model = KernelRidge(n_landmarks=arguments.landmarks, engine=engine, n_jobs=1, random_state=0)
                began = time.perf_counter()
                model.fit(path, "y")
                seconds = time.perf_counter() - began
                best[engine] = min(seconds, best.get(engine, np.inf)) if turn else np.inf
                print(f"{engine}: {seconds:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    here, there = best["local"], best["dask"]
    print(f"best: {here:.1f} s here and {there:.1f} s on two workers, ratio {there / here:.2f}")


def overhead(arguments: argparse.Namespace) -> None:
    """Time empty folds; processor time includes the client, the scheduler and the workers."""
    with start_cluster(2) as cluster, Client(cluster) as client:
        processes = [psutil.Process(), *map(psutil.Process, client.run(os.getpid).values())]

        def processor() -> float:
            return sum(sum(process.cpu_times()[:2]) for process in processes)

        for n_blocks in (50, 200):
            rows = collection_rows(da.ones((n_blocks * 10, 2), chunks=(10, 2)))
            best = (np.inf, np.inf)
            for _ in range(arguments.repeats):
                began, spent = time.perf_counter(), processor()
                DaskEngine().fold(rows, lambda block: Sums(np.ones((100, 100))), label="nothing")
                best = min(best, (processor() - spent, time.perf_counter() - began))
            spent, seconds = (1000 * value / n_blocks for value in best)
            load = os.getloadavg()[0]
            print(f"{n_blocks} blocks: {spent:.1f} ms of processor and {seconds:.1f} ms per block, load {load:.1f}")


def client_memory(arguments: argparse.Namespace) -> None:
    """Measure the growth of the client's memory during a fit on an array generated on the workers."""
    process, stop, peak = psutil.Process(), threading.Event(), [0]

    def watch() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss)

    n = int(arguments.gigabytes * 1e9 / (8 * 500))
    with start_cluster(2) as cluster, Client(cluster):
        X = lazy_rows(n, 500, 8192)
        watcher = threading.Thread(target=watch)
        before = process.memory_info().rss
        watcher.start()
        began = time.perf_counter()
        Nystroem(n_components=50, n_landmarks=100, random_state=0).fit(X)
        seconds = time.perf_counter() - began
        stop.set()
        watcher.join()
    print(
        f"{X.nbytes / 1e9:.1f} GB in {X.numblocks[0]} chunks: client grew by {(peak[0] - before) / 1e6:.0f} MB, ",
        end="",
    )
    print(f"{seconds:.0f} s, load {os.getloadavg()[0]:.1f}")


def one_fit(arguments: argparse.Namespace) -> None:
    """Fit once in a fresh process; print processor seconds, seconds and peak bytes."""
    X = np.empty((arguments.rows, arguments.columns))
    for start in range(0, len(X), 10_000):  # in pieces, so that the peak is that of the fit
        X[start : start + 10_000] = make_chunk(np.arange(start, min(start + 10_000, len(X))), arguments.columns)
    model = Nystroem(n_components=20, n_landmarks=arguments.landmarks, random_state=0, n_jobs=1)
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    # Not ru_maxrss, which includes the peak of the parent process.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024
    print(json.dumps([time.process_time() - cpu, time.perf_counter() - began, peak]))


def check_plan(arguments: argparse.Namespace) -> None:
    """Compare the plan with fits in fresh processes. Uses processor seconds, since the machine is shared."""
    p, m = 50, 300
    measured = calibrate(p, m, n_jobs=1, clock=time.process_time)
    print(measured)
    for n in (10_000, 40_000, 150_000, 400_000, 1_000_000):
        expected = plan(n, p, m, threads=1, calibration=measured)
        command = [sys.executable, __file__, "fit", "--rows", str(n), "--columns", str(p), "--landmarks", str(m)]
        runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(1)]
        cpu, wall, peak = min(runs)
        print(
            f"n = {n:>9,}: planned {expected.seconds:6.1f} s, took {cpu:6.1f} s of processor ({wall:.1f} s in all), "
            f"ratio {expected.seconds / cpu:.2f}; planned {expected.memory / 1e6:.0f} MB, took {peak / 1e6:.0f} MB, "
            f"ratio {expected.memory / peak:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speedup", "parquet", "overhead", "client", "plan", "fit"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--landmarks", type=int, default=300)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    run = {
        "speedup": speedup,
        "parquet": parquet,
        "overhead": overhead,
        "client": client_memory,
        "plan": check_plan,
        "fit": one_fit,
    }
    run[arguments.what](arguments)


if __name__ == "__main__":
    main()
