"""A cluster that is not as it should be: a clear error within seconds, or the same bits as without the fault."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.exceptions import ClusterLostError, ClusterVersionError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.faults

SERVER = """
    import asyncio, sys

    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "nystrom":
                raise ModuleNotFoundError(f"No module named {name!r}")

    fault, role, address = sys.argv[1:]
    if fault == "absent":
        sys.meta_path.insert(0, Blocker())
    elif fault == "other version":
        import nystrom
        nystrom.__version__ = "9.9.9"
    import distributed

    async def main():
        if role == "scheduler":
            server = await distributed.Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0")
            print(server.address, flush=True)
        else:
            server = await distributed.Worker(address, host="127.0.0.1")
        await server.finished()

    asyncio.run(main())
"""


def serve(fault, role, address=""):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER), fault, role, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def stop(*processes):
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def lazy_rows(seconds=0.0):
    """Return rows whose chunks take so long to make, so that a fault comes in the middle of a pass."""
    X = da.random.default_rng(0).normal(size=(5_000, 5), chunks=(500, 5))
    # A function inside a function is sent as code: a worker cannot import this file.
    return X.map_blocks(lambda block: (__import__("time").sleep(seconds), block)[1], dtype=X.dtype) if seconds else X


def fit_in_thread(X):
    """Return what a fit on the cluster raises, or None; fail if it is still silent after a minute of waiting."""
    outcome = []

    def fit():
        try:
            Nystroem(n_components=5, random_state=0).fit(X)
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    for _ in range(600):  # not one join of a minute, which ends too early where all processes are stopped for a while
        thread.join(0.1)
        if outcome:
            break
    assert outcome, "the client waits in silence"
    return outcome[0]


@pytest.mark.parametrize("faults", [("right", "absent"), ("absent", "absent"), ("right", "other version")])
def test_a_worker_that_cannot_run_the_package_is_named(faults):
    scheduler = serve("right", "scheduler")
    workers = []
    try:
        address = scheduler.stdout.readline().strip()
        workers = [serve(fault, "worker", address) for fault in faults]
        with distributed.Client(address, timeout=30) as client:
            client.wait_for_workers(2, timeout=60)
            error = fit_in_thread(lazy_rows())
        assert isinstance(error, ClusterVersionError)
        said = "has version 9.9.9" if "other version" in faults else "No module named"
        assert said in str(error)
        assert f"{sum(fault != 'right' for fault in faults)} of 2" in str(error)
    finally:
        stop(*workers, scheduler)


def test_a_scheduler_without_the_package_is_an_error_and_no_silence():
    scheduler = serve("absent", "scheduler")
    workers = []
    try:
        address = scheduler.stdout.readline().strip()
        workers.append(serve("right", "worker", address))
        with distributed.Client(address, timeout=30) as client:
            client.wait_for_workers(1, timeout=60)
            assert fit_in_thread(lazy_rows()) is not None
    finally:
        stop(*workers, scheduler)


@pytest.mark.parametrize("at_first", [True, False], ids=["killed", "never there"])
def test_a_cluster_without_workers_is_an_error_and_no_silence(at_first):
    scheduler = serve("right", "scheduler")
    worker = None
    try:
        address = scheduler.stdout.readline().strip()
        with (
            dask.config.set({"distributed.scheduler.no-workers-timeout": "4s"}),
            distributed.Client(address, timeout=30) as client,
        ):
            if at_first:
                worker = serve("right", "worker", address)
                client.wait_for_workers(1, timeout=60)
                threading.Timer(1.0, worker.kill).start()
            error = fit_in_thread(lazy_rows(0.3))
        assert isinstance(error, ClusterLostError)
        assert "has had no worker for" in str(error)
        assert "wait_for_workers" in str(error)
    finally:
        stop(*[worker] if worker else [], scheduler)


def test_a_worker_without_the_package_that_comes_in_the_middle_of_a_pass_is_named():
    scheduler = serve("right", "scheduler")
    workers = []
    try:
        address = scheduler.stdout.readline().strip()
        workers.append(serve("right", "worker", address))
        with distributed.Client(address, timeout=30) as client:
            client.wait_for_workers(1, timeout=60)

            def change():
                workers.append(serve("absent", "worker", address))
                client.wait_for_workers(2, timeout=60)
                workers[0].kill()

            changing = threading.Thread(target=change)
            changing.start()
            error = fit_in_thread(lazy_rows(3.0))
            changing.join()
        assert isinstance(error, ClusterVersionError)
        assert "No module named" in str(error)
    finally:
        stop(*workers, scheduler)


def test_a_scheduler_killed_in_the_middle_of_a_pass_is_an_error_and_no_silence():
    scheduler = serve("right", "scheduler")
    workers = []
    try:
        address = scheduler.stdout.readline().strip()
        workers.append(serve("right", "worker", address))
        with distributed.Client(address, timeout=30) as client:
            client.wait_for_workers(1, timeout=60)
            threading.Timer(1.0, scheduler.kill).start()
            error = fit_in_thread(lazy_rows(0.3))
        assert isinstance(error, ClusterLostError)
        assert "connection to the Dask scheduler was lost" in str(error)
    finally:
        stop(*workers, scheduler)


@pytest.mark.parametrize("seed", range(3))
def test_workers_killed_at_any_time_change_no_bit(seed, record_property):
    rng = np.random.default_rng(seed)
    X = lazy_rows()
    options = {"n_components": 10, "n_landmarks": 30, "landmarks": "sketched-kmeans", "random_state": 0}
    expected = Nystroem(**options).fit(X)  # in threads of this process
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())

        def kill():
            time.sleep(rng.uniform(0.0, 1.5))
            os.kill(pids[seed % 2], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        for _ in range(2):
            fitted = Nystroem(**options).fit(X)
            np.testing.assert_array_equal(fitted.projection_, expected.projection_)
            np.testing.assert_array_equal(fitted.landmarks_, expected.landmarks_)
        killer.join()
    record_property("faults", {"lost workers": 1})
