"""The active Dask cluster: submit graphs, fetch results, and explain a lost connection."""

from __future__ import annotations

import math
import re
import socket
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import dask
import dask.threaded
import distributed
from dask.utils import parse_timedelta
from distributed.comm.core import CommClosedError

from nystrom import __version__
from nystrom.exceptions import ClusterLostError, ClusterVersionError
from nystrom.machine import available_cores, free_memory

# Seconds between two checks of the workers while waiting for results.
_LOOK = 2.0
# Seconds without any worker after which a pass fails, unless Dask's own setting says otherwise.
_PATIENCE = 60.0


def make_token() -> str:
    return uuid.uuid4().hex


def slug(label: str) -> str:
    """Return the label as Dask's dashboard shows it: its words up to the first number."""
    words = re.findall(r"[a-z]+", re.split(r"[\d,]", label.lower())[0])
    return "-".join(words) or "pass"


# Keys and tasks, as Dask writes them.
Key: TypeAlias = str | tuple[str | int, ...]
Graph: TypeAlias = dict[Any, Any]
# A future of distributed, or the value itself where there is no client.
Pending: TypeAlias = Any


def active_client() -> Any:
    """Return the active client, or None."""
    try:
        return distributed.get_client()
    except ValueError:
        return None


# Workers whose package version was checked, per client.
_checked: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def require_package(client: Any) -> None:
    """Raise unless every worker has this version of the package: tasks on another worker would never end.

    Each worker is asked once, all of them in one message.
    """
    with explained(client, "look for the package on the workers"):
        known = _checked.setdefault(client, set())
        new = sorted(set(client.nthreads()) - known)
        if not new:
            return
        # A worker that died meanwhile does not answer and needs no check.
        found = client.run(_make_probe(), workers=new, on_error="ignore")
    right = f"version {__version__}"
    wrong = {worker: answer for worker, answer in found.items() if answer != right}
    if wrong:
        worker, answer = next(iter(wrong.items()))
        raise ClusterVersionError(
            f"{len(wrong)} of {len(known | found.keys())} Dask workers cannot run nystrom {__version__}: the worker "
            f"{worker} has {answer}. Install the same version where the scheduler and the workers run, and start them "
            f"again."
        )
    known.update(found)


def _make_probe() -> Callable[[], str]:
    # A nested function is sent as code; a function of this module would be sent by name and need the package.
    def probe() -> str:
        import importlib

        try:
            importlib.import_module("nystrom.engine.dask")
            return f"version {importlib.import_module('nystrom').__version__}"
        except Exception as error:
            return f"none that it can import ({error!r})"

    return probe


def cluster_threads() -> int:
    """Return the number of threads that compute passes."""
    client = active_client()
    return available_cores() if client is None else max(sum(client.nthreads().values()), 1)


def cluster_memory() -> float:
    """Return the bytes that the workers may use together; 0 without a client."""
    client = active_client()
    if client is None:
        return 0.0
    require_package(client)
    with explained(client, "ask the workers for their memory"):
        found = client.run(_memory_here, on_error="ignore").values()
    workers_of = Counter(host for host, *_ in found)
    return sum(min(limit, free / workers_of[host]) for host, limit, free in found)


def _memory_here(dask_worker: Any) -> tuple[str, float, float]:
    """Return the name of the machine, the limit of a worker and the free memory of the machine, if known."""
    limit = dask_worker.memory_manager.memory_limit
    return socket.gethostname(), limit or math.inf, free_memory() or 0.0


def submit(graph: Graph, keys: Sequence[Key]) -> list[Pending]:
    """Start computing the keys; return futures, or the values themselves without a client."""
    client = active_client()
    if client is None:
        return list(dask.threaded.get(graph, keys))
    require_package(client)
    # The data of a step is in the graph once, on purpose: silence Dask's warning about large graphs.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}), explained(client, "submit"):
        return list(client.get(graph, keys, sync=False))


def fetch(pending: list[Pending], label: str) -> list[Any]:
    client = active_client()
    if client is None:
        return pending
    with explained(client, label, pending), watched(client, label, pending):
        return list(client.gather(pending))


def wait_for(pending: list[Pending], label: str) -> None:
    client = active_client()
    if client is None:
        return
    with explained(client, label, pending), watched(client, label, pending):
        distributed.wait(pending)
        for future in pending:
            if future.status != "finished":
                future.result()


@contextmanager
def watched(client: Any, label: str, pending: Sequence[Pending]) -> Iterator[None]:
    """Cancel the futures, with the reason, if no worker is left or a new one cannot run the package.

    Dask itself waits for ever in both cases.
    """
    done = threading.Event()
    reasons: list[Exception] = []

    def look() -> None:
        alone = time.monotonic()
        while not done.wait(_LOOK):
            try:
                require_package(client)
                if client.nthreads():
                    alone = time.monotonic()
                _give_up_without_workers(time.monotonic() - alone, label)
            except Exception as error:
                reasons.append(error)
                # Dask has cancelled them if the connection is lost.
                with suppress(Exception):
                    client.cancel(pending, force=True)
                return

    watcher = threading.Thread(target=look, name="nystrom-watch", daemon=True)
    watcher.start()
    try:
        yield
    except distributed.CancelledError:
        if reasons:
            raise reasons[0] from None
        raise
    finally:
        done.set()
        watcher.join()


def _give_up_without_workers(seconds: float, label: str) -> None:
    setting = "distributed.scheduler.no-workers-timeout"
    patience = parse_timedelta(dask.config.get(setting, None)) or _PATIENCE
    if seconds > patience:
        raise ClusterLostError(
            f"The Dask cluster has had no worker for {seconds:.0f} seconds during {label!r}. Start workers and fit "
            f"again; if they take longer to start, wait for them first (client.wait_for_workers(1)) or allow more "
            f"time: dask.config.set({{{setting!r}: '10 minutes'}})."
        )


@contextmanager
def explained(client: Any, label: str, pending: Sequence[Pending] = ()) -> Iterator[None]:
    """Turn Dask's errors about the cluster into one that says what to do; errors of the step pass through.

    An ``OSError`` or ``TimeoutError`` comes from the step or a chunk if one of the ``pending`` futures has failed.
    """
    lost = (
        f"The connection to the Dask scheduler was lost during {label!r}. This fit is lost; start the "
        f"scheduler, connect a new Client and fit again."
    )
    if client.status not in ("running", "connecting"):
        raise ClusterLostError(f"{lost} The client is {client.status!r}.")
    try:
        yield
    except distributed.KilledWorker as error:
        raise ClusterLostError(
            f"Workers died again and again during {label!r}; most often a chunk and its kernel values do not fit their "
            f"memory. Rechunk X to fewer rows per chunk (X.rechunk((8192, -1))) or see nystrom.plan. Dask says: {error}"
        ) from error
    except ClusterLostError:  # from a nested call; it is an OSError too
        raise
    except (CommClosedError, OSError, TimeoutError, distributed.CancelledError) as error:
        if any(future.status == "error" for future in pending):
            raise
        raise ClusterLostError(f"{lost} Dask says: {type(error).__name__} {error}") from error
