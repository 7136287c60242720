"""A cluster without workers is an error within the time that Dask's setting allows, and no silence."""

import threading

import numpy as np
import pytest

from nystrom import Nystroem
from nystrom.exceptions import ClusterLostError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
cluster_module = pytest.importorskip("nystrom.engine.dask.cluster")


@pytest.fixture
def client_without_workers(monkeypatch):
    monkeypatch.setattr(cluster_module, "_LOOK", 0.1)
    monkeypatch.setattr(cluster_module, "_PATIENCE", 0.5)
    options = {"dashboard_address": "127.0.0.1:0", "processes": False}  # in this process: no port
    with distributed.LocalCluster(n_workers=0, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def test_a_cluster_without_workers_is_given_up_with_a_reason(client_without_workers):
    X = da.from_array(np.random.default_rng(0).normal(size=(300, 3)), chunks=(100, 3))
    with pytest.raises(ClusterLostError, match=r"has had no worker for \d+ seconds during .* Start workers"):
        Nystroem(n_components=5).fit(X)


def test_workers_that_come_in_time_do_the_work(client_without_workers, monkeypatch):
    monkeypatch.setattr(cluster_module, "_PATIENCE", 60.0)
    X = np.random.default_rng(0).normal(size=(300, 3))
    timer = threading.Timer(0.5, client_without_workers.cluster.scale, (1,))
    timer.start()
    fitted = Nystroem(n_components=5, random_state=0).fit(da.from_array(X, chunks=(100, 3)))
    timer.join()
    assert fitted.n_components_ == 5
    assert not [thread for thread in threading.enumerate() if thread.name == "nystrom-watch"]
